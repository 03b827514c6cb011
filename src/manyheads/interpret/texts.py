"""One text at a time: through the model, onto a page, and as pictures.

C classes
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

import torch

from manyheads.config import Long
from manyheads.inference.classifier import TextClassifier
from manyheads.interpret.look import Chosen
from manyheads.interpret.maps import Call, LayerMaps, answer, layer_maps
from manyheads.interpret.page import Block, Reading, Shown, Word, read_words, write_page
from manyheads.runs.atomic import refuse_unwritable, replace_file


@dataclass(slots=True)
class Looked:
    """A page that was written, pictures behind it, and what it says: class or labels, and the probability of the
    likeliest; `errors` by name of the layer."""

    files: list[Path]
    label: str
    probability: float
    errors: dict[str, float]


def look_at(
    deliverable: TextClassifier,
    text: str,
    pair: str | None,
    chosen: Chosen,
    *,
    folder: Path,
    source: str,
    png: bool = False,
    more: str = "",
) -> Looked:
    """Write the page of a text, or pair, into `folder`, and with `png` a picture of each of its maps.

    One layer's maps are held at a time. `more` is a section below them.
    """
    reading = read_words(deliverable.tokenizer, text, pair, deliverable.max_length, deliverable.cutting)
    segments_N = torch.tensor(reading.segments) if pair is not None else None
    ids_N, autocast = torch.tensor(reading.ids), deliverable.autocast
    logits_C, calls = answer(deliverable.network, ids_N, segments_N, autocast, reading.lengths)
    logits_C = deliverable.with_linear(logits_C[None], [text], None if pair is None else [pair])[0]
    probabilities_1C = deliverable.probabilities(logits_C[None])
    probabilities = dict(zip(deliverable.labels, probabilities_1C[0].tolist(), strict=True))
    likeliest = deliverable.labels[int(logits_C.argmax())]
    given = [
        name
        for name, is_given in zip(deliverable.labels, deliverable.given(probabilities_1C)[0], strict=True)
        if is_given
    ]
    label = ", ".join(given) or f"no label, {likeliest} the likeliest"
    words, documents = _documents(reading, calls)
    content = Shown(
        source=source,
        texts=[text] if pair is None else [text, pair],
        words=words,
        label=label,
        probabilities=probabilities,
        note=_note(reading, deliverable.cutting.long, deliverable.share),
        more=more,
    )
    pictures: list[Path] = []
    with _next_page(folder) as (part, page):
        layers = _layers(calls, chosen, documents, windows=pair is None)
        layers = _pictured(layers, words, page, pictures) if png else layers
        with part.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            errors = write_page(file, content, layers)
    return Looked([page, *pictures], label, probabilities[likeliest], errors)


def _note(reading: Reading, long: Long, linear: float) -> str:
    """What is said of a text that is longer than the network reads at once, and of a linear model that answers, too."""
    where = {
        Long.cut: "at the end were cut off",
        Long.both: "in the middle were cut out",
        Long.windows: "between windows were left out",
    }
    said, n_windows = [], len(reading.lengths)
    if reading.n_cut:
        said.append(f"{reading.n_cut} tokens {where[long]}: the model reads {len(reading.ids)}.")
    elif n_windows > 1:
        said.append(f"The model reads {n_windows} windows, and answers by the mean of their logits.")
    if linear:
        said.append(f"A linear model has {linear:.0%} of the answer; what is shown is of the network.")
    return " ".join(said)


def _documents(reading: Reading, calls: Sequence[Call]) -> tuple[list[Word], list[tuple[int, int]]]:
    """The tokens of a page, and where each document the attention was given begins and ends among them.

    A model that reads the texts of a pair apart (see manyheads.nn.classifier) begins both with [CLS].
    """
    if calls[0].layout.n_documents == len(reading.lengths):
        return reading.words, list(pairwise([0, *accumulate(reading.lengths)]))
    n_first = sum(segment & 1 == 0 for segment in reading.segments)
    second = [replace(reading.words[0], part=1), *reading.words[n_first:]]
    return [*reading.words[:n_first], *second], [(0, n_first), (n_first, n_first + len(second))]


def _layers(
    calls: Sequence[Call], chosen: Chosen, documents: list[tuple[int, int]], *, windows: bool
) -> Iterator[tuple[Block, LayerMaps]]:
    for call in calls:
        if call.layer not in chosen.layers:
            continue
        for at, queries in enumerate(documents):
            keys, name, short = queries, f"Layer {call.layer + 1}", str(call.layer + 1)
            if windows and len(documents) > 1:
                name, short = f"{name}, window {at + 1}", f"{short} w{at + 1}"
            elif len(documents) > 1 and call.memory is None:
                name, short = f"{name}, text {'AB'[at]}", f"{short} {'AB'[at]}"
            elif call.memory is not None:
                keys = documents[1 - at]
                name, short = f"{name}, text {'AB'[at]} to text {'BA'[at]}", f"{short} {'AB'[at]}→{'BA'[at]}"
            yield Block(name, short, queries, keys), layer_maps(call, chosen.heads, at)


def _pictured(
    layers: Iterator[tuple[Block, LayerMaps]], words: list[Word], page: Path, written: list[Path]
) -> Iterator[tuple[Block, LayerMaps]]:
    """The same layers, each drawn as it comes by."""
    from manyheads.interpret.pictures import draw_map

    for block, maps in layers:
        for head, weights_LM in zip(maps.heads, maps.weights_HLM, strict=True):
            title = f"{block.name}, head {head + 1}"
            name = re.sub(r"\W+", "-", title.lower())
            path = page.with_name(f"{page.stem}-{name}.png")
            with replace_file(path) as part:
                part.write_bytes(draw_map(weights_LM, words[slice(*block.queries)], words[slice(*block.keys)], title))
            written.append(path)
        yield block, maps


@contextmanager
def _next_page(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A path to write to, and the name it takes in the end: the number behind the highest there, which is taken at
    once, so that two that look at the same time do not write over each other."""
    with refuse_unwritable(folder):
        page = _taken_page(folder)
    try:
        with replace_file(page) as part:
            yield part, page
    except BaseException:
        page.unlink(missing_ok=True)
        raise


def _taken_page(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    taken = [int(match[1]) for file in folder.iterdir() if (match := re.match(r"(\d+)[.-]", file.name))]
    number = max(taken, default=0) + 1
    while True:
        page = folder / f"{number}.html"
        try:
            page.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            continue
        return page
