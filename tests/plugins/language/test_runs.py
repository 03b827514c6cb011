"""Runs of other tasks that are trained again, or were stopped and go on: the same bits."""

import pytest

from tests.core.test_resume import check_segments, seen, train, whole, wholes  # noqa: F401  fixtures
from tests.core.test_runs import animals, train_again  # noqa: F401  a fixture


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("train", ["task=seq2seq", "data.text=text", "data.target=label"]),
        ("pretrain", ["budget=4ktok"]),
        ("pretrain", ["budget=2s"]),
    ],
)
def test_a_run_that_is_trained_again_ends_with_the_same_bits(verb, words, animals, tmp_path):  # noqa: F811
    train_again(verb, words, animals, tmp_path)


@pytest.mark.slow
def test_three_segments_are_one_run(train, whole, seen):  # noqa: F811
    """With texts that are answered by texts."""
    check_segments(["task=seq2seq", "data.text=text"], ("step:5", "validation:1"), train, whole, seen)
