"""Small random models of each family, written by transformers or by hand, and our networks with their weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from manyheads.nn import Classifier, assemble
from manyheads.plugins.hub.shapes import Shape, read_shape
from manyheads.plugins.hub.weights import read_family

VOCAB, N_CLASSES, PAD = 53, 3, 1
BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
    "num_labels": N_CLASSES,
    "pad_token_id": PAD,
}
DISTILBERT = {
    "vocab_size": VOCAB,
    "dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 40,
    "max_position_embeddings": 16,
    "num_labels": N_CLASSES,
    "pad_token_id": PAD,
}
MODERNBERT = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 36,
    "max_position_embeddings": 16,
    "local_attention": 4,
    "num_labels": N_CLASSES,
    "pad_token_id": PAD,
}
DEBERTA = BERT | {
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", BERT),
    "roberta": ("Roberta", BERT | {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRoberta", BERT | {"type_vocab_size": 1}),
    "electra": ("Electra", BERT | {"embedding_size": 10}),
    "distilbert": ("DistilBert", DISTILBERT),
    "modernbert": ("ModernBert", MODERNBERT),
    "deberta-v2": ("DebertaV2", DEBERTA),
}


def randomise(model: torch.nn.Module) -> None:
    """Every parameter anew: biases and norms, too."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.normal_(around, 0.2)


@pytest.fixture(scope="session")
def theirs() -> Callable[..., Any]:
    """A model of `kind` for sequences, in eval mode, with options of its config."""

    transformers = pytest.importorskip("transformers")

    def build(kind: str, suffix: str = "ForSequenceClassification", **options: Any) -> Any:
        name, sizes = FAMILIES[kind]
        config = getattr(transformers, f"{name}Config")(**sizes | options, attn_implementation="eager")
        model = getattr(transformers, f"{name}{suffix}")(config).eval()
        randomise(model)
        return model

    return build


@pytest.fixture(scope="session")
def read() -> Callable[..., tuple[Classifier, Shape]]:
    """Our network with the weights of a folder; settings of the model may be typed otherwise."""

    def build(folder: Path, *, max_length: int = 0, head: bool = True, **typed: Any) -> tuple[Classifier, Shape]:
        shape = read_shape(folder)
        shape.model.update(typed)
        network = assemble(
            shape.config(),
            vocab_size=shape.vocab_size,
            n_classes=N_CLASSES,
            max_length=max_length or shape.max_length,
            n_segments=2,
        ).eval()
        wanted = {
            name: value.shape for name, value in network.state_dict().items() if head or not name.startswith("head.")
        }
        found = read_family(folder, shape, wanted)
        left = network.load_state_dict(found, strict=False).missing_keys
        assert all(name.startswith(("head.", "pooling.", "cross.", "embeddings.matches.")) for name in left)
        return network, shape

    return build


BY_HAND: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "vocab_size": 9,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 8,
    "id2label": {"0": "no", "1": "yes", "2": "who knows"},
}
OF_A_LAYER = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")


def tensors_by_hand() -> dict[str, Tensor]:
    sizes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (9, 4),
        "bert.embeddings.position_embeddings.weight": (8, 4),
        "bert.embeddings.token_type_embeddings.weight": (2, 4),
        "bert.encoder.layer.0.intermediate.dense.weight": (6, 4),
        "bert.encoder.layer.0.intermediate.dense.bias": (6,),
        "bert.encoder.layer.0.output.dense.weight": (4, 6),
        "bert.encoder.layer.0.output.dense.bias": (4,),
        "classifier.weight": (3, 4),
        "classifier.bias": (3,),
    }
    for name in (*(f"bert.encoder.layer.0.{one}" for one in OF_A_LAYER), "bert.pooler.dense"):
        sizes |= {f"{name}.weight": (4, 4), f"{name}.bias": (4,)}
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        sizes |= {f"bert.{name}.LayerNorm.weight": (4,), f"bert.{name}.LayerNorm.bias": (4,)}
    generator = torch.Generator().manual_seed(5)
    return {name: torch.randn(size, generator=generator) for name, size in sizes.items()}


@pytest.fixture
def by_hand(tmp_path: Path) -> Callable[..., Path]:
    """A folder of BERT with other settings and other tensors (None: without), and the tensors."""

    def write(tensors: dict[str, Tensor | None] | None = None, **settings: Any) -> Path:
        held = tensors_by_hand() | (tensors or {})
        save_file({name: one for name, one in held.items() if one is not None}, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(BY_HAND | settings))
        return tmp_path

    return write
