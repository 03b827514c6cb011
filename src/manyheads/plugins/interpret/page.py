"""The page of one text: a single file with its style, script and maps inside, after one run through the model.

Maps are computed and written layer by layer. Nothing is fetched, and nothing in a text can become markup: jinja2
escapes what the page holds, what the script reads is JSON without `<`, and only the script with our own digest may run.

C classes . H heads . L query positions . M key positions
"""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from markupsafe import Markup
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from manyheads.config import Long
from manyheads.evaluation.report import templates
from manyheads.inference.classifier import LabelsPrediction, Prediction, TextClassifier, likeliest_of
from manyheads.plugins.interpret.maps import (
    Call,
    LayerMaps,
    Reading,
    Word,
    answer_batch,
    layer_maps,
    only_batch,
    read_words,
    record_attention,
)
from manyheads.plugins.interpret.shown import Chosen, digests, viewer
from manyheads.runs.files import refuse_unwritable, replace_file

if TYPE_CHECKING:
    from manyheads.plugins.interpret.attribution import Attribution

STEPS = 65535  # a weight is stored as a whole number of 65535ths: the error is below 1.6e-5
SMALL = 48  # pixels of the small maps
LISTED = 5  # classes named next to the text
HEADLINE = 60  # letters of the title at most
LONG = 240  # letters from which a text is set smaller
JSON_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(slots=True)
class Looked:
    """A page that was written.

    Attributes:
        label: the class or labels that it names.
        probability: of the likeliest.
        errors: by the name of a layer, the largest difference of its maps to the fast kernel.
    """

    page: Path
    label: str
    probability: float
    errors: dict[str, float]


@dataclass(slots=True)
class MapBlock:
    """Where the maps of a layer belong: its name, and its tokens as queries and as keys, each as [first, end)."""

    name: str
    short: str
    queries: tuple[int, int]
    keys: tuple[int, int]


@dataclass(kw_only=True, slots=True)
class Shown:
    """What a page says besides its maps.

    Attributes:
        source: the name of the run.
        texts: the text, or both of a pair.
        probabilities: by class.
        multi: whether they are of labels, each by itself.
    """

    source: str
    texts: list[str]
    words: list[Word]
    label: str
    probabilities: dict[str, float]
    multi: bool = False
    note: str = ""
    attribution: "Attribution | None" = None


def look_at(
    predictor: TextClassifier,
    text: str,
    pair: str | None,
    chosen: Chosen,
    *,
    folder: Path,
    source: str,
    answer: Prediction | LabelsPrediction | None = None,
    attribution: "Attribution | None" = None,
) -> Looked:
    """Write the page of a text, or pair, into `folder`. The maps of one layer are held at a time.

    Args:
        source: the name of the run.
        answer: the model's answer to the text; None: it is answered here.
        attribution: shown in a section below the maps.
    """
    (text,) = predictor.as_read([text])
    reading = read_words(predictor.tokenizer, text, pair, predictor.max_length, predictor.cutting)
    batch = only_batch(predictor, text, pair)
    with torch.inference_mode(), record_attention(predictor.network) as calls:
        logits_1C = answer_batch(predictor, batch)
    if answer is None:
        (answer,) = predictor.predict([text], None if pair is None else [pair], network_nC=logits_1C)
    probabilities, likeliest = answer.probabilities, likeliest_of(answer)
    given = [answer.label] if isinstance(answer, Prediction) else answer.labels
    label = ", ".join(given) or f"no label, {likeliest} the likeliest"
    words, documents = documents_of(reading, calls)
    content = Shown(
        source=source,
        texts=[text] if pair is None else [text, pair],
        words=words,
        label=label,
        probabilities=probabilities,
        multi=predictor.multi,
        note=note_on(reading, predictor.cutting.long, predictor.share),
        attribution=attribution,
    )
    with next_page(folder) as (part, page):
        layers = map_layers(calls, chosen, documents, windows=pair is None)
        with part.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            errors = write_text_page(file, content, layers)
    return Looked(page, label, probabilities[likeliest], errors)


def note_on(reading: Reading, long: Long, linear: float) -> str:
    """What the page says of a text that is longer than the network reads at once, and of a linear model that answers,
    too."""
    where = {
        Long.cut: "at the end were cut off",
        Long.both: "in the middle were cut out",
        Long.windows: "between windows were left out",
    }
    sentences, n_windows = [], len(reading.lengths)
    if reading.n_cut:
        sentences.append(f"{reading.n_cut} tokens {where[long]}: the model reads {len(reading.words)}.")
    elif n_windows > 1:
        sentences.append(f"The model reads {n_windows} windows, and answers by the mean of their logits.")
    if linear:
        sentences.append(f"A linear model has {linear:.0%} of the answer; what is shown is of the network.")
    return " ".join(sentences)


def documents_of(reading: Reading, calls: Sequence[Call]) -> tuple[list[Word], list[tuple[int, int]]]:
    """The tokens of a page, and where each document that the attention was given begins and ends among them.

    A model that reads the texts of a pair apart (see manyheads.nn.classifier) begins both with [CLS].
    """
    if calls[0].layout.n_documents == len(reading.lengths):
        return reading.words, list(pairwise([0, *accumulate(reading.lengths)]))
    n_first = sum(word.part == 0 for word in reading.words)
    second = [replace(reading.words[0], part=1), *reading.words[n_first:]]
    return [*reading.words[:n_first], *second], [(0, n_first), (n_first, n_first + len(second))]


