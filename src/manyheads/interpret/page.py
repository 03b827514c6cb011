"""The page of one text: its tokens as a reader knows them, maps packed layer by layer.

The tokens of a text as a reader knows them: in the letters that were typed.

The page of one text: a single file with its style, script and maps inside, written layer by layer.

Nothing is fetched and nothing in a text can become markup: what stands in the page is escaped, what the script reads
is JSON without `<`, and only the one script with our own digest may run.

H heads . L query positions . M key positions
"""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any, TextIO

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from manyheads.config import Cutting
from manyheads.config.data import CUT
from manyheads.data.tokens import kept, segments_of, texts_of_marks
from manyheads.evaluation.page import shown
from manyheads.interpret.maps import LayerMaps

MARK, UNKNOWN = "mark", "unknown"
SPACE = "\u2423"  # what a token of white space alone is shown as


@dataclass(frozen=True, slots=True)
class Word:
    """One token.

    `text` is what was typed, `read` the entry of the vocabulary; `kind` is mark ([CLS] and its like), unknown, or
    empty; `part` 0 or 1 says which text it is of; `glued`, that nothing stands between it and the token before.
    """

    text: str
    read: str
    kind: str
    part: int
    glued: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A text, or pair, as the model reads it; `n_cut` of its tokens are not read.

    `segments` are as of `segments_of`, zeros for a single text; `lengths` are the tokens of its windows, end to end; of
    a text that is read at once there is one.
    """

    ids: list[int]
    segments: list[int]
    words: list[Word]
    n_cut: int
    lengths: list[int]


def read_words(tokenizer: Tokenizer, text: str, pair: str | None, max_length: int, cutting: Cutting = CUT) -> Reading:
    """Tokens as `encode` of manyheads.data.tokens makes them, each with the letters it stands for."""
    encoding = tokenizer.encode(text, pair)
    unknown = getattr(tokenizer.model, "unk_token", None)
    typed = [text] if pair is None else [text, pair]
    segments = [0] * len(encoding) if pair is None else segments_of(encoding, texts_of_marks(tokenizer))
    parts = [list(range(len(encoding)))]
    if len(encoding) > max_length:
        parts = kept(encoding.sequence_ids, max_length, cutting).parts
    read = [at for part in parts for at in part]
    return Reading(
        ids=[encoding.ids[at] for at in read],
        segments=[segments[at] for at in read],
        words=[word for part in parts for word in _words(encoding, part, segments, typed, unknown)],
        n_cut=len(encoding) - len(set(read)),
        lengths=list(map(len, parts)),
    )


def _words(
    encoding: Encoding, places: list[int], segments: list[int], typed: list[str], unknown: str | None
) -> list[Word]:
    """The tokens at `places`, one behind the other."""
    words: list[Word] = []
    ends: dict[int, int] = {}
    for at in places:
        read, part, (start, end) = encoding.tokens[at], segments[at] & 1, encoding.offsets[at]
        mark = bool(encoding.special_tokens_mask[at]) and start == end
        letters = "" if mark else typed[part][start:end]
        bare = letters.strip()
        glued = bool(bare) and ends.get(part) == start and letters[:1].strip() != ""
        if not mark:
            ends[part] = end
        kind = MARK if mark else UNKNOWN if read == unknown else ""
        words.append(Word(bare or (SPACE if letters else read), read, kind, part, glued and not mark))
    return words


def plain(word: Word) -> dict[str, Any]:
    """What the page is told of a token."""
    return {"text": word.text, "read": word.read, "kind": word.kind, "part": word.part, "glued": word.glued}


SCRIPTS = ("data.js", "text.js", "lines.js", "matrix.js", "main.js", "start.js")
STEPS = 65535  # a weight is kept as a whole number of such parts: the error is below 1.6e-5
SMALL = 48  # pixels of the small maps
LISTED = 5  # classes named beside the text
HEADLINE = 60  # letters of the title at most
LONG = 240  # letters from which a text is set smaller
JSON_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(slots=True)
class Block:
    """Where the maps of a layer belong: its name, and the tokens that ask and that are asked, as [first, end)."""

    name: str
    short: str
    queries: tuple[int, int]
    keys: tuple[int, int]


@dataclass(kw_only=True, slots=True)
class Shown:
    """What a page says besides its maps.

    `probabilities` are by class; `texts` the text, or both of a pair; `more` is markup of a section below the maps.
    """

    source: str
    texts: list[str]
    words: list[Word]
    label: str
    probabilities: dict[str, float]
    note: str = ""
    more: str = ""


def write_page(file: TextIO, content: Shown, layers: Iterable[tuple[Block, LayerMaps]]) -> dict[str, float]:
    """Write the page; a layer's maps are asked for once those before it are in the file.

    Returns:
        The largest difference from the fast kernel, by name of the layer.
    """
    style, script = _file("style.css"), "\n".join(_file(name) for name in SCRIPTS)
    names = ["A, the first text", "B, the second text"][: len(content.texts)] if len(content.texts) > 1 else [""]
    said = {
        "policy": f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
        "title": shown(f"{_headline(content.texts[0]) or 'Attention'} \u2013 attention"),
        "style": style,
        "script": script,
        "source": shown(content.source),
        "texts": "".join(_text(text) for text in content.texts),
        "note": f'<p class="soft">{shown(content.note)}</p>' if content.note else "",
        "answer": _answer(content),
        "more": content.more,
    }
    blocks: list[dict[str, Any]] = []
    for at, piece in enumerate(re.split(r"\{\{(\w+)\}\}", _file("page.html"))):
        if at % 2 == 0:
            file.write(piece)
        elif piece == "maps":
            blocks += [_write_layer(file, number, block, maps) for number, (block, maps) in enumerate(layers)]
        elif piece == "check":
            file.write(_check(blocks))
        elif piece == "page":
            tokens = [plain(word) for word in content.words]
            file.write(_json({"parts": names, "tokens": tokens, "blocks": blocks}))
        else:
            file.write(said[piece])
    return {block["name"]: block["error"] for block in blocks}


def _write_layer(file: TextIO, number: int, block: Block, maps: LayerMaps) -> dict[str, Any]:
    """The maps of a layer, each in an element of its own that the script opens when it is asked for."""
    heads = []
    for at, (head, weights_LM) in enumerate(zip(maps.heads, maps.weights_HLM, strict=True)):
        packed = b64encode(pack(weights_LM)).decode("ascii")
        file.write(f'<script type="text/plain" id="map-{number}-{at}">{packed}</script>\n')
        small = shrink(weights_LM)
        heads.append(
            {
                "head": head + 1,
                "most": weights_LM.max().item(),
                "rows": small.size(0),
                "columns": small.size(1),
                "small": b64encode(small.numpy().tobytes()).decode("ascii"),
            }
        )
    return {
        "name": block.name,
        "short": block.short,
        "queries": block.queries,
        "keys": block.keys,
        "error": maps.error,
        "heads": heads,
    }


def pack(weights_LM: Tensor) -> bytes:
    """Weights as 16 bits each, all high bytes before all low ones, deflated (RFC 1950). Only a zero becomes zero."""
    steps_LM = (weights_LM.double() * STEPS).round().int()
    steps = steps_LM.masked_fill((steps_LM == 0) & (weights_LM > 0), 1).flatten().numpy()
    return zlib.compress((steps >> 8).astype("uint8").tobytes() + (steps & 255).astype("uint8").tobytes(), 6)


def shrink(weights_LM: Tensor) -> Tensor:
    """At most SMALL x SMALL bytes, 255 for the largest weight; of the cells that share one, the largest counts."""
    rows, columns = (min(size, SMALL) for size in weights_LM.shape)
    small = adaptive_max_pool2d(weights_LM[None, None], (rows, columns))[0, 0]
    return (255 * small / small.max().clamp(min=1e-12)).round().to(torch.uint8)


def _answer(content: Shown) -> str:
    """The likeliest classes as a table with bars."""
    ranked = sorted(content.probabilities.items(), key=lambda one: -one[1])
    rows = "".join(
        f'<tr><th scope="row">{shown(name)}</th><td class="long"><svg aria-hidden="true">'
        f'<rect width="{value:.2%}" height="100%" rx="3.5"/></svg>'
        f"</td><td>{value:.1%}</td></tr>"
        for name, value in ranked[:LISTED]
    )
    if others := ranked[LISTED:]:
        together = sum(value for _, value in others)
        rows += f'<tr class="soft"><th>{len(others)} more</th><td></td><td>{together:.1%}</td></tr>'
    caption = f"<caption>The model says <b>{shown(content.label)}</b></caption>"
    return f"<table>{caption}<tbody>{rows}</tbody></table>"


def _check(blocks: list[dict[str, Any]]) -> str:
    items = "".join(f"<li>{shown(one['name'])} <b>{one['error']:.1e}</b></li>" for one in blocks)
    return f'<ul class="check">{items}</ul>'


def _headline(text: str) -> str:
    """The first words of a text, for the tab of a browser."""
    words = " ".join(text.split())
    if len(words) <= HEADLINE:
        return words
    first = words[:HEADLINE].rpartition(" ")[0] or words[: HEADLINE - 1]  # a text of one word is cut within it
    return f"{first}\u2026"


def _text(text: str) -> str:
    long = " long" if len(text) > LONG else ""
    return f'<p class="words{long}" dir="auto">{shown(text) or "<i>empty</i>"}</p>'


def _json(value: dict[str, Any]) -> str:
    """JSON in plain characters that ends no script element and breaks no line where a reader would."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(JSON_ESCAPES)


def _digest(text: str) -> str:
    """How a content security policy names the one script, or style, that may be used."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}"


def _file(name: str) -> str:
    return (files("manyheads.interpret") / "viewer" / name).read_text(encoding="utf-8")
