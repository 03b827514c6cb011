"""config.json and labels.json: written and read back, and every hostile variation refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyheads.config import ModelConfig, Placement
from manyheads.inference.format import ColumnNames, Settings, read_labels, read_settings, write_settings
from manyheads.runs.files import read_json

GOOD = Settings(
    vocab_size=15,
    n_classes=3,
    max_length=12,
    pairs=True,
    columns=ColumnNames(text="sentence", text_pair="other", label="class", preset=True),
    model=ModelConfig(positions="rotary", placement=Placement.both, dropout_residual=0.25, bias=False),
)


def written(folder: Path, content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, write_settings(GOOD))) == GOOD
    assert json.loads(write_settings(GOOD))["model"]["positions"] == "rotary"


def test_texts_that_are_read_apart_come_in_pairs(tmp_path: Path) -> None:
    content = json.loads(write_settings(GOOD))
    content["model"]["pair"] = "cross"
    assert read_settings(written(tmp_path, content)).pairs
    content["pairs"] = False
    with pytest.raises(ValueError, match=r"model.pair=cross compares two texts, but pairs is false"):
        read_settings(written(tmp_path, content))


def test_a_knob_of_a_later_version_keeps_its_default(tmp_path: Path) -> None:
    content = json.loads(write_settings(GOOD))
    del content["model"]["dropout_tokens"]
    assert read_settings(written(tmp_path, content)).model.dropout_tokens == ModelConfig().dropout_tokens


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", 2, "format=2 is out of range"),
        ("vocab_size", 0, "vocab_size=0 is out of range"),
        ("vocab_size", "many", "vocab_size=many has the wrong type"),
        ("n_classes", True, "n_classes=true has the wrong type"),
        ("max_length", 2**40, "max_length=1099511627776 is out of range"),
        ("pairs", 1, "pairs=1 has the wrong type"),
        ("columns", [], r"columns=\[\] is not a section"),
        ("columns.text", 3, "columns.text=3 has the wrong type"),
        ("model", None, "model=null is not a section"),
        ("model.n_heads", "four", "model.n_heads=four has the wrong type"),
        ("model.n_heads", 1.5, "model.n_heads=1.5 has the wrong type"),
        ("model.n_headz", 4, "model.n_headz=4 is not a setting: did you mean model.n_heads?"),
        ("model.d_k", 33, "model.d_k=33 is odd"),
        ("model.positions", "left", "model.positions=left is not a choice"),
        ("model.dropout", float("nan"), "model.dropout=nan has the wrong type"),
        ("model._target_", "os.system", "model._target_=os.system names code to call"),
        ("_target_", "os.system", "_target_=os.system names code to call"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, path: str, value: Any, words: str) -> None:
    content = json.loads(write_settings(GOOD))
    *sections, key = path.split(".")
    place = content
    for section in sections:
        place = place[section]
    place[key] = value
    file = written(tmp_path, content)
    with pytest.raises(ValueError, match=words) as caught:
        read_settings(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("1" * 5_000, "is not valid JSON"),
        ('{"a": 1, "a": 2}', "a key is given twice"),
        ("[]", "lacks format, vocab_size"),
        ("{}", "it is not the config.json of a manyheads model"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_settings(written(tmp_path, content))


def test_bytes_that_are_no_text_and_files_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="is not valid JSON"):
        read_settings(path)
    with path.open("wb") as file:
        file.truncate(2**29)  # sparse: it takes no room
    with pytest.raises(ValueError, match="is larger than 256 MiB"):
        read_json(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*json.loads(write_settings(GOOD)), "model.d_ff", "model.norm", "columns.label"]), JSON)
def test_any_json_anywhere_is_read_or_refused(tmp_path: Path, path: str, value: Any) -> None:
    content = json.loads(write_settings(GOOD))
    section, _, key = path.rpartition(".")
    (content[section] if section else content)[key] = value
    said = ""
    try:
        read_settings(written(tmp_path, content))
    except ValueError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"a": 1}, "must be a list of class names"),
        (["a", "b", 3], "must be a list of class names"),
        (["a", "b", "\ud800"], "has a class name with half of a surrogate pair"),
        (["a", "b"], "names 2 classes, but config.json has 3"),
        (["a", "b", "a"], "names the class 'a' 2 times"),
    ],
)
def test_labels_must_be_names_one_a_class(tmp_path: Path, labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_labels(written(tmp_path, labels), GOOD)