def map_layers(
    calls: Sequence[Call], chosen: Chosen, documents: list[tuple[int, int]], *, windows: bool
) -> Iterator[tuple[MapBlock, LayerMaps]]:
    """The maps of each layer that is shown, for each document: a text, one of a pair, or with `windows` a window."""
    for call in calls:
        if call.layer not in chosen.layers:
            continue
        for at, queries in enumerate(documents):
            keys, number = queries, call.layer + 1
            name, short = f"Layer {number}", f"{number}"
            if windows and len(documents) > 1:
                name, short = f"Layer {number}, window {at + 1}", f"{number} w{at + 1}"
            elif call.memory is not None:  # of pairs: one text attends to the other
                own, other = ("A", "B") if at == 0 else ("B", "A")
                keys = documents[1 - at]
                name, short = f"Layer {number}, text {own} to text {other}", f"{number} {own}→{other}"
            elif len(documents) > 1:
                own = "A" if at == 0 else "B"
                name, short = f"Layer {number}, text {own}", f"{number} {own}"
            yield MapBlock(name, short, queries, keys), layer_maps(call, chosen.heads, at)


@contextmanager
def next_page(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A path to write to, and the name it takes in the end: the number after the highest in the folder. An empty file
    takes the name at once, so that two processes do not overwrite each other's page."""
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        number, page = 0, None
        for file in folder.iterdir():
            match = re.match(r"(\d+)[.-]", file.name)
            if match:
                number = max(number, int(match[1]))
        while page is None:
            number += 1
            with suppress(FileExistsError):
                (folder / f"{number}.html").touch(exist_ok=False)
                page = folder / f"{number}.html"
    try:
        with replace_file(page) as part:
            yield part, page
    except BaseException:
        page.unlink(missing_ok=True)
        raise


def write_text_page(file: TextIO, content: Shown, layers: Iterable[tuple[MapBlock, LayerMaps]]) -> dict[str, float]:
    """Write the page; the maps of a layer are computed once those before it are in the file.

    Returns:
        The largest difference from the fast kernel, by name of the layer.
    """
    style, script = viewer()
    names = ["A, the first text", "B, the second text"]
    if len(content.texts) == 1:
        names = [""]
    blocks: list[dict[str, Any]] = []  # of the layers that are written

    def described() -> Markup:
        """What the script reads. The template calls it once all maps are written. Characters that could end the script
        element, or are line breaks to JavaScript, are escaped."""
        data = {"parts": names, "tokens": [asdict(word) for word in content.words], "blocks": blocks}
        return Markup(json.dumps(data, ensure_ascii=False, allow_nan=False).translate(JSON_ESCAPES))  # noqa: S704

    file.writelines(
        templates("manyheads.plugins.interpret")
        .get_template("look.html.j2")
        .generate(
            content=content,
            digests=digests(),
            style=Markup(style),  # noqa: S704
            script=Markup(script),  # noqa: S704
            headline=headline_of(content.texts[0]),
            long=LONG,
            ranked=sorted(content.probabilities.items(), key=lambda one: -one[1]),
            listed=LISTED,
            maps=packed_maps(layers, blocks),
            blocks=blocks,
            described=described,
        )
    )
    return {block["name"]: block["error"] for block in blocks}


def packed_maps(
    layers: Iterable[tuple[MapBlock, LayerMaps]], blocks: list[dict[str, Any]]
) -> Iterator[tuple[str, str]]:
    """The id and the weights of each map, for an element of its own that the script decodes when the map is shown. The
    rest of what the script reads of a layer is appended to `blocks`."""
    for number, (block, maps) in enumerate(layers):
        heads = []
        for at, (head, weights_LM) in enumerate(zip(maps.heads, maps.weights_HLM, strict=True)):
            yield f"map-{number}-{at}", b64encode(pack(weights_LM)).decode("ascii")
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
        blocks.append({**asdict(block), "error": maps.error, "heads": heads})


def pack(weights_LM: Tensor) -> bytes:
    """Weights as 16 bits each, all high bytes before all low ones, deflated (RFC 1950). Only zero becomes zero."""
    steps_LM = (weights_LM.double() * STEPS).round().int()
    steps = steps_LM.masked_fill((steps_LM == 0) & (weights_LM > 0), 1).flatten().numpy()
    return zlib.compress((steps >> 8).astype("uint8").tobytes() + (steps & 255).astype("uint8").tobytes(), 6)


def shrink(weights_LM: Tensor) -> Tensor:
    """A small map, at most SMALL x SMALL bytes, 255 for the largest weight; each is the largest of its cells."""
    rows, columns = (min(size, SMALL) for size in weights_LM.shape)
    small = adaptive_max_pool2d(weights_LM[None, None], (rows, columns))[0, 0]
    return (255 * small / small.max().clamp(min=1e-12)).round().to(torch.uint8)


def headline_of(text: str) -> str:
    """The first words of a text, for the tab of a browser."""
    words = " ".join(text.split())
    if len(words) <= HEADLINE:
        return words
    first = words[:HEADLINE].rpartition(" ")[0] or words[: HEADLINE - 1]  # a text of one word is cut within it
    return f"{first}\u2026"
