"""Figures of heads against a NumPy transcription and cases a hand can reckon; and the same in any batch."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor

from manyheads.config import ModelConfig, PairKind
from manyheads.data.rows import Rows
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.layout import FILL, FILL_FROM, Packed
from manyheads.plugins.interpret.maps import Maps, batches, distributions, find_marks, look_at_batch, tokens_of
from manyheads.plugins.interpret.statistics import (
    FIGURES,
    ablate_heads,
    faithfulness,
    head_statistics,
    text_figures,
)

TEXTS = ["a good film", "", "very very bad film", "not so awful , the film", "good " * 40]


def rows_of(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(texts, pairs, [at % 3 for at in range(len(texts))], "texts", range(1, len(texts) + 1))


def as_maps(weights_TPLM: Tensor, lengths: list[int], *, across: list[bool] | None = None) -> tuple[Maps, Tensor]:
    """Maps of texts of these lengths, and their separators: the last token of each."""
    layout = Packed.of_lengths(lengths)
    none = torch.empty(0)
    maps = Maps(none, distributions(weights_TPLM), across or [False] * weights_TPLM.size(1), layout, none)
    last_N = torch.zeros(sum(lengths), dtype=torch.bool)
    last_N[layout.offsets[1:] - 1] = True
    return maps, last_N


def some_weights(lengths: list[int], n_heads: int, n_keys: list[int] | None = None) -> Tensor:
    """Random weights `(T, P, L, M)` of softmax, zero where there is no query."""
    random, longest = np.random.default_rng(0), max(lengths)
    queries_TL, keys_TL = (torch.arange(longest) < torch.tensor(one)[:, None] for one in (lengths, n_keys or lengths))
    scores = torch.tensor(random.normal(size=(len(lengths), n_heads, longest, longest)) * 3, dtype=torch.float32)
    weights = scores.masked_fill(~keys_TL[:, None, None], -torch.inf).softmax(-1)
    return weights.masked_fill(~queries_TL[:, None, :, None], 0.0)


def by_formula(p: np.ndarray) -> dict[str, float]:
    """Figures of one text's weights `(queries, keys)`; the last key is a separator."""
    p = p / p.sum(1, keepdims=True)
    n_queries, n_keys = p.shape
    far = np.abs(np.arange(n_queries)[:, None] - np.arange(n_keys))
    entropy = -(p * np.log(p)).sum(1).mean()
    return {
        "entropy": entropy,
        "evenness": entropy / np.log(n_keys) if n_keys > 1 else 1.0,
        "distance": (p * far).sum(1).mean(),
        "first": p[:, 0].mean(),
        "separators": p[:, -1].mean(),
    }


def test_figures_are_those_of_the_formulas() -> None:
    lengths = [7, 1, 4, 9]
    weights = some_weights(lengths, 3) * torch.linspace(0.1, 3.0, 9)[:, None]  # as the sigmoid's: no sums of one
    ours = text_figures(*as_maps(weights, lengths))
    for row, n in enumerate(lengths):
        for head in range(3):
            expected = by_formula(weights[row, head, :n, :n].double().numpy())
            assert {name: float(ours[name][head, row]) for name in FIGURES} == pytest.approx(expected, abs=1e-5)


def test_a_head_across_two_texts_is_measured_by_the_keys_of_the_other() -> None:
    lengths, other = [7, 2, 4, 5], [4, 5, 7, 2]  # two pairs: texts 0 and 2, texts 1 and 3
    within, across = some_weights(lengths, 1), some_weights(lengths, 1, other)
    ours = text_figures(*as_maps(torch.cat([within, across], 1), lengths, across=[False, True]))
    for row, (n, m) in enumerate(zip(lengths, other, strict=True)):
        expected = by_formula(across[row, 0, :n, :m].double().numpy())
        assert math.isnan(ours["distance"][1, row])
        for name in set(FIGURES) - {"distance"}:
            assert float(ours[name][1, row]) == pytest.approx(expected[name], abs=1e-5)
        expected = by_formula(within[row, 0, :n, :n].double().numpy())
        assert {name: float(ours[name][0, row]) for name in FIGURES} == pytest.approx(expected, abs=1e-5)


