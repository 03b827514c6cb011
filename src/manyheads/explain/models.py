"""The two small models that `explain` trains, and what their layers hold of a text.

They are trained by the library itself, as `manyheads train` would. The recipe names every setting by its value, so that
the figures of docs/attention.md stay those of the recipe the page describes, whatever a default becomes. A test refuses
a setting that is missing here: give a new one the value that leaves these models as they are.

N tokens of a text, with the marks around it . Y layers . H heads . D d_model
"""

import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from manyheads.config import ExplainConfig, ModelConfig, RunConfig
from manyheads.config.fields import from_plain
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.encoder import Encoder, EncoderLayer
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.training_run import train

RECIPE: dict[str, Any] = {
    "task": "classify",
    "init_from": "",
    "teacher": "",
    "linear": False,
    "resume": "never",
    "test": True,
    "dry": False,
    "budget": "",
    "data": {
        "source": "files",
        "hub": "",
        "hub_config": "",
        "revision": "",
        "text": "text",
        "text_pair": "text_pair",
        "label": "label",
        "target": "target",
        "train_split": "train",
        "validation_split": "validation",
        "test_split": "test",
        "validation_share": 0.1,
        "test_share": 0.1,
        "split_seed": None,
        "max_length": 512,
        "long": "cut",
        "stride": 0,
        "windows": 32,
        "rows": 0,
        "on_bad_row": "raise",
    },
    "tokenizer": {
        "kind": "wordpiece",
        "vocab_size": 8192,
        "lowercase": True,
        "path": "",
    },
    "batch": {
        "tokens": 8192,
        "rows": 64,
        "accumulate": 1,
    },
    "model": {
        "encoder": "transformer",
        "bidirectional": True,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 0,
        "d_model": 64,
        "d_embedding": 0,
        "d_k": 16,
        "d_v": 16,
        "d_ff": 128,
        "score": "scaled_dot",
        "scores": [],
        "normaliser": "softmax",
        "scale": None,
        "project": True,
        "project_output": True,
        "window": 0,
        "windows": [],
        "causal": False,
        "activation": "gelu",
        "positions": "sinusoidal",
        "rotary_base": 10000.0,
        "rotary_base_window": None,
        "segments": "pairs",
        "pair": "joint",
        "norm": "layer",
        "norm_eps": None,
        "placement": "pre",
        "norm_bias": True,
        "norm_embedding": False,
        "pooling": "mean",
        "pooler": "none",
        "bias": True,
        "qk_norm": False,
        "zero_output": False,
        "matches": False,
        "dropout": 0.0,
        "dropout_embedding": None,
        "dropout_residual": None,
        "dropout_classifier": None,
        "dropout_attention": 0.0,
    },
    "optim": {
        "kind": "adamw",
        "lr": 0.002,
        "muon_lr": None,
        "few": 0,
        "few_epochs": 0,
        "steps_per_class": 0,
        "head_lr": None,
        "layer_decay": 1.0,
        "scale_embedding_lr": False,
        "freeze": 0,
        "thaw": 0.0,
        "weight_decay": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-08,
        "warmup": 0.06,
        "schedule": "linear",
        "decay_share": 0.2,
        "teacher_weight": 0.5,
        "teacher_temperature": 2.0,
        "class_weights": "none",
    },
    "pretrain": {
        "mask_share": 0.15,
        "hide": "mask",
        "whole_words": False,
        "also": [],
        "before": "",
    },
    "checkpoint": {
        "metric": "accuracy",
        "patience": 0,
        "every": 0,
        "keep": 2,
    },
    "guard": {
        "nonfinite": "raise",
        "at_most": 5,
        "halve": True,
    },
    "hardware": {
        "accelerator": "cpu",
        "devices": 1,
        "nodes": 1,
        "strategy": "auto",
        "precision": "fp32",
        "threads": 1,
        "timeout": 600,
        "compile": "never",
        "recompute": False,
    },
    "slurm": {
        "script": False,
        "time": "",
        "partition": "",
        "account": "",
        "options": "",
    },
    "logger": {
        "kind": "csv",
        "every": 50,
        "project": "manyheads",
    },
    "trainer": {
        "max_epochs": 1000,
        "gradient_clip_val": 1.0,
    },
}


def model_of(own: Mapping[str, Any]) -> ModelConfig:
    """The model of the recipe with what is its own, by name."""
    return from_plain(ModelConfig, {**RECIPE["model"], **own}, "model.")


def run_of(own: Mapping[str, Any]) -> RunConfig:
    """The run of the recipe with what is its own, by dotted name: data, folders, seed, steps and regularisers."""
    plain = {name: dict(value) if isinstance(value, dict) else value for name, value in RECIPE.items()}
    for name, value in own.items():
        section, _, key = name.rpartition(".")
        (plain[section] if section else plain)[key] = value
    return from_plain(RunConfig, plain)


def train_small(
    config: ExplainConfig, regularisers: Mapping[str, float], *, seed: int, splits: dict[str, list[tuple[str, str]]]
) -> tuple[TextClassifier, dict[str, float]]:
    """Train two layers of four heads for `config.steps` steps.

    Args:
        regularisers: settings in which the two models differ, by dotted name (see RECIPE).
        seed: of the weights and the order of the rows.
        splits: rows (text, label) of train, validation and test.

    Returns:
        The model, and its test accuracy beside that of the better cheap model (see evaluation/classification.py).
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
        return load(f"{folder}/run", TextClassifier), figures


def untrained(model: TextClassifier, seed: int) -> Classifier:
    """The same architecture with fresh weights."""
    torch.manual_seed(seed)
    return assemble(
        model.model,
        vocab_size=model.network.embeddings.words.num_embeddings,
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
