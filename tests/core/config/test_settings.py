"""Random words either compose to valid settings or end in one sentence that names the key."""

import contextlib
import copy
import io
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.cli.errors import user_sentence
from manyheads.config import GuardConfig, RunConfig
from manyheads.config.conversion import from_plain, to_plain
from manyheads.config.facts import check_ranges, nearest, nearest_setting
from manyheads.config.facts import settings as all_settings
from manyheads.terminal import one_line

NAMES = [*all_settings(RunConfig), "data", "model", "optim", "hardware", "logger", "experiment", "debug"]
NAMES += ["trainer.max_epochs", "trainer.limit_val_batches", "trainer.devices", "trainer.nothing", "hydra.run.dir"]
SIGNS = st.text("+~@.=,:[]{}()'\"\\$/# -_abnx01", max_size=8)
VALUES = st.one_of(
    SIGNS,
    st.integers(-10, 10**6).map(str),
    st.floats().map(str),
    st.sampled_from(["true", "null", "none", "mean", "tiny", "cpu", "1,2", "range(1,3)", "{a: 1}", "[1]", "${x}"]),
    st.text(max_size=6),
)
WORDS = st.one_of(
    st.builds("{}={}".format, st.sampled_from(NAMES), VALUES),
    st.builds("{}{}={}".format, SIGNS, st.sampled_from(NAMES), VALUES),
    st.builds("{}={}".format, st.text(max_size=8), VALUES),
    st.text(max_size=12),
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(WORDS)
def test_any_word_composes_or_is_one_sentence_naming_it(word):
    check(word)


@pytest.mark.slow
@settings(deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
@given(WORDS)
def test_any_of_many_words_composes_or_is_one_sentence_naming_it(word):
    check(word)


def check(word: str) -> None:
    try:
        run = compose("train", [word])
    except ValueError as error:
        said = user_sentence(error)
        assert said is not None
        assert said.isprintable()
        assert one_line(word.lstrip("+~").partition("=")[0].strip())[:20] in said
        return
    check_ranges(run.model, "model.")
    assert from_plain(RunConfig, to_plain(run)) == run


@settings(deadline=None, max_examples=15)
@given(st.lists(WORDS, min_size=1, max_size=4))
def test_the_program_says_the_same(words):
    if any(word.startswith("-") for word in words):
        return
    called = []
    before, cli.call = cli.call, lambda verb, config: called.append(config)
    try:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            code = cli.main(["train", *words])
    finally:
        cli.call = before
    assert (code, len(called), stderr.getvalue().count("\n")) in ((0, 1, 0), (2, 0, 1))


@given(st.sampled_from(list(all_settings(RunConfig))))
def test_every_setting_is_nearest_to_itself(name):
    assert nearest(name, all_settings(RunConfig)) == name


def test_names_that_other_programs_use():
    for typed, ours in [("learning_rate", "optim.lr"), ("num_heads", "model.n_heads"), ("model.dk", "model.d_k")]:
        assert nearest_setting(typed, RunConfig) == ours
    assert nearest_setting("qqqqqqqq", RunConfig) is None


def test_sections_are_frozen_dataclasses():
    section = GuardConfig(at_most=3)
    assert (section, repr(section)) == (replace(GuardConfig(), at_most=3), repr(section))
    assert repr(section) == "GuardConfig(nonfinite=<Nonfinite.raise: 'raise'>, at_most=3, halve=True)"
    assert section != GuardConfig()
    assert copy.deepcopy(section) == pickle.loads(pickle.dumps(section)) == section
    with pytest.raises(TypeError, match="unexpected keyword argument 'most'"):
        GuardConfig(most=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(FrozenInstanceError):
        section.at_most = 4  # pyright: ignore[reportAttributeAccessIssue]
