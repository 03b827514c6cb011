"""Pages of single texts: those that `look` writes, with what each token adds and the pages of further views; and the
view `heads`, the same page for a plugin that shows it, such as the server."""

from pathlib import Path
from tempfile import TemporaryDirectory

import manyheads.plugin as plugin
from manyheads.errors import UserError
from manyheads.inference.classifier import LabelsPrediction, Prediction, TextClassifier, likeliest_of
from manyheads.inference.folder import load, place
from manyheads.inference.format import ModelFolder
from manyheads.inference.graph import GraphNetwork
from manyheads.inference.reading import open_texts
from manyheads.plugins.interpret.attribution import attribute, show_attribution, write_attribution
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.maps import read_words
from manyheads.plugins.interpret.page import look_at
from manyheads.plugins.interpret.shown import Chosen, choose_heads
from manyheads.terminal import say, typed_path

MOST_CELLS = 2**22  # weights of all maps of a page: 8 MiB


def look_at_texts(config: LookConfig, opened: ModelFolder, chosen: Chosen, folder: Path) -> list[Path]:
    """Write the pages of the texts that `config` names into `folder`; returns all files that were written.

    Raises:
        UserError: there are no texts, or one of them cannot be read.
    """
    loaded = load(opened, TextClassifier)
    in_fp32 = place(loaded, config.hardware, fast=False)  # whose attention is shown
    answering = place(loaded, config.hardware, fast=True)  # as predict answers
    texts, faults = read_texts(config, in_fp32)
    if faults:
        many = "1 row has no page" if len(faults) == 1 else f"{len(faults):,} rows have no page"
        say(f"{many} (first: {faults[0]})")
    if not texts:
        raise UserError(f"input={config.input} holds no texts: give one a line")
    model = opened.path
    source = (model.parent if model.name == "model" else model).name
    written: list[Path] = []
    for text, pair in texts:
        (answer,) = answering.predict([text], None if pair is None else [pair])
        found = None
        if config.attribution:
            found = attribute(in_fp32, text, pair, label=likeliest_of(answer))
        page = look_at(in_fp32, text, pair, chosen, folder=folder, source=source, answer=answer, attribution=found)
        written.append(page.page)
        say(f"{typed_path(page.page)}: {page.label} {page.probability:.1%}")
        if found is not None:
            show_attribution(found)
            written.append(write_attribution(page.page, found))
        for name, part in plugin.parts("view").items():  # of other plugins
            if name != "heads":
                file = page.page.with_name(f"{page.page.stem}-{name}.html")
                html = plugin.resolve(part.make)(in_fp32, text, pair, answer=answer, source=source)
                file.write_text(html, encoding="utf-8")
                written.append(file)
    return written


def read_texts(config: LookConfig, model: TextClassifier) -> tuple[list[tuple[str, str | None]], list[str]]:
    """The texts or pairs to show, and what is wrong with rows among them that cannot be answered. All are read before
    the first page is written, so that a mistake writes none."""
    texts: list[tuple[str, str | None]] = []
    faults: list[str] = []
    with open_texts(config.text, config.input or "-", model) as chunks:
        for chunk in chunks:
            faults += chunk.faults.values()
            pairs = chunk.pairs or [None] * len(chunk.texts)
            for at, row in enumerate(zip(chunk.texts, pairs, strict=False)):
                if at in chunk.faults:
                    continue
                texts.append(row)
                if len(texts) == config.rows:  # 0: all
                    return texts, faults
    return texts, faults


def why_no_heads(predictor: TextClassifier) -> str:
    """Why nothing can be shown of this model; empty where it can."""
    if isinstance(predictor.network, GraphNetwork):
        return "This model is a graph for onnxruntime, whose attention cannot be read: serve the run it came from."
    if not predictor.model.has_heads:
        return f"This model is recurrent (model.encoder={predictor.model.encoder}) and has no attention heads."
    return ""


def heads_page(
    predictor: TextClassifier,
    text: str,
    pair: str | None,
    *,
    answer: Prediction | LabelsPrediction,
    source: str,
    layers: str = "",
    heads: str = "",
    attribution: bool = False,
) -> str:
    """The page of a text or pair: maps of the heads that are chosen, and what each token adds.

    Args:
        predictor: in fp32, as `manyheads look` has it.
        source: the name of the model.

    Raises:
        UserError: no such layers or heads, too many maps for a page, or Captum is not installed.
    """
    chosen = choose_heads(predictor.model, layers, heads)
    (text,) = predictor.as_read([text])
    reading = read_words(predictor.tokenizer, text, pair, predictor.max_length, predictor.cutting)
    n_maps, n_cells = len(chosen.layers) * len(chosen.heads), sum(one**2 for one in reading.lengths)
    if n_maps * n_cells > MOST_CELLS:
        raise UserError(
            f"{n_maps} maps of {len(reading.words)} tokens are too many for a page: choose fewer layers or heads, such "
            f"as layers={predictor.model.n_layers} and heads=1"
        )
    added = None
    if attribution:
        added = attribute(predictor, text, pair, label=likeliest_of(answer))
    with TemporaryDirectory() as scratch:
        looked = look_at(
            predictor, text, pair, chosen, folder=Path(scratch), source=source, answer=answer, attribution=added
        )
        return looked.page.read_text(encoding="utf-8")
