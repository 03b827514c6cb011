"""A small model trained by the library itself, as `manyheads train` would, and what its layers hold of a text.

N tokens of a text, with the marks around it . Y layers . H heads . D d_model
"""

import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from torch import Tensor, nn

from manyheads.config.explain import ExplainConfig
from manyheads.explain.recipe import run_of
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.encoder import Encoder, EncoderLayer
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.ship.deliverable import Deliverable, load
from manyheads.train import train


def train_small(
    config: ExplainConfig, regularisers: Mapping[str, float], *, seed: int, splits: dict[str, list[tuple[str, str]]]
) -> tuple[Deliverable, dict[str, float]]:
    """Train two layers of four heads for `config.steps` steps.

    Args:
        regularisers: settings in which the two models differ, by dotted name (see recipe.py).
        seed: of the weights and the order of the rows.
        splits: rows (text, label) of train, validation and test.

    Returns:
        The model, and its test accuracy beside that of the better cheap model (see judge/baselines.py).
    """
    with TemporaryDirectory() as folder:
        places = {"data.path": str(_write(splits, Path(folder, "data"))), "data.cache": f"{folder}/cache"}
        own = {"output": f"{folder}/run", "seed": seed, "trainer.max_steps": config.steps}
        run = run_of({**places, **own, **regularisers})
        with redirect_stdout(io.StringIO()):  # its table: here the figures are printed by each claim
            summary = train(run)
        assert summary is not None
        words_alone = max(figures["accuracy"].value for figures in summary.baselines.values())
        figures = {
            "test_accuracy": summary.test["accuracy"].value,
            "bag_of_words_accuracy": words_alone,
            "steps": summary.steps,
            "parameters": summary.parameters,
        }
        return load(f"{folder}/run"), figures


def untrained(model: Deliverable, seed: int) -> Classifier:
    """The same architecture with fresh weights."""
    torch.manual_seed(seed)
    return assemble(
        model.model,
        vocab_size=model.classifier.embeddings.words.num_embeddings,
        n_classes=len(model.labels),
        max_length=model.max_length,
    ).eval()


@torch.no_grad()
def vectors_and_weights(classifier: Classifier, ids_N: Tensor) -> tuple[Tensor, Tensor]:
    """The token vectors of one text, bare words first, then with positions, then above each layer, the last normed;
    and the weights of each layer: `(Y + 2, N, D)`, `(Y, H, N, N)`."""
    layout = Packed.of_lengths([ids_N.numel()])
    encoder, x_ND = cast(Encoder, classifier.encoder), classifier.embeddings(ids_N, layout)
    vectors, weights = [bare_words(classifier.embeddings, ids_N), x_ND], []
    for layer in cast(Iterable[EncoderLayer], encoder.layers):
        block = cast(MultiHeadAttention, layer.attention.block)
        weights_BHLM, _ = block.maps(cast(nn.Module, layer.attention.before)(x_ND), layout)
        x_ND = layer(x_ND, layout)
        weights.append(weights_BHLM[0])
        vectors.append(x_ND)
    vectors[-1] = encoder.norm(x_ND)
    return torch.stack(vectors), torch.stack(weights)


def bare_words(embeddings: Embeddings, ids_N: Tensor) -> Tensor:
    """Word vectors without positions, as wide as tokens: `(N, D)`."""
    words = embeddings.words(ids_N)
    return words if embeddings.widen is None else embeddings.widen(words)


def _write(splits: dict[str, list[tuple[str, str]]], folder: Path) -> Path:
    folder.mkdir()
    for split, rows in splits.items():
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    return folder
