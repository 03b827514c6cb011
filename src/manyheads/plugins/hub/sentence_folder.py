"""A classifier as a folder of sentence-transformers: an encoder, the modules that pool its tokens, and the run's head.

D d_model . C classes . n texts
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from manyheads.config import Pooler
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.nn.classifier import Pooler as PoolerLayer
from manyheads.plugins.hub.graph import quietly
from manyheads.plugins.hub.parity import Ask
from manyheads.plugins.hub.shapes import Described
from manyheads.plugins.hub.transformers_folder import write_family
from manyheads.runs.files import write_json

MODULES = "sentence_transformers.models"
HEAD = "head.safetensors"
"""`weight` `(C, D)` and `bias` `(C,)`: a text's vector to the logits of its classes, which config.json names."""
POOLINGS = {"first": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}
ACTIVATIONS = {
    Pooler.tanh: "torch.nn.modules.activation.Tanh",
    Pooler.relu: "torch.nn.modules.activation.ReLU",
    Pooler.gelu: "torch.nn.modules.activation.GELU",
}


@dataclass(frozen=True, slots=True)
class Module:
    """A module of sentence-transformers: its class, its config.json, its weights if it has any."""

    kind: str
    config: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def modules_of(predictor: TextClassifier) -> list[Module]:
    """The modules from token vectors `(..., D)` to the vector `(..., D)` of a text that the head of the run sees.

    Raises:
        UserError: it pools as none of them does; the rest of a sentence about the run.
    """
    model, classifier = predictor.model, predictor.network
    if model.pooling not in POOLINGS:
        raise UserError(
            f"has model.pooling={format_value(model.pooling)}, which sentence-transformers has no module for: train "
            "one with model.pooling=mean"
        )
    if model.pooler is not Pooler.none and model.pooler not in ACTIVATIONS:
        raise UserError(
            f"has model.pooler={format_value(model.pooler)}, which sentence-transformers has no module for: train one "
            "with model.pooler=tanh"
        )
    pooling: dict[str, Any] = {"word_embedding_dimension": model.d_model}
    for kind, mode in POOLINGS.items():
        pooling[f"pooling_mode_{mode}"] = kind == model.pooling
    modules = [Module("Pooling", pooling)]
    if isinstance(classifier.pooling, PoolerLayer):
        layer = classifier.pooling.dense
        dense = {
            "in_features": layer.in_features,
            "out_features": layer.out_features,
            "bias": layer.bias is not None,
            "activation_function": ACTIVATIONS[model.pooler],
        }
        modules.append(Module("Dense", dense, in_fp32(layer, "linear.")))
    return modules


def in_fp32(layer: nn.Linear, prefix: str = "") -> dict[str, Tensor]:
    """Weight and bias of a layer by name."""
    return {f"{prefix}{name}": tensor.detach().float().cpu().clone() for name, tensor in layer.named_parameters()}


def write_sentence_folder(
    folder: Path, predictor: TextClassifier, described: Described, modules: Sequence[Module]
) -> None:
    """The encoder as one of its family, a folder for each module after it, the list of them, and the run's head."""
    write_family(folder, predictor, described, pooled=False)
    save_file(in_fp32(predictor.network.head), folder / HEAD, {"format": "pt"})
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}.Transformer"}]
    for number, module in enumerate(modules, start=1):
        place = folder / f"{number}_{module.kind}"
        place.mkdir()
        write_json(place / "config.json", module.config)
        if module.tensors:
            save_file(module.tensors, place / "model.safetensors", {"format": "pt"})
        listed.append({"idx": number, "name": str(number), "path": place.name, "type": f"{MODULES}.{module.kind}"})
    write_json(folder / "modules.json", listed)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": predictor.max_length, "do_lower_case": False})


def answer_by_sentence_transformers(folder: Path) -> Ask:
    """The logits by the vectors of the folder's own model, and the head in it."""
    from sentence_transformers import SentenceTransformer

    with quietly():
        model, head = SentenceTransformer(str(folder), device="cpu"), load_file(folder / HEAD)

    def answer(texts: list[str], pairs: list[str] | None) -> Tensor:
        given = texts if pairs is None else list(zip(texts, pairs, strict=True))
        vectors_nD = model.encode(given, convert_to_tensor=True, show_progress_bar=False)
        return vectors_nD.clone() @ head["weight"].T + head["bias"]

    return answer
