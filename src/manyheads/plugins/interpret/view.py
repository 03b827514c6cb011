"""The view `heads`: the page that `look` writes of one text, for a plugin that shows it, such as the server."""

from pathlib import Path
from tempfile import TemporaryDirectory

from manyheads.errors import UserError
from manyheads.inference.classifier import LabelsPrediction, Prediction, TextClassifier, likeliest_of
from manyheads.inference.graph import GraphNetwork
from manyheads.plugins.interpret.attribution import attribute
from manyheads.plugins.interpret.maps import read_words
from manyheads.plugins.interpret.page import look_at
from manyheads.plugins.interpret.shown import choose_heads

MOST_CELLS = 2**22  # weights of all maps of a page: 8 MiB


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
        answer: the model's answer to the text.
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
