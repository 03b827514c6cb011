"""README.md of a deliverable: what it is, what it answers, how good it is, how to open it."""

from manyheads.config import ModelConfig, PairKind

MOST_LABELS = 100


def write_card(
    model: ModelConfig,
    *,
    labels: list[str],
    pairs: bool,
    n_parameters: int,
    figures: dict[str, str] | None = None,
    thresholds: list[float] | None = None,
    linear: float = 0.0,
    terms: str = "",
) -> str:
    """Markdown. `figures` are lines such as `{"test accuracy": "0.912 (0.900 to 0.924)"}`, as far as they are known
    before the model is judged: see `judged_card`. With `thresholds` a text has any number of labels; `linear` is the
    share of a linear model of `terms` in each answer."""
    apart = ", read apart and then across," if model.pair is PairKind.cross else ""
    takes = f"pairs of texts{apart}" if pairs else "texts"
    beside = [""] * len(labels) if thresholds is None else [f", from {one:.3f} on" for one in thresholds]
    shown = [f"- {_plain(label)}{one}" for label, one in zip(labels[:MOST_LABELS], beside, strict=False)]
    more = [f"- and {len(labels) - MOST_LABELS} more, in labels.json"] if len(labels) > MOST_LABELS else []
    sorts = f"sorts {takes} into {len(labels)} classes"
    tells = f"tells of {takes} which of {len(labels)} labels they have, none, one or several"
    call = '["a text"], ["its pair"]' if pairs else '["a text"]'
    lines = [
        "# A text classifier",
        "",
        f"A {'recurrent' if model.is_recurrent else 'Transformer'} encoder of {n_parameters:,} parameters that "
        f"{sorts if thresholds is None else tells}: {_shape(model)}, {model.positions.name} positions, "
        f"{model.pooling.name} pooling.",
        *(
            [f"A linear model of {terms} answers with it: {linear:.0%} of each probability are its own."]
            if linear
            else []
        ),
        "",
        *_figures(figures or {}),
        *_use("classifier", f"predict({call})"),
        "",
        "## Classes" if thresholds is None else "## Labels, and the probability from which on each is given",
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


def write_guesser_card(
    model: ModelConfig, *, mask: str, n_parameters: int, figures: dict[str, str] | None = None
) -> str:
    """The same of a model that tells hidden words, for which `mask` stands; it is to be trained further."""
    kind = "recurrent" if model.is_recurrent else "Transformer"
    lines = [
        "# A model that tells hidden words",
        "",
        f"A {kind} encoder of {n_parameters:,} parameters, learnt from texts without labels: {_shape(model)}, "
        f"{model.positions.name} positions. A classifier starts from it: `manyheads train init_from=FOLDER`.",
        "",
        *_figures(figures or {}),
        *_use("guesser", f'fill(["a {mask} text"])'),
    ]
    return "\n".join(lines) + "\n"


def judged_card(card: str, figures: dict[str, str], notes: list[str]) -> str:
    """`card` with these `figures` in place of those it has, and `notes` before them, a paragraph each."""
    head, use, rest = card.partition("\n## Use\n")
    head = head.partition("\n## Figures\n")[0].rstrip("\n")
    paragraphs = [line for note in notes for line in (_plain(note), "")]
    return "\n".join([head, "", *paragraphs, *_figures(figures)]) + use + rest


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
