"""Mistakes with answers that are texts end in one sentence, exit code 2, no traceback, and nothing written."""

import pytest

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.config.figures import checkpoint_figures
from manyheads.config.sentences import one_of
from tests.test_messages import check_refused

MISTAKES = [
    ("train task=seq2seq", "target texts", "data=demo", "data.path=<file or folder>", "data=dates"),
    ("train data=dates", "add task=seq2seq"),
    ("train experiment=dates checkpoint.metric=macro_f1", "task=seq2seq", one_of(checkpoint_figures("seq2seq"))),
    ("train experiment=dates batch.balance=sqrt", "does nothing with task=seq2seq", "remove it"),
    ("train experiment=dates optim.focal_gamma=2", "does nothing with task=seq2seq", "remove it"),
    ("train experiment=dates optim.class_weights=balanced", "does nothing with task=seq2seq", "remove it"),
    ("train checkpoint.metric=exact_match", "task=classify", one_of(checkpoint_figures("classify"))),
]


@pytest.mark.parametrize(
    ("line", "parts"), [(line, parts) for line, *parts in MISTAKES], ids=[one[0] for one in MISTAKES]
)
def test_a_mistake_is_one_sentence(line, parts, capsys, tmp_path, monkeypatch):
    check_refused(line, parts, capsys, tmp_path, monkeypatch)


def test_what_folds_do_not_do_is_said(capsys):
    assert cli.main(["train", "task=seq2seq", "data=dates", "data.folds=5"]) == 2
    assert capsys.readouterr().err == "data.folds=5 does nothing with task=seq2seq: remove it\n"


def test_what_the_weights_fix_is_refused_in_a_sentence(model_folder):
    with pytest.raises(ValueError, match="does nothing with task=seq2seq: remove it") as caught:
        compose("train", [f"init_from={model_folder}", "task=seq2seq", "data=dates"])
    assert "\n" not in str(caught.value)
