"""Small random models of each family, written by transformers, and our networks with their weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.family.read import read_family
from manyheads.family.shapes import Shape, read_shape
from manyheads.nn import Classifier, assemble

transformers = pytest.importorskip("transformers")

LENGTHS = [7, 1, 12, 4]
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
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", BERT),
    "roberta": ("Roberta", BERT | {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRoberta", BERT | {"type_vocab_size": 1}),
    "electra": ("Electra", BERT | {"embedding_size": 10}),
    "distilbert": ("DistilBert", DISTILBERT),
    "modernbert": ("ModernBert", MODERNBERT),
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

    def build(folder: Path, max_length: int = 0, n_classes: int = N_CLASSES, **typed: Any) -> tuple[Classifier, Shape]:
        shape = read_shape(folder)
        shape.model.update(typed)
        network = assemble(
            shape.config(),
            vocab_size=shape.vocab_size,
            n_classes=n_classes,
            max_length=max_length or shape.max_length,
            n_segments=2,
        ).eval()
        wanted = {name: value.shape for name, value in network.state_dict().items()}
        found = read_family(folder, shape, wanted)
        left = network.load_state_dict(found, strict=False).missing_keys
        assert all(name.startswith(("head.", "pooling.")) for name in left)
        return network, shape

    return build
