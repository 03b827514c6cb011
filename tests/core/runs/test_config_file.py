"""YAML of strangers is plain values or one sentence; what is written is read back equal."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manyheads.config import RunConfig
from manyheads.runs.config_file import as_yaml, plain_yaml, read_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def yaml_plain(name: str) -> bool:
    """Whether YAML takes the name without quotes, within brackets too."""
    try:
        nodes = [yaml.compose(text) for text in (f"{{{name}: 2}}", f"[{name}]", f"a: {name}")]
    except yaml.YAMLError:
        return False
    found = [nodes[0].value[0][0], nodes[1].value[0], nodes[2].value[0][1]]
    return all(isinstance(one, yaml.ScalarNode) and (one.value, one.style) == (name, None) for one in found)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_there_and_back(tmp_path_factory, plain):
    file = tmp_path_factory.mktemp("yaml") / "config.yaml"
    file.write_text(as_yaml(plain), encoding="utf-8")
    assert read_yaml(file) == plain


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"!!python/object/apply:os.getcwd []", "could not determine a constructor"),
        (b"a: &x [1]\nb: *x", "it holds an alias"),
        (b"\xff", "can't decode byte"),
        (b"[" * 5000, "RecursionError"),
        (b"x: " + b"9" * 5000, "Exceeds the limit"),
    ],
)
def test_what_is_not_plain_is_one_sentence(content, said, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as plain YAML") as error:
        read_yaml(file)
    assert said in str(error.value) or "recursion" in str(error.value)
    assert "\n" not in str(error.value)


NAMES = ["no", "on", "y", "Off", "TRUE", "null", "~", "010", "0x1F", "1e3", "1_000", "12:30", "2024-01-01", "=", "<<"]
NAMES += [".inf", "-1", "1.0", "a: b", "it's", '"quoted"', "#", "- a", "é", "标签", "a b ", "", "*a", "&a", "!a", "{a"]


def test_what_was_read_of_a_text_may_be_changed():
    """It is read once, whoever asks."""
    first = plain_yaml("model: {windows: [1, 2]}")
    first["model"]["windows"].append(3)
    assert plain_yaml("model: {windows: [1, 2]}") == {"model": {"windows": [1, 2]}}


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back_as_they_are_written_whoever_reads_the_file(name):
    plain = {"names": {name: 2}, "data": {"label": name}, "also": [name, 1, True, None, 0.5, 1e-5]}
    text = as_yaml(plain)
    assert plain_yaml(text) == plain
    assert yaml.safe_load(text) == plain, "YAML 1.1, as PyYAML reads it"


@pytest.mark.parametrize("name", [one for one in NAMES if one and one not in ("~", "null", "<<") and yaml_plain(one)])
def test_names_need_no_quotes(name):
    """Keys, and settings that are texts or lists of texts; other values are numbers and constants."""
    text = f"optim: {{class_weights: {{{name}: 2}}}}\ndata:\n  label: {name}\nmodel:\n  scores: [{name}]\n"
    read = plain_yaml(text, RunConfig)
    assert read["optim"]["class_weights"] == {name: 2}
    assert (read["data"]["label"], read["model"]["scores"]) == (name, [name])


def test_numbers_are_read_as_they_are_typed():
    text = "[010, 1_000, 1e-3, 4., .5, -2, 12:30, 2024-01-01, no, true, null, ~, '1']"
    expected = [10, 1000, 1e-3, 4.0, 0.5, -2, "12:30", "2024-01-01", "no", True, None, None, "1"]
    assert plain_yaml(text) == expected
    assert plain_yaml("data: {label: null}", RunConfig) == {"data": {"label": None}}, "which is refused, as it is typed"


def test_dates_of_the_writer_are_pyyamls_own():
    assert yaml.safe_load(as_yaml({"a": "2020-01-01"})) == {"a": "2020-01-01"}
