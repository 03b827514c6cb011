"""Mistakes with answers that are texts end in one exact sentence, exit code 2, no traceback, and nothing written."""

import pytest

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from tests.test_messages import check_sentence

MISTAKES = [
    (
        "train task=seq2seq",
        "task=seq2seq needs target texts, which data=demo lacks: name a file by data.path=<file or folder>, or use "
        "data=dates",
    ),
    ("train data=dates", "data=dates has target texts and no classes: add task=seq2seq, or choose other data"),
    (
        "train experiment=dates checkpoint.metric=macro_f1",
        "checkpoint.metric=macro_f1 is no figure of task=seq2seq: choose exact_match, token_accuracy or loss",
    ),
    (
        "train experiment=dates batch.balance=sqrt",
        "batch.balance=sqrt does nothing with task=seq2seq: remove it",
    ),
    (
        "train experiment=dates optim.focal_gamma=2",
        "optim.focal_gamma=2.0 does nothing with task=seq2seq: remove it",
    ),
    (
        "train experiment=dates optim.class_weights=balanced",
        "optim.class_weights=balanced does nothing with task=seq2seq: remove it",
    ),
    (
        "train checkpoint.metric=exact_match",
        "checkpoint.metric=exact_match is no figure of task=classify: choose accuracy, micro_f1, macro_f1 or loss",
    ),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_exact_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    check_sentence(line, sentence, capsys, tmp_path, monkeypatch)


def test_what_folds_do_not_do_is_said(capsys):
    assert cli.main(["train", "task=seq2seq", "data=dates", "data.folds=5"]) == 2
    assert capsys.readouterr().err == "data.folds=5 does nothing with task=seq2seq: remove it\n"


def test_what_the_weights_fix_is_refused_in_a_sentence(model_folder):
    with pytest.raises(ValueError, match="does nothing with task=seq2seq: remove it") as caught:
        compose("train", [f"init_from={model_folder}", "task=seq2seq", "data=dates"])
    assert "\n" not in str(caught.value)
