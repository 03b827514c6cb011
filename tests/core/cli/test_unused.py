"""Typed settings that would change nothing are said, and empty ones that would mean something else."""

import csv
import re
import sys
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import get_type_hints

import pytest

from manyheads import train
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config import RunConfig
from manyheads.config.facts import settings
from tests.registry import SWEEPS

OWN = (
    "does nothing here, where evaluate reads the run's own data as training read it: name other data by data.path=, "
    "data.hub= or data=<preset>, or remove it"
)
WITH, OR = "does nothing with", "or remove it"
LINES = [
    ("evaluate run=x data.rows=5", f"data.rows=5 {OWN}"),
    ("evaluate run=x data.on_bad_row=drop", f"data.on_bad_row=drop {OWN}"),
    ("evaluate run=x data=run data.text=review", f"data.text=review {OWN}"),
    (
        "evaluate run=x data.path=y.csv data.max_length=64",
        "data.max_length=64 does nothing in evaluate, where texts are cut as the model was trained to: remove it",
    ),
    ("evaluate run=x data.cache=c", "data.cache=c does nothing in evaluate, where nothing is cached: remove it"),
    (
        "evaluate run=x data=demo data.test_share=0.5",
        "data.test_share=0.5 does nothing in evaluate, where no split is held out: remove it",
    ),
    (
        "train data.path=/y.csv data.revision=main",
        "data.revision=main does nothing with data.path=/y.csv, which is read instead of the Hugging Face hub: "
        "remove one of them",
    ),
    (
        "train data=sick data.path=/y.csv data.hub_config=plain",
        "data.hub_config=plain does nothing with data.path=/y.csv, which is read instead of the Hugging Face hub: "
        "remove one of them",
    ),
    (
        "evaluate run=x data.path=/y.csv data.revision=main",
        "data.revision=main does nothing with data.path=/y.csv, which is read instead of the Hugging Face hub: "
        "remove one of them",
    ),
    (
        "train data.revision=main",
        "data.revision=main does nothing here, where data=demo is read: name a dataset of the Hugging Face hub by "
        "data.hub=, or remove it",
    ),
    (
        "evaluate run=x batch.rows=5",
        "batch.rows=5 is a setting of train, not of evaluate: `manyheads evaluate --help` lists those of evaluate",
    ),
    (
        "predict run=x text=a batch.accumulate=2",
        "batch.accumulate=2 is a setting of train, not of predict: `manyheads predict --help` lists those of predict",
    ),
    ("train data.target=x", "data.target=x does nothing with task=classify: remove it"),
    (
        "train data.stride=8",
        "data.stride=8 does nothing with data.long=cut: add data.long=windows, or remove it",
    ),
    (
        "train data.long=both data.windows=8",
        "data.windows=8 does nothing with data.long=both: add data.long=windows, or remove it",
    ),
    (
        "evaluate run=x data.path=y.csv data.long=both",
        "data.long=both does nothing in evaluate, where texts are read as the model was trained to: remove it",
    ),
    (
        "train optim.decay_share=0.5",
        f"optim.decay_share=0.5 {WITH} optim.schedule=linear: add optim.schedule=wsd, {OR}",
    ),
    ("train optim.few_epochs=9", f"optim.few_epochs=9 {WITH} optim.few=0: add optim.few=50, {OR}"),
    ("train guard.at_most=9", f"guard.at_most=9 {WITH} guard.nonfinite=raise: add guard.nonfinite=skip, {OR}"),
    (
        "train model.rotary_base=1e5",
        f"model.rotary_base=100000.0 {WITH} model.positions=sinusoidal: add model.positions=rotary, {OR}",
    ),
    (
        "train model.norm=rms model.norm_bias=false",
        f"model.norm_bias=false {WITH} model.norm=rms: add model.norm=layer, {OR}",
    ),
    (
        "train tokenizer.path=/x.json tokenizer.kind=bpe",
        f"tokenizer.kind=bpe {WITH} tokenizer.path=/x.json: remove one of them",
    ),
    ("train data.path=", "data.path= is empty: write data.path=VALUE, or remove it"),
    ("train data.hub=", "data.hub= is empty: write data.hub=VALUE, or remove it"),
    ("evaluate run=x data.path=", "data.path= is empty: write data.path=VALUE, or remove it"),
    ("predict run=x text=", "text= is empty: write text=VALUE, or remove it"),
    ("predict run=x input=", "input= is empty: write input=VALUE, or remove it"),
    ("predict run= text=a", "run is empty: name the run that predicts, for example run=outputs/my-run"),
]


@pytest.mark.parametrize(("line", "sentence"), LINES, ids=[line for line, _ in LINES])
def test_a_setting_that_does_nothing_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    check_line(line, sentence, capsys, tmp_path, monkeypatch)


