"""Typed words, each checked alone."""

import re
import shlex

import pytest

import manyheads.plugin as plugin
from manyheads.cli.overrides import read_overrides
from manyheads.cli.verbs import VERBS, choices, schema_of, settings_of
from manyheads.config import RunConfig
from manyheads.config.facts import CALLED, settings, settings_where


def read(verb, *words, **more):
    return read_overrides(verb, words, **more)


def test_words_are_sorted_into_presets_and_values():
    typed = read("train", "model=mini", "model.n_heads=8", "model.pooling=max", "output=a,b ", "experiment=", "seed=3")
    assert typed.groups == {"model": "mini", "experiment": None}
    assert typed.values == {"model.n_heads": 8, "model.pooling": "max", "output": "a,b ", "seed": 3}
    assert typed.words == ["model=mini"], "what Hydra composes"
    assert not typed.later
    assert not typed.swept
    assert not typed.swept_groups


def test_a_sweep_keeps_every_value():
    typed = read("train", "model.n_heads=2,4,8", "model=mini,tiny", "output=a,b", "seed=interval(0, 1)", sweep=True)
    assert typed.values["model.n_heads"] == 2
    assert typed.later == [{"model.n_heads": 4}, {"model.n_heads": 8}, {"output": "b"}]
    assert typed.swept_groups == {"model": ["mini", "tiny"]}
    assert typed.swept == {"model.n_heads": None, "output": None, "seed": "interval(0, 1)"}
    assert read("train", "model=glob(x)", sweep=True).swept_groups["model"] == choices("train", "model")


def test_every_value_of_a_sweep_is_checked():
    with pytest.raises(ValueError, match=r"model\.n_heads=x has the wrong type"):
        read("train", "model.n_heads=2,x", sweep=True)
    with pytest.raises(ValueError, match="model=x is not a choice"):
        read("train", "model=mini,x", sweep=True)
    with pytest.raises(ValueError, match="holds several values"):
        read("train", "model.n_heads=2,4")


@pytest.mark.parametrize(
    ("flags", "refusal", "remedy"),
    [
        (["-m"], "", "give one, or add -m to run one after another"),
        (["-m"], "runs until it is ended", "give one"),
        ([], "", "give one"),
    ],
)
def test_what_helps_where_one_value_is_taken(flags, refusal, remedy, monkeypatch):
    """The flag is named where there is one that the verb takes."""
    monkeypatch.setattr(plugin, "flags", lambda: [plugin.Flag(name, "", "", "") for name in flags])
    monkeypatch.setitem(plugin.verbs(), "train", VERBS["train"]._replace(no_multirun=refusal))
    with pytest.raises(ValueError, match="holds several") as error:
        read("train", "seed=1,2")
    assert str(error.value) == f"seed=1,2 holds several values: {remedy}"


def test_what_is_taken_as_it_is_typed():
    taken = {name for verb in VERBS for name in settings_where(schema_of(verb), verbatim=True)}
    known = {name for verb in VERBS for name in settings(schema_of(verb))}  # some are of plugins
    assert taken == known & {
        "text",
        "again",
        "folder",
        "where",
        "require",
        "data.rename",
        "data.hierarchy",
        "data.parents",
        "init_from",
        "input",
        "run",
        "output",
        "storage",
        "message",
        "costs",
        "labelled",
        "tests",
        "data.path",
        "data.cache",
        "tokenizer.path",
        "tokenizer.prefix",
        "data.unlabelled",
        "data.descriptions",
        "teacher",
    }
    needed = [name for name in settings_where(RunConfig, may_be_empty=False) if not name.startswith("logger.")]
    assert needed == ["init_from", "data.path", "data.hub"]  # those of loggers are of plugins


def test_own_presets_are_choices(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("")
    assert read("train", "model=mine", config_dir=tmp_path).groups == {"model": "mine"}
    with pytest.raises(ValueError, match="model=mine is not a choice"):
        read("train", "model=mine")


def test_a_file_in_place_of_a_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match=r"^a\.csv has no value: for local files write data\.path=a\.csv$"):
        read("train", "a.csv")
    with pytest.raises(ValueError, match=r"data=a\.csv is not a choice: for local files write data\.path=a\.csv"):
        read("train", "data=a.csv")


def test_a_word_alone_that_is_a_file_is_told_by_what_the_verb_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text,label\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    (tmp_path / "run" / "model").mkdir()
    (tmp_path / "run" / "model" / "config.json").write_text("")
    for verb, word, remedy in (one for one in (
        ("train", "a.csv", "for local files write data.path=a.csv"),
        ("evaluate", "a.csv", "for local files write data.path=a.csv"),
        ("predict", "a.csv", "for a file of texts write input=a.csv"),
        ("look", "a.csv", "for a file of texts write input=a.csv"),
        ("export", "a.csv", "write KEY=VALUE; `manyheads export --help` lists every setting"),
        *((verb, "run", "for a run write run=run") for verb in ("evaluate", "predict", "look", "serve", "push")),
        ("export", "run", "for a run write run=run"),
        ("train", "run", "to train this run once more write again=run, to continue it resume=run"),
        *(("train", f"run/{one}", "to train this run once more write again=run, to continue it resume=run")
          for one in ("model", "model/")),
        ("export", "run/model", "for a run write run=run/model"),
    ) if one[0] in VERBS):  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{word} has no value: {re.escape(remedy)}$"):
            read(verb, word)


