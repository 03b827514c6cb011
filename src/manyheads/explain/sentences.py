"""A made task that cannot be solved word by word: which two words of a sentence do not belong together?

A vehicle has its place, a name its pronoun, a dish its country and its hunger or thirst. One bond at most is broken;
every word is as frequent where all fit as where one is broken, so a bag of words can but guess.
"""

import random
from dataclasses import dataclass

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
