"""A trained network to the folder of a deliverable, with its card; and its tensors back.

README.md of a deliverable: what it is, what it answers, how good it is, how to open it.

model.safetensors: a model's tensors, checked against config.json before anything is allocated.

A trained network to the folder of a deliverable: see inference/classifier.py, which opens it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

from manyheads.config import DataConfig, ModelConfig, PairKind, Task
from manyheads.inference.format import Columns, Settings, check_size, write_settings
from manyheads.linear.member import FILE as LINEAR
from manyheads.linear.member import Beside, write_linear
from manyheads.nn import Classifier, assemble
from manyheads.nn.masked_lm import MaskedLM, assemble_masked
from manyheads.nn.seq2seq import Seq2Seq, assemble_seq2seq
from manyheads.runs.atomic import replace_folder

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
    tells = f"says of {takes} which of {len(labels)} labels they have, none, one or several"
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
        "# A model that predicts hidden words",
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


Network = TypeVar("Network", bound=nn.Module)
Shapes = dict[str, tuple[str, list[int]]]


def write_tensors(path: Path, network: nn.Module) -> None:
    """All parameters in fp32, in the same bytes for the same values."""
    save_file({name: value.detach().float().cpu().clone() for name, value in network.state_dict().items()}, path)


def read_classifier(path: Path, settings: Settings) -> Classifier:
    """Build the classifier of `settings` with the tensors of `path`; torch's generator is left as it was.

    Raises:
        ValueError: not a safetensors file; tensors missing, too many, of another shape or type, or not finite.
    """

    def build() -> Classifier:
        return assemble(
            settings.model,
            vocab_size=settings.vocab_size,
            n_classes=settings.n_classes,
            max_length=settings.max_length,
            n_segments=2 if settings.pairs else 0,
        )

    return _read(path, settings, build)


def read_seq2seq(path: Path, settings: Settings) -> Seq2Seq:
    """The same of a model that answers by texts."""
    sizes = {"vocab_size": settings.vocab_size, "max_length": settings.max_length}
    return _read(path, settings, lambda: assemble_seq2seq(settings.model, **sizes))


def read_masked(path: Path, settings: Settings) -> MaskedLM:
    """The same of a model that tells hidden words."""
    sizes = {"vocab_size": settings.vocab_size, "max_length": settings.max_length}
    return _read(
        path, settings, lambda: assemble_masked(settings.model, **sizes, n_segments=2 if settings.pairs else 0)
    )


def _read(path: Path, settings: Settings, build: Callable[[], Network]) -> Network:
    held = _held(path)
    check_size(path, sum(torch.Size(shape).numel() for _, shape in held.values()), settings)
    with torch.random.fork_rng(devices=[]):
        network = build()
    _compare(path, held, network)
    tensors = load_file(path)
    broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken:
        raise ValueError(f"{path}: tensor {broken} holds values that are not finite numbers")
    network.load_state_dict(tensors)
    return network.eval()


def _held(path: Path) -> Shapes:
    """Type and shape of every tensor, from the file's header alone."""
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            return {name: (one.get_dtype(), list(one.get_shape())) for name, one in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def _compare(path: Path, held: Shapes, network: nn.Module) -> None:
    """Raise ValueError unless `held` is exactly what config.json describes."""
    beside = f"{path} does not fit config.json beside it"
    wanted: Shapes = {name: ("F32", list(value.shape)) for name, value in network.state_dict().items()}
    for name in sorted(wanted.keys() ^ held.keys()):
        raise ValueError(f"{beside}: tensor {name!r} is {'missing' if name in wanted else 'not part of the model'}")
    for name, (kind, shape) in wanted.items():
        if held[name] != (kind, shape):
            raise ValueError(f"{beside}: tensor {name} is {held[name][0]} {held[name][1]}, not {kind} {shape}")


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
