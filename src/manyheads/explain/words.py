"""What attention makes of words: of one that has several senses, and of two that belong together.

Senses: a model of the demo sentences has to tell those of "check" and "station"; what is measured is the cosine between
occurrences, of the same sense and of different ones, at each depth. The control is the full stop of the same sentences,
which has no sense at all.

Relations: the task is made so that it cannot be solved word by word: which two words of a sentence do not belong
together? A vehicle has its place, a name its pronoun, a dish its country and its hunger or thirst. One bond at most is
broken; every word is as frequent where all fit as where one is broken, so a bag of words can but guess, and a model has
to compare a word with its partner. Neither of the two sentences of the seeds is among its rows.

S sentences . Y layers or depths . H heads . N tokens . D d_model
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import ExplainConfig
from manyheads.data.demo import demo_splits
from manyheads.evaluation.report import BLUE, GREY, RED, draw, heatmap, lines, name, png
from manyheads.explain.explain import Finding
from manyheads.explain.models import read_text, train_small, untrained
from manyheads.inference.classifier import Prediction, TextClassifier
from manyheads.nn import Classifier

WORDS = ("check", "station")
CONTROL = "."
OF_SENSES = {"model.dropout_tokens": 0.1, "optim.average": 300, "optim.label_smoothing": 0.1}
DEPTHS = ("word", "word and position", "layer 1", "layer 2")
SHOWN = {
    "check": (
        ("cashed the check", "bank"), ("three days for the check", "bank"), ("escaped the check", "chess"),
        ("blocked the check", "chess"), ("earned a check", "homework"), ("got a red check", "homework"),
    ),
    "station": (
        ("express at the next station", "train"), ("ticket to the final station", "train"),
        ("filled the tank at the station", "fuel"), ("diesel at the cheapest station", "fuel"),
        ("tuned in to the station", "radio"), ("favourite song on the station", "radio"),
    ),
}  # fmt: skip
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
        ("she", "jane"), ("jane", "she"), ("jane", "hungry"), ("pasta", "italy"), ("italy", "pasta"),
        ("pasta", "hungry"), ("hungry", "pasta"),
    ),
}  # fmt: skip
MARKS = ("[CLS]", "[SEP]")
OF_RELATIONS = {"model.dropout_tokens": 0.0, "optim.average": 0, "optim.label_smoothing": 0.0}
N_SEEDS = 3
DIRECTIONS = {  # of the first word to the second, and back
    "place": ("place from vehicle", "vehicle from place"),
    "pronoun": ("pronoun from name", "name from pronoun"),
    "origin": ("country from food", "food from country"),
    "state": ("food from state", "state from food"),
}


def senses(config: ExplainConfig) -> Finding:
    """Train on the demo sentences, then compare what the encoder makes of a word in the sentences of the test split."""
    splits = demo_splits(config.seed)
    model, figures = train_small(config, OF_SENSES, seed=config.seed, splits=splits)
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
    tokens, vectors_YND, _ = read_text(model, classifier, text)
    return vectors_YND[:, tokens.index(token)]


def cosines(vectors_YSD: Tensor) -> Tensor:
    """q · k / (‖q‖ ‖k‖) between all pairs: `(Y, S, S)`. Lengths do not count; in a dot product they do."""
    unit_YSD = F.normalize(vectors_YSD, dim=-1)
    return unit_YSD @ unit_YSD.transpose(1, 2)


def _cosines_of_shown(model: TextClassifier, word: str, rows: list[tuple[str, str]]) -> dict[str, Any]:
    """Six sentences of the test split about the word, before the encoder and after it."""
    texts = [
        next((text for text, _ in rows if clause in text), f"Anna {clause} last week.") for clause, _ in SHOWN[word]
    ]
    cosines_YSS = cosines(torch.stack([vectors_at(model, model.network, text, word) for text in texts], dim=1))
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
    arms = {"trained": '"{}", trained', "control": 'control: the full stop, in "{}" sentences'}
    arms |= {"untrained": '"{}", untrained'}
    looks = {
        "same_sense": ("cosine, same sense", BLUE, "o-"),
        "other_sense": ("cosine, different senses", RED, "s-"),
        "nearest_shares_sense": ("share whose nearest has the same sense", GREY, "^:"),
    }
    for row, (word, of_word) in zip(panels, words.items(), strict=True):
        for axes, (arm, title) in zip(row, arms.items(), strict=True):
            by_depth = [of_word[arm][depth] for depth in DEPTHS]
            lines(axes, range(len(DEPTHS)), looks, {key: [one[key] for one in by_depth] for key in looks})
            axes.lines[0].set_linewidth(3.5)  # it may lie under the second
            axes.set_xticks(range(len(DEPTHS)), ["word", "+ position", "layer 1", "layer 2"])
            axes.set_ylim(0, 1.05)
            name(axes, title.format(word))
    panels[0, 0].legend(frameon=False, fontsize=8, loc="lower left")
    return png(figure)


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
    place = PLACES[vehicle if label == "fits" else _other(draw, PLACES, vehicle)]
    text = draw.choice(JOURNEYS).format(vehicle=vehicle, place=place, time=draw.choice(TIMES))
    return Sentence(text, label, {"place": (vehicle, place)})


def _meal(draw: random.Random) -> Sentence:
    label = draw.choice(("fits", "pronoun", "origin", "state"))
    pronoun, country, kind = draw.choice(list(NAMES)), draw.choice(list(FOODS)), draw.randrange(len(STATES))
    name, food, state = draw.choice(NAMES[pronoun]), FOODS[country][kind], STATES[kind]
    if label == "pronoun":
        pronoun = _other(draw, NAMES, pronoun)
    if label == "origin":
        country = _other(draw, FOODS, country)
    if label == "state":
        state = _other(draw, STATES, state)
    text = draw.choice(MEALS).format(name=name, state=state, pronoun=pronoun, food=food, country=country)
    bonds = {"pronoun": (name, pronoun), "origin": (food, country), "state": (state, food)}
    return Sentence(text, label, bonds)


def _other(draw: random.Random, words: Iterable[str], than: str) -> str:
    return draw.choice([word for word in words if word != than])


def relations(config: ExplainConfig) -> Finding:
    """Train on sentences with a broken bond, then measure how much of a word's attention its partner gets.

    Three models differ in their seed alone; the pictures and all but `seeds` are of the first.
    """
    splits = sentence_splits(config.seed)
    rows = {split: [(one.text, one.label) for one in sentences] for split, sentences in splits.items()}
    seeds = [seed % 2**32 for seed in range(config.seed, config.seed + N_SEEDS)]
    trained = [train_small(config, OF_RELATIONS, seed=seed, splits=rows) for seed in seeds]
    model, figures = trained[0]
    answers: dict[str, dict[str, Any]] = {}
    for (what, text), said in zip(ASKED.items(), model.predict([*ASKED.values()]), strict=True):
        assert isinstance(said, Prediction), "its data has one class a text"
        answers[what] = {"text": text, "says": said.label, "probability": said.probabilities[said.label]}
    fitting = {split: [one for one in splits[split] if one.label == "fits"] for split in ("validation", "test")}
    numbers = {
        "training": figures,
        "bonds": {
            "trained": bond_figures(model, model.network, fitting),
            "untrained": bond_figures(model, untrained(model, config.seed), fitting),
        },
        "answers": answers,
        "seeds": [
            {"test_accuracy": of["test_accuracy"]}
            | {key: pair_weights(one, text, PAIRS[text]) for key, text in (("train", TRAIN), ("jane", JANE))}
            for one, of in trained
        ],
    }
    place = numbers["bonds"]["trained"]["vehicle from place"]
    says = (
        f"{figures['test_accuracy']:.3f} right (bag of words {figures['bag_of_words_accuracy']:.3f}); a place gives "
        f"its vehicle {place['most_of_any_head']:.2f} in the head that gives most, spread evenly {place['even']:.2f}"
    )
    pictures = {
        "train": _maps_picture(model, TRAIN, width=11.6, height=5.7),
        "jane": _maps_picture(model, JANE, width=13.2, height=7.1),
    }
    return Finding(says, numbers, pictures)


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
        layer, head = divmod(int(weights_SYH.mean(0).argmax()), weights_SYH.size(2))
        weights_SYH, firsts_SYH, evens_S = measured[bond]
        figures[bond] = {
            "layer": layer + 1,
            "head": head + 1,
            "weight": float(weights_SYH[:, layer, head].mean()),
            "first": float(firsts_SYH[:, layer, head].float().mean()),
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
        tokens, _, weights_YHNN = read_text(model, classifier, sentence.text)
        for bond, words in sentence.bonds.items():
            at = [tokens.index(word.lower()) for word in words]
            for (one, other), direction in zip((at, at[::-1]), DIRECTIONS[bond], strict=True):
                row_YHN = weights_YHNN[:, :, one]
                figures = row_YHN[..., other], row_YHN.argmax(-1) == other, 1 / len(tokens)
                found.setdefault(direction, []).append(figures)
    return {
        direction: (torch.stack(weights), torch.stack(firsts), torch.tensor(evens))
        for direction, (weights, firsts, evens) in ((key, zip(*rows, strict=True)) for key, rows in found.items())
    }


def pair_weights(model: TextClassifier, text: str, pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The weight that the first word of a pair gives the second: the mean of the heads of a layer and the most."""
    tokens, _, weights_YHNN = read_text(model, model.network, text)
    figures = {}
    for one, other in pairs:
        weights_YH = weights_YHNN[:, :, tokens.index(one), tokens.index(other)]
        figures[f"{one} to {other}"] = {
            f"layer {layer + 1}": {"mean": float(weights_H.mean()), "most": float(weights_H.max())}
            for layer, weights_H in enumerate(weights_YH)
        }
    return figures


