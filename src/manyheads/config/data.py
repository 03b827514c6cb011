"""Where texts and labels come from, how they become tokens, and how tokens become batches."""

import os
import re
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import manyheads.plugin as plugin
from manyheads.config.facts import require, section, setting
from manyheads.config.sentences import format_list, format_value

TEXT_KINDS = (".csv", ".tsv", ".jsonl", ".json", ".txt")
KINDS = (*TEXT_KINDS, ".parquet")
PACKED_KINDS = (".gz", ".bz2", ".xz")
ROLES = ("train", "validation", "test")
LONGEST_PREFIX = 500  # letters
LONGEST = 56  # letters of a name, four bytes each at the most, that a disk takes with a split and a digest after it
HUB_ID = re.compile(r"(\w[\w.-]{0,95}/)?\w[\w.-]{0,95}")  # no path, no address
HUB_MODEL = re.compile(rf"(?P<id>{HUB_ID.pattern})(@(?P<revision>\w[\w./-]{{0,200}}))?")


OnBadRow = Enum("OnBadRow", {"raise": "raise", "drop": "drop"})  # a call, because `raise` is a keyword


class MergeLabels(Enum):
    none = "none"
    case = "case"  # Card and card are one class, called as most rows spell it


class Long(Enum):
    cut = "cut"  # the end is left out
    both = "both"  # head and tail are kept
    windows = "windows"  # all of it is read, a window at a time


class Predictions(Enum):
    """The kind of a file of answers."""

    csv = "csv"
    parquet = "parquet"


AT_ONCE = 2**15  # rows that are made Python objects at once
MOST_WINDOWS = 32


class Cutting(NamedTuple):
    """What becomes of a text of more than `max_length` tokens: the settings of DataConfig by their names."""

    long: Long = Long.cut
    stride: int = 0
    windows: int = MOST_WINDOWS


CUT = Cutting()  # at its end
CLASSIFY = ("classify",)  # the tasks that read a setting


def check_columns(names: list[str]) -> None:
    """Raise UserError unless `names`, of data.text, are two or more different ones."""
    typed = f"data.text={format_list(names)}"
    require(len(names) > 1, f"{typed} joins two columns or more: for one write its name without brackets")
    require(all(names), f"{typed} holds an empty name: name each column")
    require(len({*names}) == len(names), f"{typed} names a column twice: name each once")


