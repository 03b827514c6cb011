"""What follows an encoder, as modules of sentence-transformers: pooling, and a layer where the run has one.

D d_model . C classes
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from manyheads.config import Pooler, Pooling
from manyheads.nn.pooling import Pooler as PoolerLayer
from manyheads.ship.deliverable import Deliverable

MODULES = "sentence_transformers.models"
HEAD = "head.safetensors"
"""`weight` `(C, D)` and `bias` `(C,)`: a text's vector to the logits of its classes, which config.json names."""
POOLINGS = {Pooling.first: "cls_token", Pooling.max: "max_tokens", Pooling.mean: "mean_tokens"}
ACTIVATIONS = {
    Pooler.tanh: "torch.nn.modules.activation.Tanh",
    Pooler.relu: "torch.nn.modules.activation.ReLU",
    Pooler.gelu: "torch.nn.modules.activation.GELU",
}


@dataclass(frozen=True, slots=True)
class Module:
    """One of them: its class, its config.json, its weights if it has any."""

    kind: str
    config: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def modules_of(deliverable: Deliverable) -> list[Module]:
    """The modules from token vectors `(..., D)` to the vector `(..., D)` of a text that the head of the run sees.

    Raises:
        ValueError: it pools as none of them does.
    """
    model, classifier = deliverable.model, deliverable.classifier
    if model.pooling not in POOLINGS or (model.pooler is not Pooler.none and model.pooler not in ACTIVATIONS):
        name = "pooling" if model.pooling not in POOLINGS else "pooler"
        raise ValueError(
            f"has model.{name}={getattr(model, name).name}, which sentence-transformers has no module for: "
            f"train one with model.{name}={'mean' if name == 'pooling' else 'tanh'}"
        )
    modes = {f"pooling_mode_{mode}": kind is model.pooling for kind, mode in POOLINGS.items()}
    modules = [Module("Pooling", {"word_embedding_dimension": model.d_model, **modes})]
    if isinstance(classifier.pooling, PoolerLayer):
        modules.append(dense(classifier.pooling.dense, ACTIVATIONS[model.pooler]))
    return modules


def dense(layer: nn.Linear, activation: str) -> Module:
    """A layer with what follows it."""
    sizes = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None}
    tensors = {f"linear.{name}": one.detach().float().cpu().clone() for name, one in layer.named_parameters()}
    return Module("Dense", {**sizes, "activation_function": activation}, tensors)


def write_modules(folder: Path, modules: Sequence[Module], deliverable: Deliverable) -> None:
    """A folder for each, the list of them, and beside them the run's head; nothing where there are none."""
    if not modules:
        return
    head = deliverable.classifier.head
    tensors = {name: one.detach().float().cpu().clone() for name, one in head.named_parameters()}
    save_file(tensors, folder / HEAD, {"format": "pt"})
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}.Transformer"}]
    for at, module in enumerate(modules, 1):
        place = folder / f"{at}_{module.kind}"
        place.mkdir()
        write_json(place / "config.json", module.config)
        if module.tensors:
            save_file(module.tensors, place / "model.safetensors", {"format": "pt"})
        listed.append({"idx": at, "name": str(at), "path": place.name, "type": f"{MODULES}.{module.kind}"})
    write_json(folder / "modules.json", listed)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": deliverable.max_length, "do_lower_case": False})


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