def _maps_picture(model: TextClassifier, text: str, *, width: float, height: float) -> bytes:
    """All heads; a row is a query, a column a key. The last column is what the two marks get together, so a row of
    the picture sums to one."""
    tokens, _, weights_YHNN = read_text(model, model.network, text)
    words = [at for at, token in enumerate(tokens) if token not in MARKS]
    marks = [at for at, token in enumerate(tokens) if token in MARKS]
    names = [tokens[at] for at in words]
    n_layers, n_heads = weights_YHNN.shape[:2]
    figure, panels = draw(n_layers, n_heads, width=width, height=height)
    for (layer, head), axes in np.ndenumerate(panels):
        rows = weights_YHNN[layer, head][words]
        shown = np.concatenate([rows[:, words].numpy(), rows[:, marks].sum(1, keepdim=True).numpy()], axis=1)
        columns = [*names, "(marks)"] if layer == n_layers - 1 else ()
        heatmap(axes, shown, rows=names if head == 0 else (), columns=columns)
        axes.axvline(len(words) - 0.5, color="white", linewidth=2)
        name(axes, f"layer {layer + 1}, head {head + 1}")
    figure.colorbar(panels[0, 0].images[0], ax=panels.ravel().tolist(), label="weight", shrink=0.5, pad=0.01)
    return png(figure)
