"""Facts of a setting: on its field, or on the section around it."""

from dataclasses import dataclass
from typing import get_args, get_type_hints

import pytest

import manyheads.plugin as plugin
from manyheads.cli.verbs import VERBS, schema_of
from manyheads.config import RunConfig
from manyheads.config.facts import Facts, setting, settings, settings_where

NEEDS = {None, "", "attention", "folds", "heads", "hub", "training", "transformer", "windows"}


@pytest.mark.parametrize("verb", VERBS)
def test_facts_are_of_the_words_there_are(verb):
    schema = schema_of(verb)
    words = {name: {None, *get_args(get_args(get_type_hints(Facts)[name])[0])} for name in ("resume", "weights")}
    for name, one in settings(schema).items():
        assert one.facts.needs in NEEDS, name
        assert set(one.facts.tasks or ()) <= set(plugin.names("task")), name
        assert one.facts.null is None or one.facts.null in settings(RunConfig), name
        assert one.facts.resume in words["resume"], name
        assert one.facts.weights in words["weights"], name


def test_what_a_field_leaves_open_is_as_its_section_says():
    @dataclass
    class Inner:
        a: int = setting(1, "one")
        b: int = setting(2, "two", needs="", resume="free", ge=0)

    @dataclass
    class Outer:
        inner: Inner = setting(Inner, "both", needs="hub", resume="refuse", path=True)
        c: str = setting("", "three")

    found = settings(Outer)
    assert [(one.facts.needs, one.facts.resume) for one in found.values()] == [
        ("hub", "refuse"), ("", "free"), (None, None)
    ]  # fmt: skip
    assert settings_where(Outer, resume="refuse") == ("inner.a",)
    assert settings_where(Outer, path=True) == (), "a section has no value that could be a path"
    assert found["inner.b"].facts.limits() == ["at least 0"]
    assert not found["inner.b"].facts.allows(-1)


def test_a_fact_of_no_such_name_is_an_error():
    with pytest.raises(TypeError, match="resumed"):
        setting(1, "one", resumed="free")


def test_weights_hold_the_shape_but_nothing_of_the_task():
    fixed = settings_where(RunConfig, weights="fixed")
    assert {"model.n_heads", "model.d_k", "model.norm_eps", "model.positions"} <= {*fixed}
    assert {*settings(RunConfig)} >= {*fixed}
    assert settings_where(RunConfig, weights="default") == ("model.pooling", "model.pooler", "model.matches")
    assert settings_where(RunConfig, weights="unused") == (
        "tokenizer.kind",
        "tokenizer.vocab_size",
        "tokenizer.lowercase",
    )
