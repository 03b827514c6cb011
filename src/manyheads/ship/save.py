"""A trained network to the folder of a deliverable: see ship/deliverable.py, which opens it."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from torch import nn

from manyheads.config import DataConfig, ModelConfig, Task
from manyheads.nn import Classifier
from manyheads.ship.linear import FILE as LINEAR
from manyheads.ship.linear import Beside, write_linear
from manyheads.ship.settings import Columns, Settings, write_settings
from manyheads.ship.tensors import write_tensors
from manyheads.whole import replace_folder


def save_deliverable(
    folder: Path,
    classifier: Classifier,
    *,
    model: ModelConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    labels: list[str],
    pairs: bool,
    card: str,
    thresholds: list[float] | None = None,
    alone: dict[str, list[float]] | None = None,
    beside: Beside | None = None,
) -> None:
    """Write the folder, whole or not at all; what was there before is replaced. With `thresholds` a text has any number
    of labels; `alone` are those of the network and of the linear model `beside` it, each asked by itself.

    The same classifier gives the same bytes: the files hold no date, path or id.
    """
    settings = Settings(
        vocab_size=classifier.embeddings.words.num_embeddings,
        n_classes=len(labels),
        max_length=data.max_length,
        long=data.long,
        stride=data.stride,
        windows=data.windows,
        pairs=pairs,
        multi=thresholds is not None,
        linear=beside.share if beside else 0.0,
        terms=beside.linear.terms if beside else None,
        temperature=beside.temperature if beside else 1.0,
        columns=Columns.of(data),
        model=model,
    )
    write_folder(
        folder,
        classifier,
        settings,
        tokenizer,
        labels,
        card,
        {"both": thresholds, **alone} if alone and thresholds else thresholds,
        beside,
    )


def write_folder(
    folder: Path,
    network: nn.Module,
    settings: Settings,
    tokenizer: Tokenizer,
    labels: list[str],
    card: str,
    thresholds: list[float] | dict[str, list[float]] | None = None,
    beside: Beside | None = None,
) -> None:
    """Write every file of a deliverable, whichever its task, or none."""
    plain_tokenizer = Tokenizer.from_str(tokenizer.to_str())
    plain_tokenizer.no_padding()
    plain_tokenizer.no_truncation()
    with replace_folder(folder) as part:
        write_tensors(part / "model.safetensors", network)
        (part / "config.json").write_text(write_settings(settings), encoding="utf-8")
        (part / "labels.json").write_text(json.dumps(labels, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        (part / "tokenizer.json").write_text(plain_tokenizer.to_str(pretty=True), encoding="utf-8")
        (part / "README.md").write_text(card, encoding="utf-8")
        if thresholds is not None:
            (part / "thresholds.json").write_text(json.dumps(thresholds, indent=0) + "\n", encoding="utf-8")
        if beside is not None:
            write_linear(part / LINEAR, beside.linear)


def save_without_classes(
    folder: Path,
    network: nn.Module,
    task: Task,
    *,
    vocab_size: int,
    model: ModelConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    pairs: bool,
    card: str,
) -> None:
    """The same of a model of another task; vocab_size: rows of its embedding."""
    settings = Settings(
        task=task,
        vocab_size=vocab_size,
        n_classes=0,
        max_length=data.max_length,
        pairs=pairs,
        columns=Columns.of(data),
        model=model,
    )
    write_folder(folder, network, settings, tokenizer, [], card)