def test_hand_made_heads() -> None:
    n = 6
    even, first, itself = torch.full((n, n), 1 / n), torch.zeros(n, n), torch.eye(n)
    first[:, 0] = 1.0
    weights = torch.stack([even, first, itself])[None]
    ours = {name: value.squeeze(1).tolist() for name, value in text_figures(*as_maps(weights, [n])).items()}
    assert ours["entropy"] == pytest.approx([math.log(n), 0, 0], abs=1e-6)
    assert ours["evenness"] == pytest.approx([1, 0, 0], abs=1e-6)
    assert ours["distance"] == pytest.approx([(n * n - 1) / (3 * n), (n - 1) / 2, 0], abs=1e-6)
    assert ours["first"] == pytest.approx([1 / n, 1, 1 / n])
    assert ours["separators"] == pytest.approx([1 / n, 0, 1 / n])


def test_nothing_attended_to_counts_nowhere() -> None:
    weights = torch.zeros(1, 1, 2, 2)
    weights[0, 0, 0] = torch.tensor([0.25, 0.25])
    ours = text_figures(*as_maps(weights, [2]))
    assert float(ours["entropy"]) == pytest.approx(math.log(2))
    assert float(ours["distance"]) == pytest.approx(0.5)


def test_a_corpus_is_the_mean_of_its_documents_in_any_batch(model_folder: Path) -> None:
    model = load(model_folder)
    alone = [head_statistics(model, tokens_of(model, rows_of([text]))) for text in TEXTS]
    for budget in (1, 9, 4096):
        ours = head_statistics(model, tokens_of(model, rows_of(TEXTS)), budget=budget)
        assert (ours.n_texts, ours.n_tokens) == (5, 5 + 2 + 6 + 8 + 12)
        for name in FIGURES:
            each = np.array([document.figures[name] for document in alone])
            np.testing.assert_allclose(ours.figures[name], each.mean(0), atol=1e-5)


@pytest.mark.parametrize("pair", list(PairKind))
def test_batches_that_a_cpu_fills_up_give_the_same_figures(
    pair: PairKind, ship_model: Callable[..., Path], tmp_path: Path
) -> None:
    """From 512 tokens on the encoder is given a tail that belongs to no text."""
    shape = ModelConfig(n_layers=2, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=pair)
    model = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    rows = rows_of([TEXTS[0], TEXTS[2], TEXTS[3], TEXTS[4]] * 20, ["bad", "the film", "a", "so so"] * 20)
    tokens = tokens_of(model, rows)
    assert FILL_FROM < int(tokens.lengths.sum()) < 4096
    assert int(tokens.lengths.sum()) % FILL
    whole, parts = (head_statistics(model, tokens, budget=budget) for budget in (4096, 300))
    for name in FIGURES:
        assert whole.figures[name] == pytest.approx(parts.figures[name], abs=1e-5, nan_ok=True)
    few = {"amounts": [2], "n_draws": 1}
    figures = [faithfulness(model, tokens, budget=budget, **few) for budget in (4096, 300)]
    assert [one.ranked.value for one in figures[0]] == pytest.approx([one.ranked.value for one in figures[1]], abs=1e-5)


def test_heads_without_queries_are_even(model_folder: Path) -> None:
    model = load(model_folder)
    silence_queries(model)
    ours, lengths = head_statistics(model, tokens_of(model, rows_of(TEXTS))).figures, [5, 2, 6, 8, 12]
    assert ours["entropy"] == pytest.approx([np.mean(np.log(lengths))] * 4)
    assert ours["evenness"] == pytest.approx([1] * 4)
    assert ours["distance"] == pytest.approx([np.mean([(n * n - 1) / (3 * n) for n in lengths])] * 4)
    assert ours["first"] == pytest.approx([np.mean([1 / n for n in lengths])] * 4)
    assert ours["separators"] == pytest.approx(ours["first"])


def silence_queries(model: TextClassifier) -> None:
    """All scores zero: attention is even."""
    for layer in model.network.encoder.layers:
        project = layer.attention.block.project
        with torch.no_grad():
            project.weight[: 2 * 4] = 0.0
            project.bias[: 2 * 4] = 0.0


