"""A head is worth what the model loses by the loss of its columns of W^O."""

from pathlib import Path

import pytest
import torch
from sklearn import metrics

from manyheads.data.rows import Rows
from manyheads.inference.folder import load
from manyheads.interpret.maps import tokens_of
from manyheads.interpret.statistics import ablate_heads

WORDS = ["good", "bad", "fine", "awful", "film", "a", "the", "very", "not", "so"]


def some_rows(n: int = 60) -> Rows:
    texts = [" ".join(WORDS[(at * 7 + step * step + 3 * step) % 10] for step in range(1 + at % 9)) for at in range(n)]
    return Rows(texts, None, [(at * at + at // 3) % 3 for at in range(n)], "texts", range(1, n + 1))


def test_changes_are_those_of_weights_set_to_zero(model_folder: Path) -> None:
    rows = some_rows()
    model = load(model_folder)
    ours = ablate_heads(model, tokens_of(model, rows), budget=50, n_resamples=50)
    before = model.logits(rows.texts).argmax(-1)
    assert ours.whole["accuracy"].value == pytest.approx(metrics.accuracy_score(rows.labels, before))
    assert any(one.answers_changed for one in ours.silenced)
    for one in ours.silenced:
        cut = load(model_folder)
        output = cut.network.encoder.layers[one.head.layer - 1].attention.block.output
        with torch.no_grad():
            output.weight[:, 6 * (one.head.head - 1) : 6 * one.head.head] = 0.0
        after = cut.logits(rows.texts).argmax(-1)
        f1 = [metrics.f1_score(rows.labels, answers, average="macro", zero_division=0) for answers in (before, after)]
        right = [metrics.accuracy_score(rows.labels, answers) for answers in (before, after)]
        assert one.macro_f1_change.value == pytest.approx(f1[1] - f1[0])
        assert one.accuracy_change.value == pytest.approx(right[1] - right[0])
        assert one.answers_changed == pytest.approx(float((before != after).float().mean()))
        assert one.macro_f1_change.low <= one.macro_f1_change.value <= one.macro_f1_change.high


def test_nothing_hangs_on_batches_or_stays_behind(model_folder: Path) -> None:
    rows, heard = some_rows(20), []
    model = load(model_folder)
    whole = model.logits(rows.texts)
    tokens = tokens_of(model, rows)
    one = ablate_heads(model, tokens, budget=1, n_resamples=20, progress=heard.append)
    assert one == ablate_heads(model, tokens, budget=4096, n_resamples=20)
    assert sum(heard) == 20
    torch.testing.assert_close(model.logits(rows.texts), whole, rtol=0, atol=0)


def test_a_head_that_gives_nothing_is_not_missed(model_folder: Path) -> None:
    rows = some_rows(20)
    model = load(model_folder)
    with torch.no_grad():
        model.network.encoder.layers[1].attention.block.output.weight[:, 6:] = 0.0
    last = ablate_heads(model, tokens_of(model, rows), n_resamples=20).silenced[3]
    assert (last.macro_f1_change.value, last.answers_changed) == (0, 0)
    assert last.macro_f1_change.low < 0 < last.macro_f1_change.high  # on twenty rows
