"""The vector of an ambiguous word before and after the encoder, in sentences that mean it differently.

A model of the demo sentences has to tell the senses of "check" and "station"; what we measure is the cosine between
occurrences, of the same sense and of different ones, at each depth. The control is the full stop of the same
sentences, which has no sense at all.

S sentences . Y depths . D d_model
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import ExplainConfig
from manyheads.data.demo import demo_splits
from manyheads.explain.drawing import BLUE, GREY, RED, draw, heatmap, name, png
from manyheads.explain.explain import Finding
from manyheads.explain.models import train_small, untrained, vectors_and_weights
from manyheads.inference.classifier import TextClassifier
from manyheads.nn import Classifier

WORDS = ("check", "station")
CONTROL = "."
REGULARISERS = {"model.dropout_tokens": 0.1, "optim.average": 300, "optim.label_smoothing": 0.1}
DEPTHS = ("word", "word and position", "layer 1", "layer 2")
SHOWN = {
    "check": (
        ("cashed the check", "bank"),
        ("three days for the check", "bank"),
        ("escaped the check", "chess"),
        ("blocked the check", "chess"),
        ("earned a check", "homework"),
        ("got a red check", "homework"),
    ),
    "station": (
        ("express at the next station", "train"),
        ("ticket to the final station", "train"),
        ("filled the tank at the station", "fuel"),
        ("diesel at the cheapest station", "fuel"),
        ("tuned in to the station", "radio"),
        ("favourite song on the station", "radio"),
    ),
}


def senses(config: ExplainConfig) -> Finding:
    """Train on the demo sentences, then compare what the encoder makes of a word in the sentences of the test split."""
    splits = demo_splits(config.seed)
    model, figures = train_small(config, REGULARISERS, seed=config.seed, splits=splits)
    fresh = untrained(model, config.seed)
    rows = splits["test"]
    words = {
        word: {
            "trained": agreement(model, model.network, rows, word, word),
            "untrained": agreement(model, fresh, rows, word, word),
            "control": agreement(model, model.network, rows, word, CONTROL),
        }
        for word in WORDS
    }
    matrices = {word: _cosines_of_shown(model, word, rows) for word in WORDS}
    first, last = (words["check"]["trained"][depth] for depth in ("word and position", "layer 2"))
    says = (
        f'two "check" of one sense have cosine {last["same_sense"]:.2f} above the encoder, of two senses '
        f"{last['other_sense']:.2f}; below it {first['same_sense']:.2f} and {first['other_sense']:.2f}"
    )
    pictures = {"senses": _matrices_picture(matrices), "senses-depth": _depth_picture(words)}
    return Finding(says, {"training": figures, "words": words, "shown": matrices}, pictures)


def agreement(
    model: TextClassifier, classifier: Classifier, rows: list[tuple[str, str]], word: str, at: str
) -> dict[str, Any]:
    """Cosines between the vectors of the token `at` in sentences about `word`, by depth.

    `nearest_shares_sense` is how often the nearest other vector belongs to a sentence of the same sense: 1/3 by chance.
    """
    found = [(vectors_at(model, classifier, text, at), label) for text, label in rows if label.startswith(f"{word}-")]
    vectors_YSD = torch.stack([vectors for vectors, _ in found], dim=1)
    labels = np.array([label for _, label in found])
    same_SS = torch.from_numpy(labels[:, None] == labels[None, :])
    itself_SS = torch.eye(len(found), dtype=torch.bool)
    by_depth: dict[str, Any] = {"sentences": len(found)}
    for depth, cosines_SS in zip(DEPTHS, cosines(vectors_YSD), strict=True):
        nearest_S = cosines_SS.masked_fill(itself_SS, -2).argmax(1)
        by_depth[depth] = {
            "same_sense": float(cosines_SS[same_SS & ~itself_SS].mean()),
            "other_sense": float(cosines_SS[~same_SS].mean()),
            "nearest_shares_sense": float(same_SS[torch.arange(len(found)), nearest_S].float().mean()),
        }
    return by_depth


def vectors_at(model: TextClassifier, classifier: Classifier, text: str, token: str) -> Tensor:
    """The first such token of the text at every depth: `(Y, D)`."""
    encoding = model.tokenizer.encode(text)
    vectors_YND, _ = vectors_and_weights(classifier, torch.tensor(encoding.ids))
    return vectors_YND[:, encoding.tokens.index(token)]


def cosines(vectors_YSD: Tensor) -> Tensor:
    """q · k / (‖q‖ ‖k‖) between all pairs: `(Y, S, S)`. Lengths do not count; in a dot product they do."""
    unit_YSD = F.normalize(vectors_YSD, dim=-1)
    return unit_YSD @ unit_YSD.transpose(1, 2)


def _cosines_of_shown(model: TextClassifier, word: str, rows: list[tuple[str, str]]) -> dict[str, Any]:
    """Six sentences of the test split about the word, before the encoder and after it."""
    texts = []
    for clause, _ in SHOWN[word]:
        texts.append(next((text for text, _ in rows if clause in text), f"Anna {clause} last week."))
    vectors_YSD = torch.stack([vectors_at(model, model.network, text, word) for text in texts], dim=1)
    cosines_YSS = cosines(vectors_YSD)
    names = [f"{clause} ({sense})" for clause, sense in SHOWN[word]]
    return {"names": names, "before": cosines_YSS[1].tolist(), "after": cosines_YSS[-1].tolist()}


def _matrices_picture(matrices: dict[str, dict[str, Any]]) -> bytes:
    figure, panels = draw(2, 2, width=9.3, height=6.0)
    for row, (word, matrix) in zip(panels, matrices.items(), strict=True):
        for axes, key in zip(row, ("before", "after"), strict=True):
            names = matrix["names"] if key == "before" else ()
            heatmap(axes, np.array(matrix[key]), rows=names, numbers=True)
            name(axes, f'"{word}" {key} the encoder')
    figure.colorbar(panels[0, 0].images[0], ax=panels.ravel().tolist(), label="cosine", shrink=0.5, pad=0.02)
    return png(figure)


def _depth_picture(words: dict[str, dict[str, Any]]) -> bytes:
    figure, panels = draw(2, 3, width=10.4, height=6.0)
    arms = {
        "trained": '"{}", trained',
        "control": 'control: the full stop, in "{}" sentences',
        "untrained": '"{}", untrained',
    }
    for row, (word, of_word) in zip(panels, words.items(), strict=True):
        for axes, (arm, title) in zip(row, arms.items(), strict=True):
            by_depth = [of_word[arm][depth] for depth in DEPTHS]
            for key, colour, style, line, label in (
                ("same_sense", BLUE, "o-", 3.5, "cosine, same sense"),
                ("other_sense", RED, "s-", 1.5, "cosine, different senses"),
                ("nearest_shares_sense", GREY, "^:", 1.5, "share whose nearest has the same sense"),
            ):
                figures = [one[key] for one in by_depth]
                axes.plot(range(len(DEPTHS)), figures, style, color=colour, linewidth=line, markersize=4, label=label)
            axes.set_xticks(range(len(DEPTHS)), ["word", "+ position", "layer 1", "layer 2"])
            axes.set_ylim(0, 1.05)
            name(axes, title.format(word))
    panels[0, 0].legend(frameon=False, fontsize=8, loc="lower left")
    return png(figure)