@section("data.", opening="data")
class DataConfig:
    """Texts and labels. `path` wins over `hub`, so that every preset also reads a local copy."""

    source: str = setting("demo", "where texts and labels come from", part="source")
    path: str = setting(
        "",
        "file or folder: csv, tsv, jsonl, parquet (also compressed) or a save_to_disk folder",
        path=True,
        may_be_empty=False,
        resume="free",
    )
    hub: str = setting("", "dataset id on the Hugging Face hub", may_be_empty=False)
    hub_config: str = setting("", "configuration name of the hub dataset", needs="hub")
    revision: str = setting("", "revision of the hub dataset", needs="hub")
    streaming: bool = setting(
        False,
        "of a hub dataset or save_to_disk folder too large to store keep the tokens, and texts of a sample",
    )
    text: Any = setting(
        "text",
        "column of the text, or several, as [title,body]; empty, of evaluate alone: that of training",
        several=True,
    )
    text_pair: str = setting("text_pair", "column of the second text; used where it exists, empty: never")
    label: str = setting(
        "label",
        "column of the label; where it is missing labels, any number a row, joined by |",
    )
    target: str = setting("target", "column of the target text, where texts are answered by texts")
    weight: str = setting(
        "", "column of how much each row counts in training, a number of 0 or more; empty: all alike", tasks=CLASSIFY
    )
    votes: str = setting(
        "",
        "column of what annotators say, in place of a label: spam:3|ham:1, spam|spam|ham, or as JSON",
        tasks=CLASSIFY,
    )
    label_columns: list[str] = setting(
        list, "columns in place of a label, each called as a class: its votes, or its probability", tasks=CLASSIFY
    )
    train_split: str = setting("train", "name of the hub dataset's training split")
    validation_split: str = setting(
        "validation", "its validation split; the same as train_split: the training rows; empty: carve one out"
    )
    test_split: str = setting("test", "name of its test split")
    validation_share: float = setting(
        0.1, "share held out of the rows where no validation split exists", gt=0.0, lt=1.0
    )
    test_share: float = setting(
        0.1, "share held out of all rows for testing where one file holds everything", gt=0.0, lt=1.0
    )
    folds: int = setting(
        0,
        "parts of the rows, by class, each judged by a model of the others; 0: none",
        ge=0,
        le=100,
    )
    fold: int | None = setting(
        None, "the one that is judged, from 1; 0: none, all are learnt from; null: each in turn", ge=0, needs="folds",
    )  # fmt: skip
    group: str = setting(
        "",
        "column: rows with the same in it are not parted where folds or splits are drawn",
    )
    train_share: float = setting(
        1.0, "share of the training rows that is used, by class; a smaller one is within a larger", gt=0.0, le=1.0,
    )  # fmt: skip
    split_seed: int | None = setting(None, "seed of carved-out splits; null: that of the run", ge=0, lt=2**32)
    max_length: int = setting(512, "tokens a text is cut to, special tokens included", ge=4, le=2**20)
    long: Long = setting(
        Long.cut, "of longer texts: cut the end; both: keep head and tail; windows: read all of it, window by window"
    )
    stride: int = setting(
        0, "most tokens between the starts of two windows; 0: the length of one", ge=0, needs="windows"
    )
    windows: int = setting(
        MOST_WINDOWS, "most windows of a text; those of a longer one are evenly spread", ge=1, le=4096, needs="windows"
    )
    rows: int = setting(0, "rows read of each split; 0: all", ge=0)
    merge_labels: MergeLabels = setting(
        MergeLabels.none,
        "classes that are one: case joins those that differ by case only",
    )
    on_bad_row: OnBadRow = setting(OnBadRow["raise"], "an empty text or unknown label: raise or drop")
    cache: str = setting(
        "",
        "folder of cached token ids and linear models; empty: $MANYHEADS_CACHE, else ~/.cache/manyheads",
        path=True,
        written_to=True,
        resume="free",
    )

    def __post_init__(self) -> None:
        require(
            self.source != "hub" or bool(self.hub or self.path),
            "data.hub is empty, but data=hub reads a Hugging Face dataset: name one, for example data.hub=imdb, "
            "or give local files by data.path=<file or folder>",
        )
        require(
            not self.hub or HUB_ID.fullmatch(self.hub) is not None,
            f"data.hub={format_value(self.hub)} is no dataset id, such as stanfordnlp/imdb: name one, or local files "
            "by data.path=<file or folder>",
        )
        require(
            not self.streaming or bool(self.hub or self.path) or self.source == "run",
            "data.streaming=true streams datasets of the Hub and of save_to_disk: name one by data.hub= or data.path=",
        )
        require(
            self.source != "files" or bool(self.path),
            "data.path is empty, but data=files reads local files: add data.path=<file or folder>",
        )
        require(
            self.folds != 1, "data.folds=1 leaves nothing to learn from: use two folds or more, such as data.folds=5"
        )
        require(
            not self.folds or (self.fold or 0) <= self.folds,
            f"data.fold={self.fold} is more than the data.folds={self.folds} there are: choose 1 to {self.folds}",
        )
        for name in ("folds", "group", "weight", "votes", "label_columns"):
            value = getattr(self, name)
            require(
                not (self.streaming and value),
                f"data.{name}={format_value(value)} needs rows that are all at hand, which those of "
                "data.streaming=true are not: remove one of them",
            )
        require(
            not (self.votes and self.label_columns),
            f"data.votes={format_value(self.votes)} and data.label_columns={format_list(self.label_columns)} are two "
            "places of what annotators say: remove one of them",
        )
        require(
            len(self.label_columns) != 1 and len({*self.label_columns}) == len(self.label_columns),
            f"data.label_columns={format_list(self.label_columns)} needs a column for each class, two or more, each "
            "named once",
        )
        role_names = ("", "validation", "test", self.train_split)
        require(
            self.validation_split != self.test_split or self.test_split in role_names,
            f"data.validation_split={format_value(self.validation_split)} and "
            f"data.test_split={format_value(self.test_split)} name one split for two roles: name another one, or carve "
            "validation out of train by data.validation_split=",
        )
        if isinstance(self.text, list):
            check_columns(self.text)
            n_least = 2 * len(self.text) + 4
            require(
                self.max_length >= n_least,
                f"data.max_length={self.max_length} leaves no room for the columns of data.text="
                f"{format_list(self.text)}: use at least {n_least}",
            )
            require(
                not self.streaming,
                f"data.text={format_list(self.text)} joins columns of rows that are read again, which those of "
                "data.streaming=true are not: name one column, or leave out streaming",
            )
        require(
            self.stride <= self.max_length,
            f"data.stride={self.stride} would leave tokens out between windows of data.max_length={self.max_length}: "
            "use a smaller one",
        )

    @property
    def validates_on_train(self) -> bool:
        """Whether a run is validated on the rows that it learns from."""
        return self.validation_split == self.train_split

    @property
    def cutting(self) -> Cutting:
        """What becomes of long texts."""
        return Cutting(self.long, self.stride, self.windows)


