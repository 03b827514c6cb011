"""Figures of heads against a NumPy transcription and cases a hand can reckon; and the same in any batch."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from manyheads.data.rows import Rows
from manyheads.look.passes import find_marks, tokens_of
from manyheads.look.statistics import FIGURES, distributions, divergence, document_figures, head_statistics
from manyheads.ship.deliverable import Deliverable, load

TEXTS = ["a good film", "", "very very bad film", "not so awful , the film", "good " * 40]


def rows_of(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(texts, pairs, [at % 3 for at in range(len(texts))], "texts", range(1, len(texts) + 1))


def some_maps(lengths: list[int], n_heads: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random weights `(B, P, L, M)` of softmax, what is kept, and separators: the last token of each document."""
    random, longest = np.random.default_rng(seed), max(lengths)
    keep_BL = torch.arange(longest) < torch.tensor(lengths)[:, None]
    scores = torch.tensor(random.normal(size=(len(lengths), n_heads, longest, longest)) * 3, dtype=torch.float32)
    weights = scores.masked_fill(~keep_BL[:, None, None], -torch.inf).softmax(-1)
    return weights, keep_BL, torch.arange(longest) == torch.tensor(lengths)[:, None] - 1


def figures(weights_BPLM: Tensor, keep_BL: Tensor, separator_BM: Tensor) -> dict[str, Tensor]:
    return document_figures(distributions(weights_BPLM, keep_BL), keep_BL, separator_BM)


def test_figures_are_those_of_the_formulas() -> None:
    lengths = [7, 1, 4, 9]
    weights, keep_BL, separator_BM = some_maps(lengths, 3)
    weights = weights * torch.linspace(0.1, 3.0, 9)[:, None]  # as the sigmoid's: rows do not sum to one
    ours = figures(weights, keep_BL, separator_BM)
    for row, n in enumerate(lengths):
        for head in range(3):
            p = weights[row, head, :n, :n].double().numpy()
            p = p / p.sum(1, keepdims=True)
            far = np.abs(np.arange(n)[:, None] - np.arange(n))
            entropy = -(p * np.log(p)).sum(1).mean()
            expected = {
                "entropy": entropy,
                "evenness": entropy / np.log(n) if n > 1 else 1.0,
                "distance": (p * far).sum(1).mean(),
                "first": p[:, 0].mean(),
                "separators": p[:, n - 1].mean(),
            }
            assert {name: float(ours[name][head, row]) for name in FIGURES} == pytest.approx(expected, abs=1e-5)


def test_divergence_is_that_of_the_formula() -> None:
    lengths = [5, 8]
    weights, keep_BL, _ = some_maps(lengths, 4)
    ours = divergence(distributions(weights, keep_BL))
    for row, n in enumerate(lengths):
        p, q = (weights[row, head, :n, :n].double().numpy() for head in (1, 3))
        m = (p + q) / 2
        expected = ((p * np.log(p / m)).sum(1) / 2 + (q * np.log(q / m)).sum(1) / 2).mean()
        assert float(ours[1, 3, row]) == pytest.approx(expected, abs=1e-5)
        assert float(ours[3, 1, row]) == float(ours[1, 3, row])
    assert ours.diagonal().abs().max() == 0


def test_hand_made_heads() -> None:
    n = 6
    even, first, itself = torch.full((n, n), 1 / n), torch.zeros(n, n), torch.eye(n)
    first[:, 0] = 1.0
    weights = torch.stack([even, first, itself])[None]
    keep_BL, separator_BM = torch.ones(1, n, dtype=torch.bool), (torch.arange(n) == n - 1)[None]
    ours = {name: value.squeeze(1).tolist() for name, value in figures(weights, keep_BL, separator_BM).items()}
    assert ours["entropy"] == pytest.approx([math.log(n), 0, 0], abs=1e-6)
    assert ours["evenness"] == pytest.approx([1, 0, 0], abs=1e-6)
    assert ours["distance"] == pytest.approx([(n * n - 1) / (3 * n), (n - 1) / 2, 0], abs=1e-6)
    assert ours["first"] == pytest.approx([1 / n, 1, 1 / n])
    assert ours["separators"] == pytest.approx([1 / n, 0, 1 / n])
    apart = divergence(distributions(weights, keep_BL)).squeeze(-1)
    assert float(apart[1, 2]) == pytest.approx((n - 1) / n * math.log(2))  # only the first query agrees


