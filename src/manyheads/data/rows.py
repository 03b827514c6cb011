"""Rows and splits: what a run learns from and is judged on, once it was read and checked. Standard library at first:
mistakes in settings and data are reported before torch is imported."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice, repeat
from typing import Any

import manyheads.plugin as plugin
from manyheads.data.class_names import join_names
from manyheads.data.table import Unread, take
from manyheads.data.texts import hash_texts

ROWS_AT_ONCE = 4096
NO_LABEL = "no label"  # of a row that may have any number of them
STABLE = "manyheads.data.hashes:stable_text_hashes"  # imports NumPy


@dataclass(slots=True)
class Rows:
    """Checked rows of one split.

    All columns are sequences: texts, pairs and targets of a table are read again whenever they are used
    (`column.Column`), labels and numbers are arrays, and each different set is held once (`table.Coded`).

    Attributes:
        texts: the text of each row.
        pairs: the second text of each row; None: a row has one text.
        labels: class ids. Of rows with target texts all are 0. Of rows with any number of labels the rarest label of
            each, by which splits are carved, or the number of classes if it has none.
        source: the name of the file, for sentences.
        numbers: the row numbers that users see in `source`: the header of a csv or tsv is row 1, a jsonl row is its
            line, anything else counts from 1.
        targets: the text that answers each row; None: rows have classes.
        sets: the ids of all labels of each row, in their order; None: a row has one class.
        unread: the other columns of the table, if they were requested.
        hashes: of the texts, or of the pairs: int64; None: not computed yet.
        groups: a number for each row: rows with the same one stay in one split.
        probabilities: of each class `(n, C)`, float32, from which a row is learnt; None: from its label.
        any_of: whether a row has just one of the classes that have a probability, it is not known which `(n,)`, bool;
            None: none is such a row.
        voters: how many votes these are shares of `(n,)`, float32; None: they are no votes.
        weights: how much each row counts in training `(n,)`, float64, 0 or more; None: all alike.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[int]
    source: str
    numbers: Sequence[int]
    targets: list[str] | None = None
    sets: list[tuple[int, ...]] | None = None
    unread: Unread | None = field(default=None, compare=False, repr=False)
    hashes: Any = field(default=None, compare=False, repr=False)
    groups: Any = field(default=None, compare=False, repr=False)
    probabilities: Any = field(default=None, compare=False, repr=False)
    any_of: Any = field(default=None, compare=False, repr=False)
    voters: Any = field(default=None, compare=False, repr=False)
    weights: Any = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def texts_of(self, at: int) -> list[str]:
        """The text of a row, or both of a pair."""
        if self.pairs is None:
            return [self.texts[at]]
        return [self.texts[at], self.pairs[at]]

    def pick(self, indices: Any) -> "Rows":
        """The rows at `indices`, in that order."""

        def picked(column: Any) -> Any:
            if column is None or not len(column):  # labels are empty until rows are answered
                return column
            return take(column, indices)

        texts, hashes = picked(self.texts), None
        if self.hashes is not None and is_stream(self.texts) == is_stream(texts):  # see `comparable_hashes`
            hashes = row_hashes(self).take(indices)
        return Rows(
            texts=texts,
            pairs=picked(self.pairs),
            labels=picked(self.labels),
            source=self.source,
            numbers=picked(self.numbers),
            targets=picked(self.targets),
            sets=picked(self.sets),
            unread=None if self.unread is None else self.unread.pick(indices),
            hashes=hashes,
            groups=picked(self.groups),
            probabilities=None if self.probabilities is None else self.probabilities[indices],
            any_of=None if self.any_of is None else self.any_of[indices],
            voters=None if self.voters is None else self.voters[indices],
            weights=None if self.weights is None else self.weights[indices],
        )

    def sample(self, n: int, seed: int) -> "Rows":
        """`n` rows drawn at random, in their own order; all of them if `n` is 0 or there are no more."""
        import numpy as np

        if n <= 0 or n >= len(self):
            return self
        return self.pick(np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False)))

    def readable(self) -> "Rows":
        """The rows whose texts can be read again: all, but of a stream those that were kept."""
        if not is_stream(self.texts):
            return self
        return self.pick(self.texts.readable())  # pyright: ignore[reportAttributeAccessIssue]

    def digest(self, labels: list[str]) -> str:
        """Sixteen hex digits of the texts and their answers, in their order; classes count by their names."""
        texts: Iterable[Any] = self.texts
        pairs: Iterable[Any] = repeat("", len(self)) if self.pairs is None else self.pairs
        if is_stream(texts):  # whose texts cannot be read again
            texts, pairs = row_hashes(self).tolist(), repeat("", len(self))
        rows = map("{}\0{}\0{}\0".format, texts, pairs, self._answers(labels))
        digest = blake2b(digest_size=8)
        while part := "".join(islice(rows, ROWS_AT_ONCE)):
            digest.update(part.encode())
        for further in (self.probabilities, self.weights):
            if further is not None:
                digest.update(further.tobytes())
        return digest.hexdigest()

    def _answers(self, labels: list[str]) -> Iterable[str]:
        if self.targets is not None:
            return self.targets
        if not labels:
            return repeat("", len(self))
        if self.sets is not None:
            return (join_names(sorted(labels[id] for id in ids)) for ids in self.sets)
        return (labels[id] for id in self.labels)


