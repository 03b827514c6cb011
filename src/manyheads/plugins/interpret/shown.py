"""What a page shows: the layers and heads that were typed, and the style and script of the page."""

import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from manyheads.config import ModelConfig
from manyheads.config.sentences import install_extra
from manyheads.errors import UserError

SCRIPTS = ("data.js", "text.js", "lines.js", "matrix.js", "main.js", "start.js")  # of a page, in their order
NO_CAPTUM = f"attribution=true needs a package that is not installed: {install_extra('attribute')}"
LETTERS = 18  # most of a token


@dataclass(frozen=True, slots=True)
class Chosen:
    """Layers and heads to show, from 0."""

    layers: list[int]
    heads: list[int]


def choose_heads(model: ModelConfig, layers: str, heads: str) -> Chosen:
    """The layers and heads that were typed, counted from 1; empty: all.

    Layers in which two texts attend to each other are numbered after those of the encoder.

    Raises:
        UserError: the model has no attention maps, or not these layers or heads.
    """
    if not model.has_heads:
        raise UserError(
            f"look shows heads of self-attention, and the run has model.encoder={model.encoder}, which has none: "
            "train one with model.encoder=transformer, such as model=tiny, and look at that"
        )
    n_layers = model.n_layers + model.n_cross_layers
    return Chosen(parse_numbers("layers", layers, n_layers), parse_numbers("heads", heads, model.n_heads))


def parse_numbers(setting: str, typed: str, most: int) -> list[int]:
    """`1,3-5` as [0, 2, 3, 4]; nothing as all numbers below `most`."""
    if not typed.strip():
        return list(range(most))
    numbers: set[int] = set()
    for part in typed.strip().removeprefix("[").removesuffix("]").split(","):
        match = re.fullmatch(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", part, re.ASCII)
        if match is None:
            raise UserError(
                f"{setting}={typed} is not understood: count from 1, such as {setting}=2 or {setting}=1,3-4"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= most:
            there = f"{setting[:-1]} 1 alone" if most == 1 else f"{setting} 1 to {most}"
            raise UserError(f"{setting}={typed} is out of range: the model has {there}")
        numbers |= set(range(first - 1, last))
    return sorted(numbers)


def viewer() -> tuple[str, str]:
    """The style and the script of a page."""
    folder = files("manyheads.plugins.interpret") / "viewer"
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return (folder / "style.css").read_text(encoding="utf-8"), script


def digest(text: str) -> str:
    """How a content security policy names the one script, or style, that may be used."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}"


def digests() -> tuple[str, str]:
    """Those of the style and the script of a page."""
    style, script = viewer()
    return digest(style), digest(script)


def short(text: str) -> str:
    """At most `LETTERS` letters of a text."""
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
