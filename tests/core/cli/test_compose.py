"""Words in, checked dataclass out; and the way to config.yaml and back."""

import copy
import os
import shutil

import pytest
from hydra.core.override_parser.types import Quote, QuotedString
from hypothesis import example, given
from hypothesis import strategies as st

from manyheads.cli import grammar, verbs
from manyheads.cli import presets as in_presets
from manyheads.cli.compose import compose
from manyheads.cli.grammar import parse
from manyheads.config import DataConfig, ModelConfig, OptimConfig, RunConfig
from manyheads.errors import UserError
from manyheads.runs.config_file import preset_yaml, read_run, save_run

TINY = ModelConfig(matches=True)  # what train takes by default


def test_no_words_are_the_defaults():
    assert compose("train") == compose("train", ["model=tiny"]) == RunConfig(model=TINY)


def test_typed_words_win_over_presets():
    run = compose("train", ["model=mini", "model.n_heads=6", "optim.lr=3e-4", "model.pooling=max", "test=false"])
    assert (run.model.n_layers, run.model.n_heads, run.optim.lr) == (4, 6, 3e-4)
    assert run.model.pooling == "max"
    assert run.test is False


def test_what_is_no_verb_and_no_list_of_words_is_refused():
    with pytest.raises(ValueError, match=r"^trian is not a verb: did you mean train\?$"):
        compose("trian")
    with pytest.raises(ValueError, match=r"^overrides is a single str: put it in a list"):
        compose("train", "data.path=rows.csv")
    for overrides in ({"data.path": "rows.csv"}, ["data.path=rows.csv", 3]):
        with pytest.raises(UserError, match=r"^overrides=.* must be a list of texts: write each setting as"):
            compose("train", overrides)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_numbers_may_be_written_in_any_way():
    run = compose("train", ["batch.tokens=1e4", "optim.lr=1", "model.dropout_residual=null", "trainer.max_steps=1e3"])
    assert (run.batch.tokens, run.optim.lr, run.model.dropout_residual) == (10_000, 1.0, None)
    assert type(run.batch.tokens) is type(run.trainer["max_steps"]) is int
    assert type(run.optim.lr) is float


def as_hydra_reads(text):
    try:
        return repr(parse(text))
    except ValueError as error:
        return str(error)


@given(st.text("0123456789+-._eE", max_size=8) | st.from_regex(r"[a-zA-Z_]\w{0,5}\n?", fullmatch=True))
@example("1_000")
@example("007")
@example("-0")
@example("TRUE")
@example("Null")
@example("nan")
@example("-inf")
@example("1.")
@example("1e")
@example("a,b")
def test_plain_words_are_read_as_hydra_reads_them(text):
    try:
        ours = repr(grammar.read(text))
    except ValueError as error:
        ours = str(error)
    assert ours == as_hydra_reads(text)


@given(st.text("a'\\\" \n"))
def test_texts_are_quoted_as_hydra_quotes_them(text):
    assert grammar.quote(text) == QuotedString(text, Quote.single).with_quotes()


@pytest.mark.parametrize(
    ("words", "source"),
    [
        (["data.path=x.csv"], "files"),
        (["data.hub=imdb"], "hub"),
        (["data.hub=imdb", "data.path=x.csv"], "files"),
        (["data.path=x.csv", "experiment=demo_no_positions"], "files"),
        (["data=hub", "data.path=x.csv"], "hub"),
        (["data.cache="], "demo"),
    ],
)
def test_a_path_or_a_hub_id_alone_is_enough(words, source):
    assert compose("train", words).data.source == source


def test_evaluate_reads_the_data_of_the_run_unless_told():
    assert compose("evaluate", ["run=x"]).data.source == "run"
    assert compose("evaluate", ["run=x", "data.path=y.csv"]).data.source == "files"


