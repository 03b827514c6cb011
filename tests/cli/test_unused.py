"""Typed settings that would change nothing are said, and empty ones that would mean something else."""

import pytest

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config import Source

OWN = (
    "does nothing here, where evaluate reads the run's own data as training read it: name other data by data.path=, "
    "data.hub= or data=<preset>, or remove it"
)
LINES = [
    ("evaluate run=x data.rows=5", f"data.rows=5 {OWN}"),
    ("evaluate run=x data.on_bad_row=drop", f"data.on_bad_row=drop {OWN}"),
    ("evaluate run=x data=run data.text=review", f"data.text=review {OWN}"),
    ("evaluate -m run=x data.rows=5,6", f"data.rows=5 {OWN}"),
    (
        "evaluate run=x data.path=y.csv data.max_length=64",
        "data.max_length=64 does nothing in evaluate, where texts are cut as the model was trained to: remove it",
    ),
    ("evaluate run=x data.cache=c", "data.cache=c does nothing in evaluate, where nothing is cached: remove it"),
    (
        "evaluate run=x data=demo data.test_share=0.5",
        "data.test_share=0.5 does nothing in evaluate, where no split is carved out: remove it",
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
    ("train task=seq2seq data=dates data.label=x", "data.label=x does nothing with task=seq2seq: remove it"),
    ("train experiment=dates data.text_pair=x", "data.text_pair=x does nothing with task=seq2seq: remove it"),
    ("train experiment=dates model.pooling=max", "model.pooling=max does nothing with task=seq2seq: remove it"),
    ("train experiment=dates model.pair=cross", "model.pair=cross does nothing with task=seq2seq: remove it"),
    (
        "train experiment=dates model.segments=always",
        "model.segments=always does nothing with task=seq2seq: remove it",
    ),
    ("train model=rnn_attention model.n_heads=8", "model.n_heads=8 does nothing with model.encoder=gru: remove it"),
    (
        "train model.encoder=lstm model.placement=post",
        "model.placement=post does nothing with model.encoder=lstm: remove it",
    ),
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
        "pretrain data.long=both",
        "data.long=both does nothing in pretrain, where all of a long text is read, in pieces: remove it",
    ),
    (
        "pretrain linear=false",
        "linear=false does nothing in pretrain, where only hidden words are predicted: remove it",
    ),
    ("train experiment=dates linear=true", "linear=true does nothing with task=seq2seq: remove it"),
    (
        "train experiment=dates data.long=windows",
        "data.long=windows does nothing with task=seq2seq: remove it",
    ),
    ("train data.path=", "data.path= is empty: write data.path=VALUE, or remove it"),
    ("train data.hub=", "data.hub= is empty: write data.hub=VALUE, or remove it"),
    ("train -m data.path= seed=1,2", "data.path= is empty: write data.path=VALUE, or remove it"),
    ("evaluate run=x data.path=", "data.path= is empty: write data.path=VALUE, or remove it"),
    ("predict run=x text=", "text= is empty: write text=VALUE, or remove it"),
    ("predict run=x input=", "input= is empty: write input=VALUE, or remove it"),
    ("predict run= text=a", "run is empty: name the run that predicts, for example run=outputs/my-run"),
]


@pytest.mark.parametrize(("line", "sentence"), LINES, ids=[line for line, _ in LINES])
def test_a_setting_that_does_nothing_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert capsys.readouterr().err == f"{sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_named_data_takes_the_settings_of_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["data.rows=5", "data.text=review"]
    assert compose("evaluate", ["run=x", "data.path=y.csv", *rows]).data.rows == 5
    assert compose("evaluate", ["run=x", "data.hub=imdb", *rows]).data.source is Source.hub
    assert compose("evaluate", ["run=x", "data=demo", *rows]).data.source is Source.demo
    assert compose("evaluate", ["run=x", "data.source=run"]).data.source is Source.run
    assert compose("evaluate", ["run=x", "batch.tokens=99"]).batch.tokens == 99
    assert compose("train", ["data.rows=5", "output="]).data.rows == 5


def test_a_preset_of_the_hub_reads_a_local_copy_and_its_own_revision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compose("train", ["data=sick", "data.path=y.csv"]).data.revision == "refs/convert/parquet"
    assert compose("train", ["data=sick", "data.revision=main"]).data.revision == "main"
    assert compose("train", ["data.hub=glue", "data.hub_config=rte"]).data.hub_config == "rte"
    assert compose("train", ["data.path=y.csv", "data.revision="]).data.revision == ""
