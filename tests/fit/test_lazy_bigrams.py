"""A hashed table is updated by the rows that a hash makes of the ids, not by the ids."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from manyheads.config import ModelConfig, OptimConfig
from manyheads.fit import optim
from manyheads.fit.lazy import LazyAdamW, settle
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble

VOCABULARY = 40
SHAPE = ModelConfig(
    n_layers=1, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=8, bias=False
)  # of keys a bias has no gradient, but for rounding


def learned(*, lazy: bool, n_bigrams: int, monkeypatch: pytest.MonkeyPatch) -> Classifier:
    """A classifier after 30 steps, some of whose bigrams come once in a while."""
    monkeypatch.setattr(optim, "LAZY_FROM", 1 if lazy else 2**40)
    torch.manual_seed(0)
    model = (
        assemble(replace(SHAPE, n_bigrams=n_bigrams), vocab_size=VOCABULARY, n_classes=3, max_length=8).double().eval()
    )
    optimizer = optim.make_optimizer(model, OptimConfig(lr=1e-2, eps=1e-16), lazy=lazy)
    assert isinstance(optimizer, LazyAdamW) == lazy
    generator = torch.Generator().manual_seed(1)
    for _ in range(30):
        ids = (torch.rand(12, generator=generator) ** 3 * VOCABULARY).long()
        optimizer.zero_grad()
        logits_BC = model(ids, Packed.of_lengths([5, 3, 4]))
        F.cross_entropy(logits_BC, torch.randint(3, (3,), generator=generator)).backward()
        optimizer.step()
    settle([optimizer])
    return model


@pytest.mark.parametrize("n_bigrams", [17, 200])  # fewer rows than ids, and more
def test_rows_of_bigrams_move_as_torch_moves_them(monkeypatch, n_bigrams):
    ours, theirs = (learned(lazy=lazy, n_bigrams=n_bigrams, monkeypatch=monkeypatch) for lazy in (True, False))
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, rtol=1e-6, atol=1e-7, msg=name)