def test_marks_are_what_the_tokenizer_adds(model_folder: Path, pair_folder: Path) -> None:
    for folder in (model_folder, pair_folder):
        marks = find_marks(load(folder))
        assert (marks.every.tolist(), marks.separators.tolist()) == ([2, 3], [3])
    pair = load(pair_folder)
    silence_queries(pair)
    shares = head_statistics(pair, tokens_of(pair, rows_of(["good film"], ["bad"]))).figures
    assert shares["separators"] == pytest.approx([2 / 6] * 4)  # [CLS] good film [SEP] bad [SEP]


def test_pairs_read_apart_are_two_texts(ship_model: Callable[..., Path], tmp_path: Path) -> None:
    shape = ModelConfig(n_layers=2, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=PairKind.cross)
    model = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    tokens = tokens_of(model, rows_of(["good film", "bad", "so so so"], ["bad", "the film", "a"]))
    ours = head_statistics(model, tokens)
    assert [str(head) for head in ours.heads] == ["1.1", "1.2", "2.1", "2.2", "3.1", "3.2"]
    assert ours.n_texts == 6
    distances = ours.figures["distance"]
    assert not any(math.isnan(one) for one in distances[:4])
    assert all(math.isnan(one) for one in distances[4:])
    for budget in (1, 13):
        again = head_statistics(model, tokens, budget=budget)
        np.testing.assert_allclose(again.figures["entropy"], ours.figures["entropy"], atol=1e-6)


def test_what_is_looked_at_is_the_formula_and_the_answer_stays(model_folder: Path) -> None:
    model = load(model_folder)
    (batch,) = batches(model, tokens_of(model, rows_of(TEXTS)), budget=4096)
    maps = look_at_batch(model, batch)
    torch.testing.assert_close(maps.logits_BC, model.logits(TEXTS)[batch.rows_B], rtol=1e-5, atol=1e-5)
    first = model.network.encoder.layers[0].attention
    with torch.inference_mode():
        x_ND = first.before(model.network.embeddings(batch.ids_N, batch.layout))
        q, k, _ = first.block.queries_keys_values(x_ND, None, batch.layout, batch.layout)
    start = 0
    for row, length in enumerate(batch.layout.lengths_B.tolist()):
        of_row = slice(start, start + length)
        start += length
        weights_HLM = (torch.einsum("lhk,mhk->hlm", q[of_row], k[of_row]) / 2).softmax(-1)
        torch.testing.assert_close(maps.shares_PTLM[:2, row, :length, :length], weights_HLM)


WORDS = ["good", "bad", "fine", "awful", "film", "a", "the", "very", "not", "so"]


def some_rows(n: int = 60) -> Rows:
    texts = [" ".join(WORDS[(at * 7 + step * step + 3 * step) % 10] for step in range(1 + at % 9)) for at in range(n)]
    return Rows(texts, None, [(at * at + at // 3) % 3 for at in range(n)], "texts", range(1, n + 1))


def test_changes_are_those_of_weights_set_to_zero(model_folder: Path) -> None:
    rows = some_rows()
    model = load(model_folder)
    ours = ablate_heads(model, tokens_of(model, rows), budget=50)
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
    one = ablate_heads(model, tokens, budget=1, progress=heard.append)
    assert one == ablate_heads(model, tokens, budget=4096)
    assert sum(heard) == 20
    torch.testing.assert_close(model.logits(rows.texts), whole, rtol=0, atol=0)


def test_a_head_that_gives_nothing_is_not_missed(model_folder: Path) -> None:
    rows = some_rows(20)
    model = load(model_folder)
    with torch.no_grad():
        model.network.encoder.layers[1].attention.block.output.weight[:, 6:] = 0.0
    last = ablate_heads(model, tokens_of(model, rows)).silenced[3]
    assert (last.macro_f1_change.value, last.answers_changed) == (0, 0)
    assert last.macro_f1_change.low < 0 < last.macro_f1_change.high  # on twenty rows
