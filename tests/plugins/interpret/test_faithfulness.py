"""The tokens that are silenced, and what of it, against the same done by hand; and a model that is known through."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from manyheads.config import ModelConfig, PairKind
from manyheads.data.batches import Batch
from manyheads.data.rows import Rows
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.layout import Packed
from manyheads.plugins.interpret import statistics as module
from manyheads.plugins.interpret.maps import batches, look_at_batch, tokens_of
from manyheads.plugins.interpret.statistics import faithfulness, how_many, noise, ranks, received

TEXTS = [
    "a good film",
    "",
    "very very bad film",
    "not so awful the film",
    "good " * 40,
    "bad",
    "fine fine film so good",
]


def rows_of(texts: list[str]) -> Rows:
    return Rows(texts, None, [0] * len(texts), "texts", range(1, len(texts) + 1))


@pytest.fixture
def model(model_folder: Path) -> TextClassifier:
    return load(model_folder)


def batch_of(lengths: list[int]) -> Batch:
    n = sum(lengths)
    nothing = torch.zeros(len(lengths), dtype=torch.int64)
    return Batch(torch.arange(n), None, Packed.of_lengths(lengths), nothing, torch.arange(len(lengths)), 1.0)


def test_ranks_are_by_score_among_choices() -> None:
    batch = batch_of([4, 1, 3])
    choice_N = torch.tensor([False, True, True, True, False, True, True, True])
    rank_N, n_choices_B = ranks(torch.tensor([9.0, 1, 3, 2, 9, 5, 7, 5]), choice_N, batch)
    assert n_choices_B.tolist() == [3, 0, 3]
    assert rank_N.tolist() == [3, 2, 0, 1, 0, 1, 0, 2]


def test_amounts_are_counts_or_shares_rounded_up() -> None:
    n_choices_B = torch.tensor([0, 1, 10, 11, 30])
    assert how_many(2, n_choices_B).tolist() == [2] * 5
    assert how_many(0.1, n_choices_B).tolist() == [0, 1, 1, 2, 3]


def test_attention_received_is_the_mean_over_queries_and_heads(model: TextClassifier) -> None:
    (batch,) = batches(model, tokens_of(model, rows_of(TEXTS)), budget=4096)
    received_N = received(look_at_batch(model, batch), len(batch.ids_N))
    start = 0
    for length, ids_L in zip(
        batch.layout.lengths_B.tolist(), batch.ids_N.split(batch.layout.lengths_B.tolist()), strict=True
    ):
        maps_LHLL = maps_alone(model, ids_L)
        torch.testing.assert_close(received_N[start : start + length], maps_LHLL.mean((0, 1, 2)), atol=1e-5, rtol=1e-5)
        start += length


def maps_alone(model: TextClassifier, ids_L: Tensor) -> Tensor:
    """Maps of one text from q and k: `(layers, H, L, M)`."""
    layout = Packed.of_lengths([len(ids_L)])
    with torch.inference_mode():
        x, found = model.network.embeddings(ids_L, layout), []
        for layer in model.network.encoder.layers:
            block = layer.attention.block
            q, k, _ = block.queries_keys_values(layer.attention.before(x), None, layout, layout)
            found.append((torch.einsum("lhk,mhk->hlm", q, k) / q.size(-1) ** 0.5).softmax(-1))
            x = layer(x, layout)
    return torch.stack(found)


def test_falls_are_those_of_an_edited_embedding(model: TextClassifier) -> None:
    """By hand: the most attended word of each text, every word a different one, zeroed in the table."""
    texts = ["a good film", "very bad", "not so awful the film"]
    falls, flips = [], []
    for text in texts:
        ids = torch.tensor(model.tokenizer.encode(text).ids)
        received_L = maps_alone(model, ids).mean((0, 1, 2))
        most = 1 + int(received_L[1:-1].argmax())
        before, table = model.logits([text])[0], model.network.embeddings.words.weight
        kept = table[ids[most]].detach().clone()
        with torch.no_grad():
            table[ids[most]] = 0.0
            after = model.logits([text])[0]
            table[ids[most]] = kept
        falls.append(float((before - after)[before.argmax()]))
        flips.append(bool(before.argmax() != after.argmax()))
    tokens = tokens_of(model, rows_of(texts))
    ours = faithfulness(model, tokens, amounts=[1])[0]
    assert (ours.amount, ours.n_rows) == (1, 3)
    assert ours.ranked.value == pytest.approx(np.mean(falls), abs=1e-5)
    assert ours.ranked_flips == pytest.approx(np.mean(flips))
    assert ours.difference.value == pytest.approx(ours.ranked.value - ours.random.value)


def test_rows_without_a_choice_are_left_out(model: TextClassifier) -> None:
    tokens = tokens_of(model, rows_of(TEXTS))  # 3, 0, 4, 5, 10, 1 and 5 words
    ours = faithfulness(model, tokens)
    assert [(one.amount, one.n_rows) for one in ours] == [(1, 5), (2, 5), (4, 3), (0.1, 5)]
    assert faithfulness(model, tokens, amounts=[10]) == []


def test_random_against_random_is_nothing(model: TextClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ranking that is random too, differences lie around zero as widely as their intervals say."""
    random = np.random.default_rng(5)
    words = np.array(["good", "bad", "fine", "awful", "film", "a", "the", "very", "not", "so"])
    tokens = tokens_of(model, rows_of([" ".join(random.choice(words, 9)) for _ in range(100)]))
    (of_all,) = batches(model, tokens, budget=4096)
    away = []
    for seed in range(12):
        by_chance = lambda maps, n_tokens, seed=seed: noise(of_all, 1, 99 + seed)[0]  # noqa: E731
        monkeypatch.setattr(module, "received", by_chance)
        ours = faithfulness(model, tokens, amounts=[2], n_draws=3, seed=seed)[0].difference
        away.append(ours.value / ((ours.high - ours.low) / 3.92))
    assert abs(np.mean(away)) < 3 / np.sqrt(12)
    assert np.max(np.abs(away)) < 4


