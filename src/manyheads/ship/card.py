"""README.md of a deliverable: what it is, what it answers, how good it is, how to open it."""

from manyheads.config import ModelConfig, PairKind

MOST_LABELS = 100


def write_card(
    model: ModelConfig, *, labels: list[str], pairs: bool, n_parameters: int, figures: dict[str, str] | None = None
) -> str:
    """Markdown. `figures` are lines such as `{"test accuracy": "0.912 (0.900 to 0.924)"}`; no date, path or id."""
    apart = ", read apart and then across," if model.pair is PairKind.cross else ""
    takes = f"pairs of texts{apart}" if pairs else "texts"
    shown = [f"- {_plain(label)}" for label in labels[:MOST_LABELS]]
    more = [f"- and {len(labels) - MOST_LABELS} more, in labels.json"] if len(labels) > MOST_LABELS else []
    call = '["a text"], ["its pair"]' if pairs else '["a text"]'
    lines = [
        "# A text classifier",
        "",
        f"A {'recurrent' if model.is_recurrent else 'Transformer'} encoder of {n_parameters:,} parameters that sorts "
        f"{takes} into {len(labels)} classes: {_shape(model)}, {model.positions.name} positions, "
        f"{model.pooling.name} pooling.",
        "",
        *_figures(figures or {}),
        *_use("classifier", f"predict({call})"),
        "",
        "## Classes",
        "",
        *shown,
        *more,
    ]
    return "\n".join(lines) + "\n"


def write_translator_card(model: ModelConfig, *, n_parameters: int, figures: dict[str, str] | None = None) -> str:
    """The same of a model that answers texts by texts."""
    kind = "recurrent encoder and decoder" if model.is_recurrent else "Transformer encoder and decoder"
    lines = [
        "# A model that answers texts by texts",
        "",
        f"A {kind} of {n_parameters:,} parameters: {_shape(model)} on either side, {model.positions.name} positions.",
        "",
        *_figures(figures or {}),
        *_use("translator", 'generate(["a text"], n_beams=1)'),
    ]
    return "\n".join(lines) + "\n"


def _use(name: str, call: str) -> list[str]:
    return [
        "## Use",
        "",
        "```python",
        "import manyheads",
        f'{name} = manyheads.load("this folder")',
        f"print({name}.{call})",
        "```",
        "",
        "It opens with torch, safetensors and tokenizers alone. Nothing in the folder is code.",
    ]


def _shape(model: ModelConfig) -> str:
    if model.is_recurrent:
        ways = "both ways" if model.bidirectional else "one way"
        return f"{model.n_layers} {model.encoder.name.upper()} layers read {ways}, d_model={model.d_model}"
    heads = f"{model.n_heads} heads (d_k={model.d_k}, d_v={model.d_v})"
    return f"{model.n_layers} layers, {heads}, d_model={model.d_model}, d_ff={model.d_ff}"


def _figures(figures: dict[str, str]) -> list[str]:
    if not figures:
        return []
    rows = [f"| {_plain(name)} | {_plain(value)} |" for name, value in figures.items()]
    return ["## Figures", "", "| figure | value |", "|---|---|", *rows, ""]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    one_line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in one_line)
