"""What attention makes of words: of one that has several senses, and of two that belong together; and the small models
that show it, which the library itself trains. Their settings are typed where docs/attention.md hangs on them.

Senses: a model of the demo sentences has to tell those of "check" and "station"; what is measured is the cosine between
occurrences, of the same sense and of different ones, at each depth. The control is the full stop of the same sentences,
which has no sense at all.

Relations: the task is made so that it cannot be solved word by word: which two words of a sentence do not belong
together? A vehicle has its place, a name its pronoun, a dish its country and its hunger or thirst. One bond at most is
broken; every word is as frequent where all fit as where one is broken, so a bag of words can but guess, and a model has
to compare a word with its partner. Neither of the two sentences of the seeds is among its rows.

S sentences . Y layers or depths . H heads . N tokens of a text, with the marks around it . D d_model
"""

import csv
import io
import random
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import (
    Accelerator,
    DataConfig,
    ExplainConfig,
    HardwareConfig,
    OptimConfig,
    Precision,
    RunConfig,
)
from manyheads.data.demo import demo_splits
from manyheads.evaluation.report import draw, heatmap, name, png
from manyheads.explain.explain import Finding
from manyheads.explain.formula import SMALL
from manyheads.inference.classifier import Prediction, TextClassifier
from manyheads.inference.folder import load
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.transformer import Encoder, EncoderLayer
from manyheads.training_run import train

WORDS = ("check", "station")
CONTROL = "."
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
N_SEEDS = 3


def train_small(
    config: ExplainConfig,
    splits: dict[str, list[tuple[str, str]]],
    *,
    seed: int,
    dropout_tokens: float = 0.0,
    average: int = 0,
    label_smoothing: float = 0.0,
) -> tuple[TextClassifier, dict[str, float]]:
    """Train two layers of four heads for `config.steps` steps.

    Args:
        splits: rows (text, label) of train, validation and test.
        seed: of the weights and the order of the rows.

    Returns:
        The model, and its test accuracy beside that of the better cheap model (see evaluation/classification.py).
    """
    with TemporaryDirectory() as folder:
        Path(folder, "data").mkdir()
        for split, rows in splits.items():
            with Path(folder, "data", f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("text", "label"), *rows])
        run = RunConfig(
            output=f"{folder}/run",
            seed=seed,
            linear=False,
            data=DataConfig(source="files", path=f"{folder}/data", cache=f"{folder}/cache"),
            model=replace(SMALL, dropout_tokens=dropout_tokens),
            optim=OptimConfig(lr=2e-3, average=average, label_smoothing=label_smoothing),
            hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32, threads=1),
            trainer={"max_epochs": 1000, "max_steps": config.steps, "gradient_clip_val": 1.0},
        )
        with redirect_stdout(io.StringIO()):  # its table: here the figures are printed by each claim
            summary = train(run)
        assert summary is not None
        words_alone = max(figures["accuracy"].value for figures in summary.baselines.values())
        figures = {
            "test_accuracy": summary.test["accuracy"].value,
            "bag_of_words_accuracy": words_alone,
            "steps": summary.steps,
            "parameters": summary.parameters,
        }
        return load(f"{folder}/run", TextClassifier), figures


def untrained(model: TextClassifier, seed: int) -> Classifier:
    """The same architecture with fresh weights."""
    torch.manual_seed(seed)
    return assemble(
        model.model,
        vocab_size=model.network.embeddings.words.num_embeddings,
        n_classes=len(model.labels),
        max_length=model.max_length,
    ).eval()


@torch.no_grad()
def read_text(model: TextClassifier, classifier: Classifier, text: str) -> tuple[list[str], Tensor, Tensor]:
    """The tokens of a text; their vectors, bare words first, then with positions, then above each layer, the last
    normed, `(Y + 2, N, D)`; and the weights of each layer, `(Y, H, N, N)`."""
    encoding = model.tokenizer.encode(text)
    ids_N, layout = torch.tensor(encoding.ids), Packed.of_lengths([len(encoding)])
    encoder, embeddings = cast(Encoder, classifier.encoder), classifier.embeddings
    x_ND, vectors, weights = embeddings(ids_N, layout), [embeddings.words(ids_N)], []
    vectors.append(x_ND)
    for layer in cast(Iterable[EncoderLayer], encoder.layers):
        block = cast(MultiHeadAttention, layer.attention.block)
        weights_BHLM, _ = block.maps(cast(nn.Module, layer.attention.before)(x_ND), layout)
        x_ND = layer(x_ND, layout)
        weights.append(weights_BHLM[0])
        vectors.append(x_ND)
    vectors[-1] = encoder.norm(x_ND)
    return encoding.tokens, torch.stack(vectors), torch.stack(weights)


def senses(config: ExplainConfig) -> Finding:
    """Train on the demo sentences, then compare what the encoder makes of a word in the sentences of the test split."""
    splits = demo_splits(config.seed)
    regularisers = {"dropout_tokens": 0.1, "average": 300, "label_smoothing": 0.1}
    model, figures = train_small(config, splits, seed=config.seed, **regularisers)
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
    numbers = {"training": figures, "words": words}
    return Finding(says, numbers, {"senses": _matrices_picture(matrices)})


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
    trained = [train_small(config, rows, seed=seed) for seed in seeds]
    model, figures = trained[0]
    answers: dict[str, dict[str, Any]] = {}
    for (what, text), said in zip(ASKED.items(), model.predict([*ASKED.values()]), strict=True):
        assert isinstance(said, Prediction), "its data has one class a text"
        answers[what] = {"text": text, "says": said.label, "probability": said.probabilities[said.label]}
    numbers = {
        "training": figures,
        "answers": answers,
        "seeds": [
            {"test_accuracy": of["test_accuracy"]}
            | {key: pair_weights(one, text, PAIRS[text]) for key, text in (("train", TRAIN), ("jane", JANE))}
            for one, of in trained
        ],
    }
    most = [of["most"] for of in numbers["seeds"][0]["train"]["station to train"].values()]
    says = (
        f'{figures["test_accuracy"]:.3f} right (bag of words {figures["bag_of_words_accuracy"]:.3f}); "station" gives '
        f'"train" {max(most):.2f} of its attention in the head that gives most'
    )
    pictures = {
        "train": _maps_picture(model, TRAIN, width=11.6, height=5.7),
        "jane": _maps_picture(model, JANE, width=13.2, height=7.1),
    }
    return Finding(says, numbers, pictures)


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
