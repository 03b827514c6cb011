"""Whatever is combined with whatever: a training step moves every parameter, and padding never shows."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import combinations, product
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F

from manyheads import plugin
from manyheads.config import ModelConfig
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, assemble

LENGTHS, VOCAB, N_CLASSES = [5, 0, 9, 1], 30, 3
MAIN = ["score", "positions", "placement", "pooling", "normaliser"]
MORE: dict[str, list[Any]] = {
    "n_kv_heads": [0, 1],
    "qk_norm": [False, True],
    "matches": [False, True],
    "project": [True, False],
    "project_output": [True, False],
    "windows": [[], [2, 0]],
    "causal": [False, True],
    "norm": plugin.names("norm"),
    "norm_bias": [True, False],
    "norm_embedding": [False, True],
    "d_embedding": [0, 5],
    "pooler": ["none", "tanh", "gelu_norm"],
    "rotary_base_window": [None, 20.0],
    "activation": plugin.names("activation"),
    "bias": [True, False],
    "pair": ["joint", "cross", "compare"],
}


def is_sensible(fields: dict[str, Any]) -> bool:
    """What ModelConfig takes; the others end in its sentences."""
    if fields.get("causal") and fields.get("pooling") == "first":
        return False
    if fields.get("norm_embedding") and fields.get("placement") == "post":
        return False
    return fields.get("project", True) or fields.get("n_kv_heads", 0) == 0


def covering(axes: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Few combinations in which every pair of values of every two axes occurs: greedily, the most new pairs first."""
    at = {name: range(len(values)) for name, values in axes.items()}
    missing = {
        pair
        for a, b in combinations(axes, 2)
        for pair in product([(a, i) for i in at[a]], [(b, j) for j in at[b]])
        if is_sensible({name: axes[name][i] for name, i in pair})
    }
    while missing:
        chosen = dict(min(missing))
        for name in axes:
            if name not in chosen:
                chosen[name] = max(at[name], key=lambda i, name=name: _gain(axes, missing, chosen, name, i))
        missing -= set(combinations(sorted(chosen.items(), key=lambda one: list(axes).index(one[0])), 2))
        yield {name: axes[name][i] for name, i in chosen.items()}


def _gain(axes: dict[str, list[Any]], missing: set, chosen: dict[str, int], name: str, i: int) -> int:
    order = list(axes)
    if not is_sensible({key: axes[key][at] for key, at in (chosen | {name: i}).items()}):
        return -1
    pairs = [
        ((key, at), (name, i)) if order.index(key) < order.index(name) else ((name, i), (key, at))
        for key, at in chosen.items()
    ]
    return sum(pair in missing for pair in pairs)


def trained_one_step(model: ModelConfig) -> Classifier:
    """Fresh, and moved by one step; every parameter must have had a gradient."""
    torch.manual_seed(0)
    classifier = assemble(model, vocab_size=VOCAB, n_classes=N_CLASSES, max_length=max(LENGTHS), n_segments=2)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)
    # sparsemax of sharp scores gives one key everything and no gradient: not in all of so many texts
    ids, n = torch.randint(VOCAB, (4 * sum(LENGTHS),)), 4 * len(LENGTHS)
    logits = classifier.train()(ids, Packed.of_lengths(4 * LENGTHS), ids % 2)
    F.cross_entropy(logits, torch.arange(n) % N_CLASSES).backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-7, name
    optimizer.step()
    return classifier.eval()


def assert_padding_never_shows(classifier: Classifier) -> None:
    """Logits and gradients are the same packed, with a tail, padded by garbage, and, of the logits, alone: in double
    precision, in which what is left of rounding hides nothing."""
    classifier = deepcopy(classifier).double()
    layout, ids = Packed.of_lengths(LENGTHS), torch.randint(VOCAB, (sum(LENGTHS),))
    keep_BL = F.pad(layout.keep_BL, (0, 4))
    garbage = torch.randint(VOCAB, keep_BL.shape)
    garbage[keep_BL] = ids
    packed = classifier(ids, layout, ids % 2)
    with patch("manyheads.layout.FILL_FROM", 0):
        filled = classifier(ids, layout, ids % 2)
    ways = packed, filled, classifier(garbage, Padded(keep_BL), garbage % 2)
    with torch.no_grad():
        alone = [classifier(each, Packed.of_lengths([len(each)]), each % 2) for each in ids.split(LENGTHS)]
    toward, weights = torch.randn_like(packed), list(classifier.parameters())
    gradients = [torch.autograd.grad(logits, weights, toward, materialize_grads=True) for logits in ways]
    for logits, of_weights in zip(ways, gradients, strict=True):
        torch.testing.assert_close(logits.detach(), torch.cat(alone), atol=1e-10, rtol=0)
        torch.testing.assert_close(of_weights, gradients[0], atol=1e-10, rtol=1e-9)


def check(small: Any, fields: dict[str, Any]) -> Classifier:
    classifier = trained_one_step(small(d_model=12, n_heads=3, d_k=4, d_v=4, **fields))
    assert_padding_never_shows(classifier)
    return classifier


def main_axes(choices: Any) -> dict[str, list[Any]]:
    return {name: choices[name] for name in MAIN}


def test_every_pair_of_settings_works_together_and_stays_near_its_figures_in_bf16(small, choices):
    ids, layout = torch.randint(VOCAB, (sum(LENGTHS),)), Packed.of_lengths(LENGTHS)
    for fields in covering(main_axes(choices) | MORE):
        classifier = check(small, fields)
        exact = classifier(ids, layout, ids % 2).detach()
        with torch.autocast("cpu", torch.bfloat16):
            near = classifier(ids, layout, ids % 2).float()
        assert (near - exact).abs().max() < 0.1 * exact.abs().max() + 0.05, fields
        for gradient in torch.autograd.grad(near.square().sum(), list(classifier.parameters())):
            assert gradient.isfinite().all(), fields


def test_the_covering_set_holds_every_sensible_pair(choices):
    axes = main_axes(choices) | MORE
    rows = list(covering(axes))
    assert len(rows) < 100
    for a, b in combinations(axes, 2):
        for first, second in product(axes[a], axes[b]):
            if is_sensible({a: first, b: second}):
                assert any(row[a] == first and row[b] == second for row in rows), (a, first, b, second)


@pytest.mark.slow
def test_every_combination_of_the_main_settings_works(small, choices):
    axes = main_axes(choices) | {"pair": MORE["pair"]}
    for values in product(*axes.values()):
        check(small, dict(zip(axes, values, strict=True)))
