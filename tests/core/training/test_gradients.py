"""Several processes add up gradients, each that of every weight: none may lack one, whatever it is given to read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.config import ModelConfig
from manyheads.config import model as choices
from manyheads.data.batches import Planned, gather
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.training.objectives import Classify

CONF = Path(__file__).parents[3] / "conf"
PRESETS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
EXPERIMENTS = ("demo_no_positions", "many_heads", "one_head", "paper")
KNOBS = {
    "score": plugin.names("score"),
    "normaliser": plugin.names("normaliser"),
    "positions": plugin.names("positions"),
    "norm": plugin.names("norm"),
    "placement": choices.Placement,
    "pooling": plugin.names("pooling"),
    "activation": plugin.names("activation"),
    "segments": choices.Segments,
    "pair": choices.PairKind,
    "encoder": plugin.names("encoder"),
}
SMALL: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 8, "d_k": 4, "d_v": 4, "d_ff": 8}
BATCHES = {"rows": [0, 1, 2], "one token": [0], "no rows": []}


def tokens() -> Tokens:
    """Three rows: of one token alone, and of two texts."""
    offsets = torch.tensor([0, 1, 5, 11])
    segments = torch.tensor([0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1], dtype=torch.uint8)
    ids_N = torch.arange(11, dtype=torch.int32) + 5
    return Tokens(ids_N, offsets, segments, torch.tensor([0, 1, 2]))


def without_gradient(network: Any, objective: Any, tokens: Tokens, rows: list[int]) -> list[str]:
    """The weights that a batch of these rows gives no gradient."""
    network.zero_grad(set_to_none=True)
    batch = gather(tokens, Planned(torch.tensor(rows, dtype=torch.int64), 1.0))
    objective.training_loss(network.train(), batch).sum().backward()
    return [name for name, weight in network.named_parameters() if weight.grad is None]


def every_form() -> dict[str, ModelConfig]:
    forms = {f"model={name}": compose("train", [f"model={name}"]) for name in PRESETS}
    forms |= {f"experiment={name}": compose("train", [f"experiment={name}"]) for name in EXPERIMENTS}
    models = {name: replace(run.model, **SMALL) for name, run in forms.items()}
    base = ModelConfig(**SMALL)
    for knob, kind in KNOBS.items():
        models |= {f"{knob}={one}": replace(base, **{knob: one}) for one in kind}
    models["windows, shared keys"] = replace(base, window=1, n_kv_heads=1, causal=True)
    models["nothing projected"] = replace(base, project=False, project_output=False, bias=False)
    return models


def test_every_weight_has_a_gradient_whatever_the_rows():
    lacking = {}
    for name, model in every_form().items():
        torch.manual_seed(0)
        network = assemble(model, vocab_size=20, n_classes=3, max_length=12, n_segments=2)
        objective = Classify(torch.ones(3), label_smoothing=0.0)
        for of_batch, rows in BATCHES.items():
            lacking[name, of_batch] = without_gradient(network, objective, tokens(), rows)
    assert {name: weights for name, weights in lacking.items() if weights} == {}
