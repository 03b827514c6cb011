"""YAML of strangers is plain values or one sentence; what is written is read back equal."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manyheads.config import RunConfig
from manyheads.config.fields import held, to_plain
from manyheads.runs.config_file import REMOVED, as_yaml, read_mapping, read_run, read_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


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


def test_a_file_that_is_no_configuration_is_not_read(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ValueError, match="is larger than any configuration"):
        read_yaml(file)


def test_a_typed_mapping():
    assert read_mapping("{'a b': 1, 2: x}") == {"a b": 1, 2: "x"}
    for text in ("a: 1", "{a: *b}", "{", "{a: !!python/name:os.getcwd }", "{" * 5000, "{a: " + "9" * 5000 + "}"):
        assert read_mapping(text) is None


def test_dates_of_the_writer_are_pyyamls_own():
    assert yaml.safe_load(as_yaml({"a": "2020-01-01"})) == {"a": "2020-01-01"}


@pytest.mark.parametrize("changed", [{}, {"optim.kind": "muon"}, {"teacher": "/a"}, {"pretrain.before": "1h"}])
def test_a_run_with_removed_settings_is_read(changed, tmp_path):
    """To be evaluated; where one of them had another value than the default the run does not go on."""
    plain = to_plain(RunConfig())
    for name, value in (REMOVED | changed).items():
        section, key = held(plain, name)
        section[key] = value
    (tmp_path / "config.yaml").write_text(as_yaml(plain), encoding="utf-8")
    assert read_run(tmp_path) == RunConfig()
    if not changed:
        assert read_run(tmp_path, goes_on=True) == RunConfig()
        return
    ((name, value),) = changed.items()
    with pytest.raises(ValueError, match=rf"config\.yaml: {name}={value} was removed, so this run cannot go on"):
        read_run(tmp_path, goes_on=True)