def test_nothing_attended_to_counts_nowhere() -> None:
    weights = torch.zeros(1, 1, 2, 2)
    weights[0, 0, 0] = torch.tensor([0.25, 0.25])
    ours = figures(weights, torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool))
    assert float(ours["entropy"]) == pytest.approx(math.log(2))
    assert float(ours["distance"]) == pytest.approx(0.5)


def test_a_corpus_is_the_mean_of_its_documents_in_any_batch(model_folder: Path) -> None:
    model = load(model_folder)
    whole = head_statistics(model, tokens_of(model, rows_of(TEXTS)))
    alone = [head_statistics(model, tokens_of(model, rows_of([text]))) for text in TEXTS]
    for budget in (1, 9, 4096):
        ours = head_statistics(model, tokens_of(model, rows_of(TEXTS)), budget=budget)
        assert (ours.n_documents, ours.n_tokens) == (5, 5 + 2 + 6 + 8 + 12)
        np.testing.assert_allclose(ours.divergence_PP, whole.divergence_PP, atol=1e-6)
        for name in FIGURES:
            each = np.array([[one.mean for one in document.figures[name]] for document in alone])
            mean, deviation = zip(*((one.mean, one.deviation) for one in ours.figures[name]), strict=True)
            np.testing.assert_allclose(mean, each.mean(0), atol=1e-5)
            np.testing.assert_allclose(deviation, each.std(0), atol=1e-4)
            assert ours.uniform[name] == pytest.approx(np.mean([one.uniform[name] for one in alone]))


def test_an_even_head_is_reckoned_beside(model_folder: Path) -> None:
    model = load(model_folder)
    lengths = [5, 2, 6, 8, 12]
    ours = head_statistics(model, tokens_of(model, rows_of(TEXTS))).uniform
    assert ours["entropy"] == pytest.approx(np.mean(np.log(lengths)))
    assert ours["evenness"] == pytest.approx(1)
    assert ours["distance"] == pytest.approx(np.mean([(n * n - 1) / (3 * n) for n in lengths]))
    assert ours["first"] == ours["separators"] == pytest.approx(np.mean([1 / n for n in lengths]))


def test_heads_without_queries_are_even(model_folder: Path) -> None:
    model = load(model_folder)
    silence_queries(model)
    ours = head_statistics(model, tokens_of(model, rows_of(TEXTS)))
    for name in FIGURES:
        assert [one.mean for one in ours.figures[name]] == pytest.approx([ours.uniform[name]] * 4, abs=1e-5)
    np.testing.assert_allclose(ours.divergence_PP, 0, atol=1e-6)
    agreement = ours.agreement(2)
    assert agreement is not None
    assert agreement[0] == pytest.approx(1)


def silence_queries(model: Deliverable) -> None:
    """All scores zero: attention is even."""
    for layer in model.classifier.encoder.layers:
        project = layer.attention.block.project
        with torch.no_grad():
            project.weight[: 2 * 4] = 0.0
            project.bias[: 2 * 4] = 0.0


def test_marks_are_what_the_tokenizer_adds(model_folder: Path, pair_folder: Path) -> None:
    for folder in (model_folder, pair_folder):
        marks = find_marks(load(folder))
        assert marks.every == [2, 3]
        assert marks.separators == [3]
    pair = load(pair_folder)
    shares = head_statistics(pair, tokens_of(pair, rows_of(["good film"], ["bad"]))).uniform
    assert shares["separators"] == pytest.approx(2 / 6)  # [CLS] good film [SEP] bad [SEP]
