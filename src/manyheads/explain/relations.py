"""What attention looks at where relations decide: the two sentences of the seeds, and heads over a test split.

The task is made so that it cannot be solved word by word: which two words of a sentence do not belong together? A
vehicle has its place, a name its pronoun, a dish its country and its hunger or thirst. One bond at most is broken;
every word is as frequent where all fit as where one is broken, so a bag of words can but guess, and a model has to
compare a word with its partner. Neither of the two sentences is among its rows.

Y layers . H heads . N tokens
"""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.config import ExplainConfig
from manyheads.explain.drawing import draw, heatmap, name, png
from manyheads.explain.explain import Finding
from manyheads.explain.models import train_small, untrained, vectors_and_weights
from manyheads.inference.classifier import Prediction, TextClassifier
from manyheads.nn import Classifier

SEED_SENTENCES = (
    "the train left the station on time",
    "Jane is hungry, and she's really craving pasta from Italy",
)
PLACES = {
    "train": "station", "ship": "harbour", "plane": "airport", "bus": "depot", "car": "garage",
    "horse": "stable", "rocket": "pad", "tram": "stop", "truck": "yard", "ferry": "pier",
}  # fmt: skip
NAMES = {
    "she": ("Jane", "Anna", "Mary", "Lucy", "Nina", "Rosa", "Emma", "Julia"),
    "he": ("John", "Paul", "Mark", "Peter", "David", "Henry", "Oscar", "Simon"),
}
FOODS = {
    "Italy": ("pasta", "chianti"), "Japan": ("sushi", "sake"), "Mexico": ("tacos", "tequila"),
    "India": ("curry", "lassi"), "France": ("quiche", "champagne"), "Spain": ("paella", "sangria"),
}  # fmt: skip
STATES = ("hungry", "thirsty")  # as of the foods: to eat, to drink
TIMES = (
    "on time", "at noon", "before dawn", "an hour late", "in the rain", "without a word", "last night", "after lunch",
)  # fmt: skip
JOURNEYS = (
    "the {vehicle} left the {place} {time}",
    "the {vehicle} reached the {place} {time}",
    "{time} the {vehicle} left the {place}",
    "the {place} was empty when the {vehicle} came {time}",
)
MEALS = (
    "{name} is {state}, and {pronoun}'s really craving {food} from {country}",
    "{name} was {state}, so {pronoun} ordered {food} from {country}",
    "today {name} is {state} and {pronoun} wants {food} from {country}",
    "the {food} from {country} is what {name} wants, as {pronoun} is {state}",
)
N_ROWS = {"train": 4000, "validation": 500, "test": 500}
TRAIN, JANE = SEED_SENTENCES
ASKED = {  # one word exchanged: what does the model say?
    "as in the seed": TRAIN,
    "another place": "the train left the harbour on time",
    "another vehicle": "the ship left the station on time",
    "Jane, as in the seed": JANE,
    "another pronoun": "Jane is hungry, and he's really craving pasta from Italy",
    "another state": "Jane is thirsty, and she's really craving pasta from Italy",
    "another country": "Jane is hungry, and she's really craving pasta from Japan",
}
PAIRS = {
    TRAIN: (("train", "station"), ("train", "on"), ("train", "the"), ("station", "train")),
    JANE: (
        ("she", "jane"),
        ("jane", "she"),
        ("jane", "hungry"),
        ("pasta", "italy"),
        ("italy", "pasta"),
        ("pasta", "hungry"),
        ("hungry", "pasta"),
    ),
}
MARKS = ("[CLS]", "[SEP]")
REGULARISERS = {"model.dropout_tokens": 0.0, "optim.average": 0, "optim.label_smoothing": 0.0}
N_SEEDS = 3
DIRECTIONS = {  # of the first word to the second, and back
    "place": ("place from vehicle", "vehicle from place"),
    "pronoun": ("pronoun from name", "name from pronoun"),
    "origin": ("country from food", "food from country"),
    "state": ("food from state", "state from food"),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """`label` is "fits" or which bond is broken; `bonds` are the pairs of words that belong together or should."""

    text: str
    label: str
    bonds: dict[str, tuple[str, str]]


def sentence_splits(seed: int) -> dict[str, list[Sentence]]:
    """Train, validation and test; no sentence occurs twice, and the two of the seeds never."""
    draw = random.Random(f"bonds {seed}")  # noqa: S311 - sentences, not secrets
    made: dict[str, Sentence] = {}
    while len(made) < sum(N_ROWS.values()):
        sentence = _journey(draw) if draw.random() < 0.4 else _meal(draw)
        if sentence.text not in SEED_SENTENCES:
            made[sentence.text] = sentence
    rest = list(made.values())
    draw.shuffle(rest)
    splits: dict[str, list[Sentence]] = {}
    for split, n_rows in N_ROWS.items():
        splits[split], rest = rest[:n_rows], rest[n_rows:]
    return splits


def _journey(draw: random.Random) -> Sentence:
    vehicle = draw.choice(list(PLACES))
    label = draw.choice(("fits", "place"))
    place = PLACES[vehicle if label == "fits" else _other(draw, list(PLACES), vehicle)]
    text = draw.choice(JOURNEYS).format(vehicle=vehicle, place=place, time=draw.choice(TIMES))
    return Sentence(text, label, {"place": (vehicle, place)})


def _meal(draw: random.Random) -> Sentence:
    label = draw.choice(("fits", "pronoun", "origin", "state"))
    pronoun, country, kind = draw.choice(list(NAMES)), draw.choice(list(FOODS)), draw.randrange(len(STATES))
    name, food, state = draw.choice(NAMES[pronoun]), FOODS[country][kind], STATES[kind]
    if label == "pronoun":
        pronoun = _other(draw, list(NAMES), pronoun)
    if label == "origin":
        country = _other(draw, list(FOODS), country)
    if label == "state":
        state = _other(draw, list(STATES), state)
    text = draw.choice(MEALS).format(name=name, state=state, pronoun=pronoun, food=food, country=country)
    bonds = {"pronoun": (name, pronoun), "origin": (food, country), "state": (state, food)}
    return Sentence(text, label, bonds)


def _other(draw: random.Random, words: list[str], than: str) -> str:
    return draw.choice([word for word in words if word != than])


def relations(config: ExplainConfig) -> Finding:
    """Train on sentences with a broken bond, then measure how much of a word's attention its partner gets.

    Three models differ in their seed alone; the pictures and all but `seeds` are of the first.
    """
    splits = sentence_splits(config.seed)
    rows = {split: [(one.text, one.label) for one in sentences] for split, sentences in splits.items()}
    model, figures = train_small(config, REGULARISERS, seed=config.seed, splits=rows)
    fitting = {split: [one for one in splits[split] if one.label == "fits"] for split in ("validation", "test")}
    numbers = {
        "training": figures,
        "bonds": {
            "trained": bond_figures(model, model.network, fitting),
            "untrained": bond_figures(model, untrained(model, config.seed), fitting),
        },
        "answers": {what: _answer(model, text) for what, text in ASKED.items()},
        "seeds": [_seed_figures(model, figures)],
    }
    for seed in range(config.seed + 1, config.seed + N_SEEDS):
        other = train_small(config, REGULARISERS, seed=seed % 2**32, splits=rows)
        numbers["seeds"].append(_seed_figures(*other))
    place = numbers["bonds"]["trained"]["vehicle from place"]
    says = (
        f"{figures['test_accuracy']:.3f} right (bag of words {figures['bag_of_words_accuracy']:.3f}); a place gives "
        f"its vehicle {place['most_of_any_head']:.2f} in the head that gives most, spread evenly {place['even']:.2f}"
    )
    pictures = {
        "train": _maps_picture(*sentence_map(model, TRAIN), width=11.6, height=5.7),
        "jane": _maps_picture(*sentence_map(model, JANE), width=13.2, height=7.1),
    }
    return Finding(says, numbers, pictures)


def _seed_figures(model: TextClassifier, figures: dict[str, float]) -> dict[str, Any]:
    """Accuracy and the weights between chosen words of the two sentences."""
    return {
        "test_accuracy": figures["test_accuracy"],
        "train": pair_weights(*sentence_map(model, TRAIN), PAIRS[TRAIN]),
        "jane": pair_weights(*sentence_map(model, JANE), PAIRS[JANE]),
    }


def sentence_map(model: TextClassifier, text: str) -> tuple[list[str], Tensor]:
    """The tokens of a text, marks included, and the weights of every head `(Y, H, N, N)`."""
    encoding = model.tokenizer.encode(text)
    _, weights_YHNN = vectors_and_weights(model.network, torch.tensor(encoding.ids))
    return encoding.tokens, weights_YHNN


def bond_figures(
    model: TextClassifier, classifier: Classifier, sentences: dict[str, list[Sentence]]
) -> dict[str, dict[str, Any]]:
    """For each bond and direction: the head with most weight on the partner, chosen on validation, measured on test.

    `first` is how often no other token gets more from that head, `even` the weight of evenly spread attention,
    `mean_head` the weight averaged over all heads, `most_of_any_head` that of the head that gives most, sentence by
    sentence: chosen afterwards, so it is to be read beside that of the untrained model.
    """
    chosen = _partner_weights(model, classifier, sentences["validation"])
    measured = _partner_weights(model, classifier, sentences["test"])
    figures = {}
    for bond, (weights_SYH, _, _) in chosen.items():
        best = divmod(int(weights_SYH.mean(0).argmax()), weights_SYH.size(2))
        weights_SYH, firsts_SYH, evens_S = measured[bond]
        figures[bond] = {
            "layer": best[0] + 1,
            "head": best[1] + 1,
            "weight": float(weights_SYH[:, best[0], best[1]].mean()),
            "first": float(firsts_SYH[:, best[0], best[1]].float().mean()),
            "mean_head": float(weights_SYH.mean()),
            "most_of_any_head": float(weights_SYH.flatten(1).amax(1).mean()),
            "first_in_any_head": float(firsts_SYH.flatten(1).any(1).float().mean()),
            "even": float(evens_S.mean()),
            "sentences": len(evens_S),
        }
    return figures


def _partner_weights(
    model: TextClassifier, classifier: Classifier, sentences: list[Sentence]
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """By bond and direction: the weight on the partner and whether it is the largest `(S, Y, H)`, and 1 / N `(S,)`."""
    found: dict[str, list[tuple[Tensor, Tensor, float]]] = {}
    for sentence in sentences:
        encoding = model.tokenizer.encode(sentence.text)
        _, weights_YHNN = vectors_and_weights(classifier, torch.tensor(encoding.ids))
        for bond, words in sentence.bonds.items():
            at = [encoding.tokens.index(word.lower()) for word in words]
            for one, other, direction in ((*at, DIRECTIONS[bond][0]), (*at[::-1], DIRECTIONS[bond][1])):
                row_YHN = weights_YHNN[:, :, one]
                found.setdefault(direction, []).append(
                    (row_YHN[..., other], row_YHN.argmax(-1) == other, 1 / len(encoding.ids))
                )
    return {
        direction: (torch.stack(weights), torch.stack(firsts), torch.tensor(evens))
        for direction, (weights, firsts, evens) in ((key, zip(*rows, strict=True)) for key, rows in found.items())
    }


def pair_weights(tokens: list[str], weights_YHNN: Tensor, pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The weight that the first word of a pair gives the second: the mean of the heads of a layer and the most."""
    figures = {}
    for one, other in pairs:
        weights_YH = weights_YHNN[:, :, tokens.index(one), tokens.index(other)]
        figures[f"{one} to {other}"] = {
            f"layer {layer + 1}": {"mean": float(weights_H.mean()), "most": float(weights_H.max())}
            for layer, weights_H in enumerate(weights_YH)
        }
    return figures


def _answer(model: TextClassifier, text: str) -> dict[str, Any]:
    said = model.predict([text])[0]
    assert isinstance(said, Prediction), "its data has one class a text"
    return {"text": text, "says": said.label, "probability": said.probabilities[said.label]}


def _maps_picture(tokens: list[str], weights_YHNN: Tensor, *, width: float, height: float) -> bytes:
    """All heads; a row is a query, a column a key. The last column is what the two marks get together, so a row of
    the picture sums to one."""
    words = [at for at, token in enumerate(tokens) if token not in MARKS]
    marks = [at for at, token in enumerate(tokens) if token in MARKS]
    names = [tokens[at] for at in words]
    n_layers, n_heads = weights_YHNN.shape[:2]
    figure, panels = draw(n_layers, n_heads, width=width, height=height)
    for (layer, head), axes in np.ndenumerate(panels):
        rows = weights_YHNN[layer, head][words]
        shown = np.concatenate([rows[:, words].numpy(), rows[:, marks].sum(1, keepdim=True).numpy()], axis=1)
        heatmap(
            axes,
            shown,
            rows=names if head == 0 else (),
            columns=[*names, "(marks)"] if layer == n_layers - 1 else (),
            numbers=False,
        )
        axes.axvline(len(words) - 0.5, color="white", linewidth=2)
        name(axes, f"layer {layer + 1}, head {head + 1}")
    figure.colorbar(panels[0, 0].images[0], ax=panels.ravel().tolist(), label="weight", shrink=0.5, pad=0.01)
    return png(figure)