@pytest.mark.parametrize(
    ("line", "word", "remedy"),
    [
        ("runs a b", "a", "for these runs write runs=[a,b]"),
        ("predict run=a 'worth every minute'", "worth every minute", "for a text write 'text=worth every minute'"),
        ("predict run=a text=my card", "card", "for a text with spaces write 'text=my card'"),
        ("look text=my card is lost run=a", "card", "for a text with spaces write 'text=my card is lost'"),
        ("predict my card", "my", "for a text write 'text=my card'"),
        ("train data.label=my label seed=1", "label", "for a text with spaces write 'data.label=my label'"),
        ("serve run=my run", "run", "write run=VALUE"),
        ("evaluate run=outputs/my last", "last", "for a text with spaces write 'run=outputs/my last'"),
        ("evaluate outputs/gone", "outputs/gone", "for a run write run=outputs/gone"),
        ("predict run=a gone.txt", "gone.txt", "for a file of texts write input=gone.txt"),
        ("pretrain gone.txt", "gone.txt", "for local files write data.path=gone.txt"),
        ("train dry", "dry", "write dry=true"),
        ("train seed", "seed", "write seed=VALUE"),
        ("train trainer.max_time", "trainer.max_time", "write trainer.max_time=VALUE"),
        ("train debug", "debug", "write debug=NAME, and choose fast or overfit"),
        ("train epochs", "epochs", "write trainer.max_epochs=VALUE; `manyheads train --help` lists every setting"),
    ],
)
def test_a_word_alone_is_answered_with_what_to_type(line, word, remedy):
    verb, *words = shlex.split(line)
    if verb not in VERBS:
        pytest.skip(f"no plugin adds {verb}")
    with pytest.raises(ValueError, match=rf"^{re.escape(f'{word} has no value: {remedy}')}$"):
        read(verb, *words)


def test_a_sign_of_equality_in_a_text_that_the_shell_has_cut(tmp_path):
    with pytest.raises(ValueError, match=r"^2=4 is not a setting: for a text with spaces write 'text=is 2=4 so'$"):
        read("predict", "run=a", "text=is", "2=4", "so")


def test_paths_of_jobs_that_hold_a_sign_of_equality_are_told_as_paths(tmp_path, monkeypatch):
    """As -m names their folders."""
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "sweep/model.n_heads=2,seed=0"
    job.mkdir(parents=True)
    (job / "config.yaml").touch()
    with pytest.raises(ValueError, match=r"seed=0 is not a setting: for a run write run=sweep/model.n_heads=2,seed=0$"):
        read("evaluate", "sweep/model.n_heads=2,seed=0")
    with pytest.raises(ValueError, match=r"^model/n_heads=2 is not a setting: did you mean model.n_heads\?$"):
        read("train", "model/n_heads=2")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("text=review", "data.text"),  # a setting of predict, which has no sections
        ("label=stars", "data.label"),
        ("per_device_train_batch_size=8", "batch.rows"),
        ("model_name_or_path=x", "init_from"),
        ("early_stop=3", "checkpoint.patience"),
        ("pretrainedVectors=x.vec", "init_from"),
        ("text_column=review", "data.text"),
        ("label_column=stars", "data.label"),
        ("val_size=0.2", "data.validation_share"),
        ("random_state=3", "seed"),
        ("device=cuda", "hardware.accelerator"),
        ("per-device-eval-batch-size=8", "batch.tokens"),
    ],
)
def test_settings_without_their_section_and_those_of_other_programs_are_understood(typed, meant):
    with pytest.raises(ValueError, match=rf"^{typed} is not a setting: did you mean {meant}\?$"):
        read("train", typed)


@pytest.mark.parametrize(
    ("verb", "typed", "said"),
    [
        ("train", "data.delimiter=;", "is not a setting: the separator of a file is recognised, remove it"),
        ("train", "eval_batch=8", "is not a setting: `manyheads train --help` lists every setting"),
        ("predict", "threshold=0.5", "is not a setting: `manyheads predict --help` lists every setting"),
        ("predict", "lr=1", "is not a setting: optim.lr is one of train, not of predict, remove it"),
        ("predict", "learning_rate=1", "is not a setting: optim.lr is one of train, not of predict, remove it"),
        ("predict", "data.path=new.csv", r"is not a setting: did you mean input\?"),
        ("evaluate", "input=new.csv", r"is not a setting: did you mean data\.path\?"),
        ("evaluate", "num_labels=3", "is not a setting: classes are those of the training rows, remove it"),
    ],
)
def test_a_name_that_nothing_is_like_gets_no_suggestion(verb, typed, said):
    with pytest.raises(ValueError, match=f"^{re.escape(typed)} ({said})$"):
        read(verb, typed)


def test_names_of_other_programs_lead_to_settings():
    known = {name for verb, about in VERBS.items() for name in (*settings_of(verb), *about.groups)}
    known |= {f"trainer.{flag}" for flag in settings_of("train")["trainer"].default}
    assert set(CALLED) <= known
