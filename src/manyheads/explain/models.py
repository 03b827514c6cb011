"""The small models of `explain`: two that it trains, what their layers hold of a text, and that order is not seen.

They are trained by the library itself, as `manyheads train` would. The recipe names every setting by its value, so that
the figures of docs/attention.md stay those of the recipe the page describes, whatever a default becomes. A test refuses
a setting that is missing here: give a new one the value that leaves these models as they are.

Exchange the tokens of a text and an encoder gives the same vectors, exchanged: positions, a causal mask or a window
end that.

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

from manyheads.config import ExplainConfig, ModelConfig, Positions, RunConfig
from manyheads.config.fields import from_plain
from manyheads.evaluation.report import BLUE, RED, draw, png
from manyheads.explain.explain import Finding
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.transformer import Encoder, EncoderLayer
from manyheads.training_run import train

RECIPE: dict[str, Any] = {
    "task": "classify", "init_from": "", "teacher": "", "linear": False, "resume": "never", "test": True, "dry": False,
    "budget": "",
    "data": {
        "source": "files", "hub": "", "hub_config": "", "revision": "", "text": "text", "text_pair": "text_pair",
        "label": "label", "target": "target", "train_split": "train", "validation_split": "validation",
        "test_split": "test", "validation_share": 0.1, "test_share": 0.1, "split_seed": None, "max_length": 512,
        "long": "cut", "stride": 0, "windows": 32, "rows": 0, "on_bad_row": "raise",
    },
    "tokenizer": {"kind": "wordpiece", "vocab_size": 8192, "lowercase": True, "path": ""},
    "batch": {"tokens": 8192, "rows": 64, "accumulate": 1, "balance": "none"},
    "model": {
        "encoder": "transformer", "bidirectional": True, "n_layers": 2, "n_heads": 4, "n_kv_heads": 0, "d_model": 64,
        "d_embedding": 0, "d_k": 16, "d_v": 16, "d_ff": 128, "score": "scaled_dot", "scores": [],
        "normaliser": "softmax", "scale": None, "project": True, "project_output": True, "window": 0, "windows": [],
        "causal": False, "activation": "gelu", "positions": "sinusoidal", "rotary_base": 10000.0,
        "rotary_base_window": None, "segments": "pairs", "pair": "joint", "norm": "layer", "norm_eps": None,
        "placement": "pre", "norm_bias": True, "norm_embedding": False, "pooling": "mean", "pooler": "none",
        "bias": True, "qk_norm": False, "zero_output": False, "matches": False, "dropout": 0.0,
        "dropout_embedding": None, "dropout_residual": None, "dropout_classifier": None, "dropout_attention": 0.0,
    },
    "optim": {
        "lr": 0.002, "few": 0, "few_epochs": 0, "steps_per_class": 0,
        "head_lr": None, "layer_decay": 1.0, "scale_embedding_lr": False, "freeze": 0, "thaw": 0.0,
        "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-08, "warmup": 0.06, "schedule": "linear",
        "decay_share": 0.2, "teacher_weight": 0.5, "teacher_temperature": 2.0, "class_weights": "none",
        "focal_gamma": 0.0,
    },
    "pretrain": {"mask_share": 0.15, "hide": "mask", "whole_words": False, "also": [], "before": ""},
    "checkpoint": {"metric": "accuracy", "patience": 0, "every": 0, "keep": 2},
    "guard": {"nonfinite": "raise", "at_most": 5, "halve": True},
    "hardware": {
        "accelerator": "cpu", "devices": 1, "nodes": 1, "strategy": "auto", "precision": "fp32", "threads": 1,
        "timeout": 600, "compile": "never", "recompute": False,
    },
    "slurm": {"script": False, "time": "", "partition": "", "account": "", "options": ""},
    "logger": {
        "tensorboard": False, "mlflow": False, "wandb": False, "trackio": False, "every": 50, "project": "manyheads",
    },
    "trainer": {"max_epochs": 1000, "gradient_clip_val": 1.0},
}  # fmt: skip
N_TOKENS, N_ORDERS, VOCAB = 16, 20, 50
CASES = {
    "no positions": {},
    "no positions, in float32": {},
    "sinusoidal": {"positions": Positions.sinusoidal},
    "sinusoidal, each token keeps its own": {"positions": Positions.sinusoidal},
    "learned": {"positions": Positions.learned},
    "rotary": {"positions": Positions.rotary},
    "alibi": {"positions": Positions.alibi},
    "no positions, causal": {"causal": True},
    "no positions, window of 2": {"window": 2},
}


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
        Path(folder, "data").mkdir()
        for split, rows in splits.items():
            with Path(folder, "data", f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("text", "label"), *rows])
        own = {"data.path": f"{folder}/data", "data.cache": f"{folder}/cache", "output": f"{folder}/run"}
        run = run_of({**own, "seed": seed, "trainer.max_steps": config.steps, **regularisers})
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
def read_text(model: TextClassifier, classifier: Classifier, text: str) -> tuple[list[str], Tensor, Tensor]:
    """The tokens of a text; their vectors, bare words first, then with positions, then above each layer, the last
    normed, `(Y + 2, N, D)`; and the weights of each layer, `(Y, H, N, N)`."""
    encoding = model.tokenizer.encode(text)
    ids_N, layout = torch.tensor(encoding.ids), Packed.of_lengths([len(encoding)])
    encoder, embeddings = cast(Encoder, classifier.encoder), classifier.embeddings
    x_ND, vectors, weights = embeddings(ids_N, layout), [embeddings.words(ids_N)], []
    vectors.append(x_ND)
    for layer in cast(Iterable[EncoderLayer], encoder.layers):
        block = cast(MultiHeadAttention, layer.attention.block)
        weights_BHLM, _ = block.maps(cast(nn.Module, layer.attention.before)(x_ND), layout)
        x_ND = layer(x_ND, layout)
        weights.append(weights_BHLM[0])
        vectors.append(x_ND)
    vectors[-1] = encoder.norm(x_ND)
    return encoding.tokens, torch.stack(vectors), torch.stack(weights)


def order(config: ExplainConfig) -> Finding:
    """Largest difference between the encoded exchange and the exchanged encoding, over twenty orders of 16 tokens."""
    numbers = {}
    for case, settings in CASES.items():
        torch.manual_seed(config.seed)
        dtype = torch.float32 if "float32" in case else torch.float64
        numbers[case] = differences(
            build(from_plain(ModelConfig, RECIPE["model"] | {"positions": Positions.none} | settings)).to(dtype),
            carried="keeps its own" in case,
            random=torch.Generator().manual_seed(config.seed),
        )
    without, with_them = numbers["no positions"]["token_vectors"], numbers["sinusoidal"]["token_vectors"]
    says = f"exchanged tokens change the encoder by {without:.1e} without positions, by {with_them:.1f} with sinusoidal"
    figures = {"n_tokens": N_TOKENS, "orders": N_ORDERS, "cases": numbers}
    return Finding(says, figures, {"order": _order_picture(numbers)})


def build(model: ModelConfig) -> Classifier:
    """Untrained, as training would start it."""
    return assemble(model, vocab_size=VOCAB, n_classes=4, max_length=N_TOKENS).eval()


@torch.no_grad()
def differences(classifier: Classifier, *, carried: bool, random: torch.Generator) -> dict[str, float]:
    """Largest |encode(P x) − P encode(x)| of a number, and |logits(P x) − logits(x)|.

    Args:
        carried: exchange the embedded vectors, so that a token takes its added position along.
    """
    layout = Packed.of_lengths([N_TOKENS])
    ids_N = torch.randint(VOCAB, (N_TOKENS,), generator=random)
    vectors_ND = classifier.embeddings(ids_N, layout)

    def encode(order_N: Tensor) -> Tensor:
        embedded = vectors_ND[order_N] if carried else classifier.embeddings(ids_N[order_N], layout)
        return classifier.encoder(embedded, layout)

    def logits(encoded_ND: Tensor) -> Tensor:
        return classifier.head(classifier.pooling(encoded_ND, layout))

    plain_ND = encode(torch.arange(N_TOKENS))
    vectors, answers = [], []
    for _ in range(N_ORDERS):
        order_N = torch.randperm(N_TOKENS, generator=random)
        encoded_ND = encode(order_N)
        vectors.append(encoded_ND - plain_ND[order_N])
        answers.append(logits(encoded_ND) - logits(plain_ND))
    return {
        name: float(torch.stack(gaps).abs().max()) for name, gaps in (("token_vectors", vectors), ("logits", answers))
    }


def _order_picture(numbers: dict[str, dict[str, float]]) -> bytes:
    figure, panels = draw(1, 1, width=7.6, height=3.6)
    axes = panels[0, 0]
    cases = list(numbers)[::-1]
    errors = [numbers[case]["token_vectors"] for case in cases]
    axes.barh(cases, errors, color=[RED if error > 1e-3 else BLUE for error in errors], height=0.62)
    for row, error in enumerate(errors):
        axes.text(error * 1.6, row, f"{error:.0e}" if error < 1e-3 else f"{error:.2f}", va="center", fontsize=8)
    axes.set(xscale="log", xlim=(1e-17, 1e3), xlabel="largest difference of a number in a token vector")
    axes.bar(0, 0, color=BLUE, label="the same vectors, exchanged")
    axes.bar(0, 0, color=RED, label="other vectors: order is seen")
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x", color="#e6e9ef", linewidth=0.8)
    return png(figure)