def check_line(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert capsys.readouterr().err == f"{sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_what_is_typed_as_it_is_anyway_is_not_refused():
    words = ["optim.decay_share=0.2", "optim.few_epochs=0", "guard.at_most=5"]
    words += ["model.rotary_base=10000", "model.rotary_base_window=null", "model.norm=rms", "model.norm_bias=true"]
    compose("train", [*words, "tokenizer.path=x.json", "tokenizer.kind=wordpiece"])


@SWEEPS
@pytest.mark.parametrize(
    "line",
    [
        "train -m optim.schedule=linear,wsd optim.decay_share=0.5",
        "train -m optim=scratch,wsd optim.decay_share=0.5",
    ],
)
def test_what_one_run_of_several_reads_is_not_refused_for_another(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:  # of the first job
        raise SystemExit(main([*line.split(), "data.path=no.csv"]))
    assert ended.value.code == 2
    assert "no.csv does not exist" in capsys.readouterr().err


SMALL = [
    "model.d_model=16",
    "model.n_layers=2",
    "tokenizer.vocab_size=60",
    "hardware.accelerator=cpu",
    "data.max_length=16",
]
SMALL += ["trainer.max_epochs=2", "trainer.max_steps=4", "batch.rows=16", "data.cache=cache", "checkpoint.every=1"]
HEADS = ["model.n_heads=2", "model.d_k=4", "model.d_v=4", "model.d_ff=16", "model.positions=rotary", "model.window=3"]
HEADS += ["optim.schedule=wsd", "guard.nonfinite=skip", "logger.every=1"]
ELSEWHERE = {  # while words are composed; if a step goes wrong
    "again",
    "plugins",
    "optim.objective",  # one alone is built in
    "guard.halve",
    "guard.nonfinite",
    "guard.at_most",
}


@pytest.mark.slow  # whole runs; LINES has what they found
def test_a_setting_that_no_run_reads_is_refused(tmp_path, monkeypatch):
    words = ["data.text=a", "data.label=c", "optim.few=99", "optim.few_epochs=2", *HEADS]
    check_what_is_read("train", words, tmp_path, monkeypatch)


def check_what_is_read(verb, words, tmp_path, monkeypatch):
    """By `words` as many settings as can be are read at once. Reads are noted while a run trains, ships and judges;
    those that only copy, write or check settings are none."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"good film {n} so bad", f"fine {n % 5}", "xy"[n % 2]) for n in range(60)]
    with Path("rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("a", "b", "c"), *rows])
    words = ["data.path=rows.csv", *SMALL, *words]
    run = compose(verb, [*words, "output=out"])
    read = noted(RunConfig, monkeypatch)
    train(run)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    unread = [name for name in settings(RunConfig) if name not in read | ELSEWHERE]
    said = dict.fromkeys(name for name in unread if not name.endswith("_options"))  # of a user's own block
    for name in said:
        try:
            compose(verb, [*words, f"{name}={another(settings(RunConfig)[name])}"])
        except ValueError as refusal:
            said[name] = str(refusal)
    assert {
        name: why for name, why in said.items() if not why or not re.search("does nothing| is of | is for ", why)
    } == {}


def noted(schema, monkeypatch, where="", read=None):
    """The names of what is read of the settings of `schema`, from now on."""
    read, kinds = set() if read is None else read, get_type_hints(schema)
    names, get = {one.name for one in fields(schema)}, schema.__getattribute__

    def note(self, name):
        code, module = sys._getframe(1).f_code.co_name, sys._getframe(1).f_globals.get("__name__", "")
        copies = module in ("dataclasses", "manyheads.config.conversion", "manyheads.config.facts")
        checks = module.startswith("manyheads.config") and code.startswith(
            ("_check", "check", "_refuse", "__post", "set")
        )
        if name in names and not copies and not checks:
            read.add(where + name)
        return get(self, name)

    monkeypatch.setattr(schema, "__getattribute__", note)
    for name in names:
        if is_dataclass(kinds[name]):
            noted(kinds[name], monkeypatch, f"{where}{name}.", read)
    return read


def another(one):
    """A value that is not the default."""
    if isinstance(one.default, list):
        return {"model.scores": "[dot]", "model.windows": "[2]"}.get(one.name, "[a]")
    if isinstance(one.default, dict):
        return "{a: 1}"
    if one.name == "slurm.options":
        return "--gres=gpu:1"
    if isinstance(one.default, bool):
        return str(not one.default).lower()
    if isinstance(one.default, Enum):
        return next(each.name for each in type(one.default) if each is not one.default)
    if isinstance(one.default, float):
        return (one.default or 0.5) / 2 if one.facts.lt or one.facts.le else one.default + 1
    return one.default + 1 if isinstance(one.default, int) else "1"


def test_named_data_takes_the_settings_of_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["data.rows=5", "data.text=review"]
    assert compose("evaluate", ["run=x", "data.path=y.csv", *rows]).data.rows == 5
    assert compose("evaluate", ["run=x", "data.hub=imdb", *rows]).data.source == "hub"
    assert compose("evaluate", ["run=x", "data=demo", *rows]).data.source == "demo"
    assert compose("evaluate", ["run=x", "data.source=run"]).data.source == "run"
    assert compose("evaluate", ["run=x", "batch.tokens=99"]).batch.tokens == 99
    assert compose("train", ["data.rows=5", "output="]).data.rows == 5


def test_a_preset_of_the_hub_reads_a_local_copy_and_its_own_revision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compose("train", ["data=sick", "data.path=y.csv"]).data.revision == "refs/convert/parquet"
    assert compose("train", ["data=sick", "data.revision=main"]).data.revision == "main"
    assert compose("train", ["data.hub=glue", "data.hub_config=rte"]).data.hub_config == "rte"
    assert compose("train", ["data.path=y.csv", "data.revision="]).data.revision == ""
