"""Typed settings that would change nothing of a pretraining, of answers that are texts, and of recurrent encoders."""

import pytest

from tests.core.cli.test_unused import HEADS, WITH, check_line, check_what_is_read

IN_PRETRAIN = "does nothing in pretrain, where only hidden words are predicted: remove it"
LINES = [
    ("train task=seq2seq data=dates data.label=x", "data.label=x does nothing with task=seq2seq: remove it"),
    ("train experiment=dates data.text_pair=x", "data.text_pair=x does nothing with task=seq2seq: remove it"),
    ("train experiment=dates model.pooling=max", "model.pooling=max does nothing with task=seq2seq: remove it"),
    ("train experiment=dates model.pair=cross", "model.pair=cross does nothing with task=seq2seq: remove it"),
    (
        "train experiment=dates model.segments=always",
        "model.segments=always does nothing with task=seq2seq: remove it",
    ),
    ("train model=rnn_attention model.n_heads=8", "model.n_heads=8 does nothing with model.encoder=gru: remove it"),
    (
        "train model.encoder=lstm model.placement=post",
        "model.placement=post does nothing with model.encoder=lstm: remove it",
    ),
    (
        "pretrain data.long=both",
        "data.long=both does nothing in pretrain, where all of a long text is read, in pieces: remove it",
    ),
    (
        "pretrain linear=false",
        "linear=false does nothing in pretrain, where only hidden words are predicted: remove it",
    ),
    ("train experiment=dates linear=true", "linear=true does nothing with task=seq2seq: remove it"),
    (
        "train experiment=dates data.long=windows",
        "data.long=windows does nothing with task=seq2seq: remove it",
    ),
    ("train model.encoder=gru hardware.compile=always", f"hardware.compile=always {WITH} model.encoder=gru: remove it"),
    ("train experiment=dates optim.few_epochs=9", f"optim.few_epochs=9 {WITH} task=seq2seq: remove it"),
    ("train experiment=dates optim.steps_per_class=9", f"optim.steps_per_class=9 {WITH} task=seq2seq: remove it"),
    ("pretrain optim.few=9", f"optim.few=9 {IN_PRETRAIN}"),
    ("pretrain optim.steps_per_class=9", f"optim.steps_per_class=9 {IN_PRETRAIN}"),
]


@pytest.mark.parametrize(("line", "sentence"), LINES, ids=[line for line, _ in LINES])
def test_a_setting_that_does_nothing_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    check_line(line, sentence, capsys, tmp_path, monkeypatch)


RICH = {  # words by which as many settings as can be are read at once
    "seq2seq": ["train", "task=seq2seq", "data.text=a", "data.target=b", *HEADS],
    "pretrain": ["pretrain", "data.text=a", "data.label=c", *HEADS],
    "recurrent": ["train", "data.text=a", "data.label=c", "model.encoder=gru"],
}


@pytest.mark.slow  # whole runs; LINES has what they found
@pytest.mark.parametrize("kind", RICH)
def test_a_setting_that_no_run_reads_is_refused(kind, tmp_path, monkeypatch):
    verb, *words = RICH[kind]
    check_what_is_read(verb, words, tmp_path, monkeypatch)