@pytest.mark.parametrize(
    "text", ["it's", 'a "b" c', "a,b", "x=y", "# no", "{a: 1}", "${HOME}", " a ", "null", "né 标签"]
)
def test_texts_and_paths_are_taken_as_they_are(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = compose("predict", [f"text={text}", f"run={text}", f"input={text}"])
    assert config.text == text
    assert config.run == config.input == str(tmp_path / text)


def test_paths_are_resolved_and_dashes_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = compose("train", ["data.path=~/a.csv", "output=out/../b", "tokenizer.path=t.json", "data.cache="])
    assert (run.data.path, run.output, run.tokenizer.path, run.data.cache) == (
        str(tmp_path / "a.csv"),
        str(tmp_path / "b"),
        str(tmp_path / "t.json"),
        "",
    )
    assert compose("predict", ["run=x", "output=-"]).output == "-"


def test_names_of_columns_need_no_quotes_but_may_have_them():
    run = compose("train", ["data.text=my text, all", "data.label='标签'", 'data.text_pair="a=b"'])
    assert (run.data.text, run.data.label, run.data.text_pair) == ("my text, all", "标签", "a=b")


@pytest.mark.parametrize(
    ("typed", "weights"),
    [
        ("balanced", "balanced"),
        ("{joy: 2, anger: 1.5}", {"joy": 2, "anger": 1.5}),
        ("{0: 1, 1: 2.5}", {"0": 1, "1": 2.5}),
        ("{'don''t know': 2, 快乐: 1}", {"don't know": 2, "快乐": 1}),
        ('{"yes please": 2, no: 1}', {"yes please": 2, "no": 1}),
        ('{010: 2, "a b": 1}', {"010": 2, "a b": 1}),
        (
            "{1e3: 1, 1_000: 2, 12:30: 3, null: 4, ~: 5, on: 6, y: 7, True: 8, true: 9}",
            dict(zip(["1e3", "1_000", "12:30", "null", "~", "on", "y", "True", "true"], range(1, 10), strict=True)),
        ),
        ("{12:30:2,a:b:1,joy:3}", {"12:30": 2, "a:b": 1, "joy": 3}),
        ("{it's: 1, 'is''t': 2, 'a\\'b': 3, \"a, \\u00e9\": 4}", {"it's": 1, "is't": 2, "a'b": 3, "a, é": 4}),
    ],
)
def test_class_weights(typed, weights):
    run = compose("train", [f"optim.class_weights={typed}"])
    assert run.optim.class_weights == weights
    assert type(run.optim.class_weights) in (str, dict)


@pytest.mark.parametrize(
    "typed", ["{a: 1, a: 2}", "{a: 1", "{a}", "{a: }", "{: 1}", "{a: 1}}", "{'a: 1}", "[", "{" * 5000, "{a: 1}, "]
)
def test_a_mapping_that_cannot_be_read_is_one_sentence(typed):
    with pytest.raises(ValueError, match=r"^optim\.class_weights=.* cannot be read: close its quotes and brackets, or"):
        compose("train", [f"optim.class_weights={typed}"])


NAMED = "{no: 1, 010: 2, 1e3: 3, 12:30: 4, null: 5, ~: 6, 'a b': 7, 2024-01-01: 8, y: 9}"
NAMES = {"no": 1, "010": 2, "1e3": 3, "12:30": 4, "null": 5, "~": 6, "a b": 7, "2024-01-01": 8, "y": 9}


@pytest.mark.parametrize(
    ("preset", "content"),
    [
        ("optim", f"class_weights: {NAMED}"),
        ("experiment", f"# @package _global_\noptim:\n  class_weights: {NAMED}\n"),
        ("data", f"# @package _global_\noptim:\n  class_weights: {NAMED}\n"),
    ],
)
@pytest.mark.parametrize("mine", [True, False])
def test_names_in_presets_and_in_a_file_of_a_run(preset, content, mine, tmp_path, monkeypatch):
    """In one's own folder, which Hydra composes, and among those of the package."""
    folder = tmp_path / "conf"
    shutil.copytree(verbs.conf_folder(), folder)
    (folder / preset / "mine.yaml").write_text(content, encoding="utf-8")
    if not mine:
        monkeypatch.setattr("manyheads.cli.verbs.conf_folder", lambda: folder)
        in_presets._package_values.cache_clear()
    run = compose("train", [f"{preset}=mine"], config_dir=str(folder) if mine else None)
    in_presets._package_values.cache_clear()
    assert run.optim.class_weights == NAMES
    save_run(run, tmp_path / "config.yaml")
    assert read_run(tmp_path) == run
    assert compose("train", [f"resume={tmp_path}"]).optim.class_weights == NAMES
    (tmp_path / "config.yaml").write_text(f"optim:\n  class_weights: {NAMED}\n", encoding="utf-8")
    assert read_run(tmp_path).optim.class_weights == NAMES


@pytest.mark.parametrize("name", ["no", "010", "1e3", "12:30", "2024-01-01", "y", "true", "~x", "0x1F"])
def test_names_of_columns_in_presets_are_texts(name, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"label: {name}\ntext_pair: {name}\nsource: demo\n")
    assert preset_yaml(file, RunConfig, "data.") == {"label": name, "text_pair": name, "source": "demo"}
    file.write_text(f"# @package _global_\ndata: {{text: {name}}}\n")
    assert preset_yaml(file, RunConfig, "") == {"data": {"text": name}}


def test_columns_in_presets(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text("label: 010\ntext_pair: 12:30\nsource: demo\n")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ndata: {text: no}\n")
    run = compose("train", ["experiment=mine", "data=mine"], config_dir=str(tmp_path))
    assert (run.data.label, run.data.text, run.data.text_pair) == ("010", "no", "12:30")


def test_null_is_no_column_but_in_quotes_a_name(tmp_path):
    (tmp_path / "data").mkdir()
    for word, content in (("data.label=null", "label: null"), ("data.label=", "label:")):
        (tmp_path / "data" / "mine.yaml").write_text(f"{content}\nsource: demo\n")
        with pytest.raises(ValueError, match=r"data\.label"):
            compose("train", ["data=mine"], config_dir=str(tmp_path))
        assert word
    with pytest.raises(ValueError, match=r"data\.label=null is not text"):
        compose("train", ["data.label=null"])
    assert compose("train", ["data.label='null'"]).data.label == "null"


@pytest.mark.verb("serve")
def test_lists_of_names_that_are_typed():
    assert compose("serve", ["run=x", "names=[010, 1e3, no, null, 'a,b', host\\,2]"]).names == [
        *("010", "1e3", "no", "null", "a,b", "host,2")
    ]


def test_hardware_presets():
    assert compose("train", ["hardware=ddp"]).hardware.devices == 0
    assert compose("evaluate", ["run=x", "hardware=ddp"]).hardware.devices == 0
    assert compose("predict", ["run=x", "hardware=ddp", "hardware.devices=3"]).hardware.devices == 3
    assert compose("train", ["hardware=ddp", "hardware.devices=2"]).hardware.devices == 2


def test_other_flags_of_the_trainer():
    run = compose(
        "train", ["trainer.limit_val_batches=0.5", "trainer.detect_anomaly=true", "trainer.max_time=00:01:00:00"]
    )
    expected = {"limit_val_batches": 0.5, "detect_anomaly": True, "max_time": "00:01:00:00"}
    assert run.trainer == RunConfig().trainer | expected


@pytest.mark.parametrize("word", ["experiment=", "experiment=null", "debug=null"])
def test_an_optional_preset_may_be_none(word):
    assert compose("train", [word]) == RunConfig(model=TINY)


def test_inside_another_hydra_application(tmp_path):
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    (tmp_path / "theirs.yaml").write_text("a: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.2"):
        theirs = GlobalHydra.instance().hydra
        assert compose("train", ["seed=3"]).seed == 3
        with pytest.raises(ValueError, match=r"seed=-3"):
            compose("train", ["seed=-3"])
        assert GlobalHydra.instance().hydra is theirs
        assert hydra.version.getbase().minor == 2
        assert hydra.compose("theirs") == {"a": 1}
    assert not GlobalHydra.instance().is_initialized()


def test_composing_changes_nothing_outside(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    compose("train", ["debug=fast"])
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


def test_config_yaml_there_and_back(tmp_path):
    run = compose(
        "train", ["debug=overfit", "data.path=a ${b}.csv", "optim.class_weights={yes: 1, 2: 3}", "optim.eps=1e-12"]
    )
    kept = copy.deepcopy(run)
    save_run(run, tmp_path / "config.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert read_run(tmp_path / "config.yaml") == read_run(tmp_path) == run == kept
    assert "_target_" not in (tmp_path / "config.yaml").read_text()


@example("\x85", "\u2028", 1.0, {"\x85": 1.0})
@given(st.text(), st.text(), st.floats(1e-300, 1e300), st.dictionaries(st.text(), st.floats(1e-9, 1e9), max_size=3))
def test_any_text_and_number_survives_config_yaml(tmp_path_factory, path, column, lr, weights):
    if "${" in column or "_target_" in weights or "\0" in path + column + "".join(weights):
        return
    data, optim = DataConfig(path=path, text=column), OptimConfig(lr=lr, class_weights=weights)
    run = RunConfig(data=data, optim=optim)
    file = tmp_path_factory.mktemp("run") / "config.yaml"
    save_run(run, file)
    assert read_run(file) == run


STRANGE = [  # a config.yaml from anywhere, and what is said about it
    ("seed: 1\nmodel: {n_haeds: 4}", "model.n_haeds=4 is not a setting: did you mean model.n_heads?"),
    ("model: {n_heads: four}", "model.n_heads=four has the wrong type"),
    ("model: {n_heads: true}", "model.n_heads=true has the wrong type"),
    ("model: 3", "model=3 is not a section"),
    ("model: {_target_: os.getcwd}", "model._target_=os.getcwd names code to call"),
    ("trainer: {logger: {_target_: os.getcwd}}", "names code to call"),
    ("optim: {class_weights: {_target_: os.getcwd}}", "names code to call"),
    ("data: {label: '${oc.env:HOME}'}", "holds an interpolation"),
    ("trainer: {devices: 2}", "trainer.devices=2: this flag is decided elsewhere"),
    ("trainer: {max_epochs: many}", "trainer.max_epochs=many has the wrong type"),
    ("!!python/object/apply:os.getcwd []", "cannot be read as plain YAML"),
    ("a: &a [1]\nb: *a", "alias"),
    ("[" * 5000, "cannot be read as plain YAML"),
    ("seed: [", "cannot be read as plain YAML"),
    ("- 1", "the configuration=[1] is not a section"),
    ("", "the configuration=null is not a section"),
    ("1: 2", "1=2 is not a setting"),
    ("seed: 2020-01-01", "seed=2020-01-01 has the wrong type"),
    ("#" * 1_100_000, "larger than any configuration"),
]


@pytest.mark.parametrize(("content", "said"), STRANGE, ids=range(len(STRANGE)))
def test_a_strangers_config_yaml(content, said, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"config\.yaml") as error:
        read_run(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_config_yaml(tmp_path):
    with pytest.raises(ValueError, match="does not exist: name a run folder"):
        read_run(tmp_path)
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        read_run(tmp_path)


@pytest.mark.parametrize("content", ["root:x:0:0 secret", "password: secret"])
def test_nothing_is_shown_of_a_file_that_a_config_links_to(tmp_path, content):
    (tmp_path / "theirs").write_text(content)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").symlink_to(tmp_path / "theirs")
    with pytest.raises(ValueError, match=r"config\.yaml is a link, which may lead to any file: put the file") as caught:
        read_run(tmp_path / "run")
    assert "secret" not in str(caught.value)