@dataclass(slots=True)
class Splits:
    """The splits of a run.

    Attributes:
        labels: the name of each class by its id; empty where rows have target texts.
        notes: facts and warnings for the log and the report.
        own_train: train without the rows that plugins added (`Section.rows`); None: they added none.
        coarse: rows whose label stands for several classes (`Section.coarse`), with equal `probabilities` of these.
        kept: what plugins keep with a classifier of these rows (`Section.keep`), once their tokens were made.
    """

    train: Rows
    validation: Rows
    test: Rows | None
    labels: list[str]
    notes: list[str] = field(default_factory=list)
    own_train: Rows | None = None
    coarse: Rows | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def multi(self) -> bool:
        """Whether a row has any number of labels, each of which is predicted by itself."""
        return self.train.sets is not None

    def by_name(self) -> dict[str, Rows]:
        """The splits by their names."""
        splits = {"train": self.train, "validation": self.validation}
        if self.test is not None:
            splits["test"] = self.test
        return splits

    def digests(self) -> dict[str, str]:
        """The digest of the rows of each split."""
        parts = self.by_name()
        if self.own_train is not None:
            parts |= {"train": self.own_train, "train and further": self.train}
        return {name: rows.digest(self.labels) for name, rows in parts.items()}


def row_hashes(rows: Rows) -> Any:
    """Hashes of the texts, or of the pairs: an int64 array."""
    import numpy as np

    if rows.hashes is not None:
        return np.asarray(rows.hashes)
    hashes, _ = hash_texts(rows.texts, rows.pairs)
    return np.asarray(hashes)


def is_stream(texts: Any) -> bool:
    """Whether texts are those of a stream, not all of which can be read again."""
    return hasattr(texts, "readable")


def comparable_hashes(rows: Rows, others: Rows) -> tuple[Any, Any]:
    """The `row_hashes` of both. Those of a stream are the same in every process, as they are kept in the cache; all
    others are quicker to make. So what is compared with a stream is hashed as that is."""
    if is_stream(rows.texts) == is_stream(others.texts):
        return row_hashes(rows), row_hashes(others)
    stable = plugin.resolve(STABLE)
    if is_stream(rows.texts):
        return row_hashes(rows), stable(others.texts, others.pairs)
    return stable(rows.texts, rows.pairs), row_hashes(others)


def group_ids(rows: Rows) -> Any:
    """A number for each row, int64: rows with the same one stay in one split. They are of one group or, where rows have
    no groups, of one text."""
    import numpy as np

    if rows.groups is None:
        return row_hashes(rows)
    return np.asarray(rows.groups, dtype=np.int64)


def zero_labels(texts: Any) -> Any:
    """The class ids of rows without classes: int32 zeros."""
    import numpy as np

    return np.zeros(len(texts), dtype=np.int32)


def class_counts(rows: Rows, n_classes: int) -> list[int]:
    """How many rows have each class or label."""
    counts = Counter[int]()
    if rows.sets is None:
        counts.update(rows.labels)
    else:
        for ids in rows.sets:
            counts.update(ids)
    return [counts[label] for label in range(n_classes)]


def label_words(rows: Rows, labels: list[str]) -> list[str]:
    """The name of each row's class; where a row has any number of labels, their names joined, or that it has none."""
    if rows.sets is None:
        return [labels[label] for label in rows.labels]
    return [join_names([labels[label] for label in ids]) or NO_LABEL for ids in rows.sets]
