"""The model card, README.md of a model's folder: what the model is, how good it is and how to open it."""

import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

import manyheads.plugin as plugin
from manyheads.config import ModelConfig
from manyheads.inference.format import Settings
from manyheads.inference.predictor import ShapeWords
from manyheads.runs.summary import Interval, moved_by, words_of

MOST_LABELS = 100  # that a card names
FIGURE = "| figure | value |"
CALIBRATED, AFTER = "Calibrated by", "after calibrate"  # how a card says it


def write_card(
    settings: Settings,
    *,
    n_parameters: int,
    labels: Sequence[str] = (),
    thresholds: Sequence[float] | None = None,
    figures: dict[str, str] | None = None,
    tokenizer: Tokenizer | None = None,
) -> str:
    """README.md: what the model is, how good it is and how to open it, as far as that is known before it is judged: see
    `add_results`.

    Args:
        figures: lines such as `{"test accuracy": "0.912 (0.900 to 0.924)"}`.
        tokenizer: where it is known, how a mask is written in a text.
    """
    kind, layers = _shape(settings.model)
    shape = ShapeWords(kind, f"of {n_parameters:,} parameters", layers, f"{settings.model.positions} positions")
    about = plugin.resolve(plugin.task(settings.task).predictor).about(settings, shape, labels, tokenizer)
    of_labels = ["", *_labels(labels, thresholds)] if plugin.task(settings.task).has_classes else []
    plain = " What\n`manyheads export format=onnx` writes of it opens without manyheads." * (
        settings.task == "classify"
    )
    use = [
        "## Use",
        "",
        "```python",
        "import manyheads",
        f'{about.name} = manyheads.load("this folder")',
        f"print({about.name}.{about.call})",
        "```",
        "",
        f"It opens with manyheads, for which torch, safetensors and tokenizers have to be installed.{plain}",
        "Nothing in the folder is code.",
    ]
    return "\n".join([f"# {about.title}", "", about.what, "", *_figures(figures or {}), *use, *of_labels]) + "\n"


def add_results(card: str, figures: dict[str, str], notes: list[str]) -> str:
    """`card` with these `figures` in place of those it has, and `notes` before them, a paragraph each."""
    head, use, rest = card.partition("\n## Use\n")
    head = head.partition("\n## Figures\n")[0].rstrip("\n")
    paragraphs = [line for note in notes for line in (_plain(note), "")]
    return "\n".join([head, "", *paragraphs, *_figures(figures)]) + use + rest


def calibrated_card(
    card: str,
    fitted: dict[str, Any],
    labels: Sequence[str],
    thresholds: Sequence[float] | None,
    figures: dict[str, str] | None = None,
) -> str:
    """`card` after `manyheads calibrate`, which found `fitted`: figures of the model that it changed give way to those
    after it, and labels have the probabilities from which on they are given now.

    Args:
        figures: of the model before it, as in `add_results`; None: those of the card, which an earlier calibration has
            taken some of.
    """
    changed = moved_by(fitted["method"], multi=thresholds is not None)

    def stays(line: str) -> bool:
        split, _, figure = line.removeprefix("| ").partition(" |")[0].partition(" ")
        of_model = split in ("validation", "test") and " of the " not in figure
        return not figure.endswith(AFTER) and not (of_model and changed(figure.replace(" ", "_").lower()))

    head, use, rest = card.partition("\n## Use\n")
    head, _, table = head.partition("\n## Figures\n")
    before = _figures(figures) if figures else table.split("\n")
    rows = [line for line in before if line.startswith("| ") and line != FIGURE and stays(line)]
    rows += [f"| {words_of(name)} {AFTER} | {Interval(**one).words} |" for name, one in fitted["after"].items()]
    for label, threshold in zip(labels, thresholds or (), strict=False):
        label = _plain(label)
        line = rf"^(- {re.escape(label)}, from )[\d.]+ on$"
        rest = re.sub(line, rf"\g<1>{threshold:.3f} on", rest, flags=re.MULTILINE)
    earlier = "; how it compares with other models was measured before that" if changed("accuracy") else ""
    said = (
        f"{CALIBRATED} {fitted['method']} on {fitted['rows']:,} rows of {_plain(fitted['source'])}{earlier}. Figures "
        f"{AFTER} are of five folds of these rows, each mapped by what the others fitted."
    )
    head = re.sub(f"\n{CALIBRATED} .*\n?", "", head).rstrip("\n")
    return "\n".join([head, "", said, "", "## Figures", "", FIGURE, "|---|---|", *rows, ""]) + use + rest


def _shape(model: ModelConfig) -> tuple[str, str]:
    """What a model is, and its size."""
    if not model.has_heads:
        describe = model.facts("encoder").get("describe")
        if describe:
            return plugin.resolve(describe)(model)
        return model.encoder, f"{model.n_layers} layers, d_model={model.d_model}"
    heads = f"{model.n_heads} heads (d_k={model.d_k}, d_v={model.d_v})"
    return "Transformer", f"{model.n_layers} layers, {heads}, d_model={model.d_model}, d_ff={model.d_ff}"


def _labels(labels: Sequence[str], thresholds: Sequence[float] | None) -> list[str]:
    lines = ["## Classes" if thresholds is None else "## Labels, and the probability from which on each is given", ""]
    for at, label in enumerate(labels[:MOST_LABELS]):
        line = f"- {_plain(label)}"
        if thresholds is not None:
            line += f", from {thresholds[at]:.3f} on"
        lines.append(line)
    if len(labels) > MOST_LABELS:
        lines.append(f"- and {len(labels) - MOST_LABELS} more, in labels.json")
    return lines


def _figures(figures: dict[str, str]) -> list[str]:
    if not figures:
        return []
    rows = [f"| {_plain(name)} | {_plain(value)} |" for name, value in figures.items()]
    return ["## Figures", "", FIGURE, "|---|---|", *rows, ""]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    one_line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in one_line)