TokenizerKind = StrEnum("TokenizerKind", "wordpiece bpe unigram characters")


@section("tokenizer.", opening="tokenizer")
class TokenizerConfig:
    """A tokenizer trained on the train split, or loaded from `path`."""

    kind: TokenizerKind = setting(
        TokenizerKind.wordpiece, "what a token is: a piece of a word, or a character", weights="unused"
    )
    vocab_size: int = setting(
        8192, "largest number of entries, special tokens included", ge=16, le=1_000_000, weights="unused"
    )
    lowercase: bool = setting(True, "lower-case the text first", weights="unused")
    path: str = setting("", "tokenizer.json to load instead of training one", path=True)
    prefix: str = setting(
        "", 'put before each text, as the weights of init_from were trained, such as "query: "', verbatim=True
    )

    def __post_init__(self) -> None:
        require(
            not self.prefix or bool(self.path),
            f"tokenizer.prefix='{format_value(self.prefix)}' is for weights that were trained with it before each "
            "text: remove it, or add init_from=",
        )
        require(
            len(self.prefix) <= LONGEST_PREFIX,
            f"tokenizer.prefix='{format_value(self.prefix)}' has {len(self.prefix):,} letters: use {LONGEST_PREFIX} at "
            "the most",
        )


def stem_of(path: Path) -> str:
    """File name without its kind and compression: `train` of `train.csv.gz`."""
    name = path.name
    while Path(name).suffix.lower() in (*KINDS, *PACKED_KINDS, *plugin.names("file")):
        name = Path(name).stem
    return name


def data_name(data: DataConfig) -> str:
    """What a reader calls the data: the name of its file, folder or hub dataset, fit for a folder's name."""
    name = data.hub.rsplit("/", 1)[-1] or data.source
    if data.path:
        path = Path(os.path.expanduser(data.path))
        if os.path.isdir(path):
            name = path.name
        else:
            name = stem_of(path)
            if name in ROLES:  # train.csv says nothing: reviews-train
                name = f"{path.absolute().parent.name}-{name}"
    return re.sub(r"[^\w.-]+", "-", name)[:LONGEST].strip("-.") or "data"


class Balance(Enum):
    """How often rows are drawn, by the number of rows of their class to the power of minus `value`."""

    none = 0.0
    sqrt = 0.5
    uniform = 1.0


@section("batch.")
class BatchConfig:
    """One optimiser step reads `tokens * accumulate` tokens at the most, dealt to however many devices there are."""

    tokens: Any = setting(8192, "most tokens of a batch, a whole number; auto: as many as the GPU has memory for")
    rows: int = setting(64, "most rows of a batch", ge=1)
    accumulate: int = setting(
        1, "batches of one optimiser step, shared among the devices, one after the other on each", ge=1, le=4096
    )
    balance: Balance = setting(
        Balance.none,
        "none: every row once an epoch; sqrt: rows of rare classes more often; uniform: all classes alike",
    )

    def __post_init__(self) -> None:
        is_count = isinstance(self.tokens, int) and not isinstance(self.tokens, bool) and self.tokens >= 1
        require(
            is_count or self.is_auto,
            f"batch.tokens={format_value(self.tokens)} is not understood: it must be auto, or a whole number of at "
            "least 1; the default is 8192",
        )

    @property
    def is_auto(self) -> bool:
        """Whether the number of tokens is still to be found."""
        return self.tokens == "auto"