def test_nothing_hangs_on_batches_and_the_seed_decides(model: TextClassifier) -> None:
    tokens = tokens_of(model, rows_of(TEXTS))
    heard: list[int] = []
    few = {"amounts": [1, 0.1], "n_draws": 2}
    whole = faithfulness(model, tokens, seed=1, progress=heard.append, **few)
    assert sum(heard) == len(TEXTS)
    for ours, theirs in zip(faithfulness(model, tokens, budget=1, seed=1, **few), whole, strict=True):
        assert ours.random.value == pytest.approx(theirs.random.value, abs=1e-5)
        assert ours.difference.low == pytest.approx(theirs.difference.low, abs=1e-5)
    assert faithfulness(model, tokens, seed=2, **few)[0].random != whole[0].random


@pytest.fixture
def apart(ship_model: Callable[..., Path], tmp_path: Path) -> TextClassifier:
    """A model that reads the texts of a pair apart."""
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=PairKind.cross)
    return load(ship_model(tmp_path / "model", pairs=True, shape=shape))


def test_pairs_read_apart(apart: TextClassifier) -> None:
    firsts, seconds = ["a good film", "very bad", "so"], ["the film", "not fine not awful", "so good"]
    rows = Rows(firsts, seconds, [0] * 3, "pairs", range(1, 4))
    (batch,) = batches(apart, tokens_of(apart, rows), budget=4096)
    received_N = received(look_at_batch(apart, batch), len(batch.ids_N))
    of_pair = [float(one.sum()) for one in received_N.split(batch.layout.lengths_B.tolist())]
    assert of_pair == pytest.approx([2.0] * 3, abs=1e-5)  # what both texts have to give
    ours = faithfulness(apart, tokens_of(apart, rows), amounts=[1])
    assert [one.n_rows for one in ours] == [3]
