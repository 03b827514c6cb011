"""The model card, README.md of a model's folder: what the model is, how good it is and how to open it."""

import time
from collections.abc import Sequence

from tokenizers import Tokenizer

import manyheads.plugin as plugin
from manyheads.config import ModelConfig
from manyheads.inference.format import Settings
from manyheads.inference.predictor import ShapeWords
from manyheads.runs.summary import Summary, lead_line, models_of, with_baselines, words_of

MOST_LABELS = 100  # that a card names
FIGURE = "| figure | value |"


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
    task = plugin.task(settings.task)
    kind, layers = describe_shape(settings.model)
    shape = ShapeWords(kind, f"of {n_parameters:,} parameters", layers, f"{settings.model.positions} positions")
    about = plugin.resolve(task.predictor).about(settings, shape, labels, tokenizer)
    opens = "It opens with manyheads, for which torch, safetensors and tokenizers have to be installed."
    if settings.task == "classify":
        opens += " What\n`manyheads export format=onnx` writes of it opens without manyheads."
    lines = [f"# {about.title}", "", about.what, "", *figure_lines(figures or {})]
    lines += [
        "## Use",
        "",
        "```python",
        "import manyheads",
        f'{about.name} = manyheads.load("this folder")',
        f"print({about.name}.{about.call})",
        "```",
        "",
        opens,
        "Nothing in the folder is code.",
    ]
    if task.has_classes:
        lines += ["", *_labels(labels, thresholds)]
    return "\n".join(lines) + "\n"


def add_results(card: str, figures: dict[str, str], notes: list[str]) -> str:
    """`card` with these `figures` in place of those it has, and `notes` before them, a paragraph each."""
    head, use, rest = card.partition("\n## Use\n")
    head = head.partition("\n## Figures\n")[0].rstrip("\n")
    paragraphs = []
    for note in notes:
        paragraphs += [plain_line(note), ""]
    return "\n".join([head, "", *paragraphs, *figure_lines(figures)]) + use + rest


def card_figures(summary: Summary) -> dict[str, str]:
    """What a model card says of the split that the run was judged on: the first four figures of the model, and the main
    figure of the others, with their intervals."""
    split, main = summary.judged_on, next(iter(summary.validation))
    models = with_baselines(models_of(summary, split), summary.baselines)
    own, *others = models
    shown = {}
    for figure, interval in list(models[own].items())[:4]:
        shown[f"{split} {words_of(figure)}"] = interval.words
    for name in others:
        if main in models[name]:
            shown[f"{split} {words_of(main)} of the {name}"] = models[name][main].words
    return shown


def card_notes(summary: Summary, data: str) -> list[str]:
    """What a model card says of the training, the lead and the warnings, a paragraph each."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = ", ".join(f"{n:,} for {name}" for name, n in summary.rows.items())
    notes = [f"Trained on {data} until {day} (UTC); rows: {rows}. 95 % intervals are in brackets."]
    lead = lead_line(summary.leads, summary.baselines, summary.judged_on)
    for line in (lead, *summary.warnings):
        if line:
            notes.append(f"{line[:1].upper()}{line[1:]}.")
    return notes


def describe_shape(model: ModelConfig) -> tuple[str, str]:
    """What a model is, and its size."""
    if not model.has_heads:
        describe = model.facts("encoder").get("describe")
        if describe:
            return plugin.resolve(describe)(model)
        return model.encoder, f"{model.n_layers} layers, d_model={model.d_model}"
    heads = f"{model.n_heads} head{'s' * (model.n_heads != 1)} (d_k={model.d_k}, d_v={model.d_v})"
    layers = f"{model.n_layers} layer{'s' * (model.n_layers != 1)}"
    return "Transformer", f"{layers}, {heads}, d_model={model.d_model}, d_ff={model.d_ff}"


def _labels(labels: Sequence[str], thresholds: Sequence[float] | None) -> list[str]:
    lines = ["## Classes" if thresholds is None else "## Labels, and the probability from which on each is given", ""]
    for at, label in enumerate(labels[:MOST_LABELS]):
        line = f"- {plain_line(label)}"
        if thresholds is not None:
            line += f", from {thresholds[at]:.3f} on"
        lines.append(line)
    if len(labels) > MOST_LABELS:
        lines.append(f"- and {len(labels) - MOST_LABELS} more, in labels.json")
    return lines


def figure_lines(figures: dict[str, str]) -> list[str]:
    if not figures:
        return []
    rows = [f"| {plain_line(name)} | {plain_line(value)} |" for name, value in figures.items()]
    return ["## Figures", "", FIGURE, "|---|---|", *rows, ""]


def plain_line(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    one_line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in one_line)
