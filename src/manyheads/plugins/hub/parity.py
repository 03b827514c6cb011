"""The gate of every format: an export answers as the run does, or nothing is written.

Compared are rows of the run's own validation split, and some odd ones. Of graphs whose matrices are rounded to 8 bits
it also says how many answers to those rows that changes.

n rows . C classes
"""

from collections.abc import Callable, Sequence
from itertools import compress, cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyheads.config.sentences import format_value
from manyheads.data.formats.fields import FIELD, join_cells, reader_of
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows
from manyheads.data.tokenizer import names_of_marks
from manyheads.data.tokens import encode
from manyheads.errors import UserError
from manyheads.evaluation.intervals import share_interval
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.format import enclosing_run
from manyheads.plugins.hub.config import Format
from manyheads.runs.config_file import read_run

COMPARED, JUDGED = 200, 2000  # rows of the validation split
TYPED = 20  # most marks such as [SEP] that are typed in an odd text each
TOGETHER = 16  # rows of a batch
UNKNOWN = "\u17a3\u2603 \u03a9\u0436 \U0001f600"
# Of a logit, fp32 on both sides: sums are rounded in another order, in a graph of tiny operations most.
BOUNDS = dict.fromkeys(Format, 5e-5) | {Format.onnx: 1e-4, Format.browser: 1e-4}
BOUND_OF_BOTH = 1e-5  # of a probability where a linear model answers, too: its logits are logarithms without a floor
Ask = Callable[[list[str], list[str] | None], Any]  # texts, and their pairs or None, to logits (n, C)


class Compared(NamedTuple):
    """Rows that both sides answer.

    Attributes:
        said: which they are, in words.
        rows: the whole validation split, if there is one.
    """

    texts: list[str]
    pairs: list[str] | None
    said: str
    rows: Rows | None


def rows_to_compare(predictor: TextClassifier, model: Path) -> Compared:
    """Validation rows of the run whose model/ folder is `model`, and some odd rows. Where its data cannot be read, rows
    are made of the vocabulary."""
    rows = validation_rows(model)
    words = [word for word in sorted(predictor.tokenizer.get_vocab()) if word.isalpha()] or ["a"]
    reads_rows = reader_of(predictor.settings.kept) is not None
    longest = " ".join(islice(cycle(words), predictor.max_length // 4 if reads_rows else 2 * predictor.max_length))
    odd, odd_pairs = ["", words[0], longest, UNKNOWN], [words[0], "", longest, words[-1]]
    for name in names_of_marks(predictor.tokenizer)[:TYPED]:
        odd.append(f"{words[0]} {name} {words[-1]}")
        odd_pairs.append(f"{words[-1]}{name}")
    kind = "pairs" if predictor.pairs else "texts"
    named = "empty, one word, the longest, unknown letters, special tokens as text"
    if rows is not None:
        texts, pairs = list(rows.texts[:COMPARED]), list((rows.pairs or [])[:COMPARED])
        if predictor.settings.fields:  # of longer texts the run cuts each column, the export the end
            given = list(zip(texts, pairs, strict=True)) if pairs else texts
            whole = [len(one) <= predictor.max_length for one in predictor.tokenizer.encode_batch(given)]
            texts, pairs = [*compress(texts, whole)], [*compress(pairs, whole)]
        said = f"{len(texts)} {kind} of its validation split"
    else:
        step = max(1, len(words) // COMPARED)
        texts = [" ".join(words[at : at + 12]) for at in range(0, len(words), step)][:COMPARED]
        pairs = texts[::-1]
        said = f"{len(texts)} {kind} made of its vocabulary, as its data cannot be read,"
    texts, all_pairs = [*texts, *odd], [*pairs, *odd_pairs] if predictor.pairs else None
    if reads_rows:  # of those made here all other columns are empty
        empty = [""] * (len(predictor.settings.fields) - 1)
        texts = [text if FIELD in text else join_cells([text, *empty]) for text in texts]
    return Compared(texts, all_pairs, f"{said} and {len(odd)} odd ones ({named})", rows)


def validation_rows(model: Path) -> Rows | None:
    """Those of the run that a model/ folder is in; None where there is no run, or its data cannot be read."""
    home = enclosing_run(model)
    if home is None:
        return None
    try:
        return read_rows(read_run(home), with_test=False).validation
    except (ValueError, OSError):
        return None


class Apart(NamedTuple):
    """The largest difference to the run in logits or probabilities, `what`, and the row that has it."""

    what: str
    worst: float
    row: int


def hold_to_run(
    predictor: TextClassifier, exported: Ask, compared: Compared, kind: Format, *, both: bool = False
) -> str:
    """Refuse an export that does not answer as the run does; returns by how much it differs, and the bound.

    Args:
        exported: gives logits of the network, which are compared; with `both` those of both members together, whose
            probabilities are compared.

    Raises:
        UserError: the rest of a sentence about the run: a row is answered otherwise.
    """
    what, worst, at = apart(predictor, exported, compared, both=both)
    bound = BOUND_OF_BOTH if both else BOUNDS[kind]
    if not worst <= bound:
        row = format_value(compared.texts[at][:60])
        if compared.pairs:
            row += f" and {format_value(compared.pairs[at][:60])}"
        raise UserError(
            f"answers otherwise by format={kind.name}: the {what} of {row} differ by {worst:.1e}, more than "
            f"{bound:.0e}: nothing is written; use another format, and report the shape"
        )
    return f"{what} differ by at most {worst:.1e}, and more than {bound:.0e} would have been refused"


def apart(predictor: TextClassifier, exported: Ask, compared: Compared, *, both: bool) -> Apart:
    """The largest difference of `exported` to the run, see `hold_to_run`."""
    texts, pairs = predictor.as_read(compared.texts), compared.pairs
    # texts are cut at their end, as the export cuts them, whatever the run does with long ones
    encoded = encode(predictor.tokenizer, texts, pairs, None, predictor.max_length)
    ours_nC = predictor.run(encoded).values
    theirs_nC = in_batches(exported, texts, pairs)
    if both:
        ours_nC = predictor.probabilities(predictor.with_linear(ours_nC, texts, pairs).double())
        theirs_nC = predictor.probabilities(theirs_nC.double())
    apart_n = (ours_nC - theirs_nC).abs().amax(1).nan_to_num(nan=torch.inf)
    return Apart("probabilities" if both else "logits", float(apart_n.max()), int(apart_n.argmax()))


def in_batches(answer: Ask, texts: Sequence[str], pairs: Sequence[str] | None) -> Tensor:
    """Logits `(n, C)` on the CPU, some rows at a time."""
    found = []
    for start in range(0, len(texts), TOGETHER):
        batch = slice(start, start + TOGETHER)
        batch_pairs = list(pairs[batch]) if pairs else None
        found.append(torch.as_tensor(answer(list(texts[batch]), batch_pairs)))
    return torch.cat(found)


def changed_by_rounding(
    predictor: TextClassifier,
    before: Ask,
    after: Ask,
    rows: Rows | None,
    most: float,
    thresholds: Sequence[float],
) -> str:
    """What rounding changes: the share of validation rows that are answered otherwise, and the accuracy on them.

    Args:
        before, after: the graph before rounding, and after it.
        thresholds: of each label, where a row has any number of them; else empty.

    Raises:
        UserError: there are no such rows, or more than the share `most` of them are answered otherwise.
    """
    if rows is None:
        raise UserError(
            "has no validation rows to judge precision=int8 on, as its data cannot be read: give the data back its "
            "place, or use precision=fp32"
        )
    texts, pairs = [str(text) for text in rows.texts[:JUDGED]], rows.pairs and rows.pairs[:JUDGED]
    answers: list[list[Any]] = []  # before and after: a class a row, or for each label whether the row has it
    for ask in (before, after):
        logits_nC = in_batches(ask, texts, pairs)
        if thresholds:
            least_C = torch.tensor(thresholds, dtype=torch.float64)
            answers.append((logits_nC.double().sigmoid() >= least_C).tolist())
        else:
            answers.append(logits_nC.argmax(1).tolist())
    in_fp32, in_int8 = answers
    changed = (len(texts) - n_equal(in_fp32, in_int8)) / len(texts)
    if changed > most:
        raise UserError(
            f"by precision=int8 gives other answers to {changed:.1%} of {len(texts):,} validation rows, more than "
            f"max_changed={most}: nothing is written; use precision=fp32"
        )
    true: list[Any] = list(rows.labels[: len(texts)])
    if rows.sets is not None:
        true = []
        for labels in rows.sets[: len(texts)]:
            true.append([label in labels for label in range(len(predictor.labels))])
    return (
        f"int8 changes the answers to {changed:.1%} of {len(texts):,} validation rows, on which accuracy is "
        f"{share_interval(n_equal(in_int8, true), len(true)).words} for "
        f"{share_interval(n_equal(in_fp32, true), len(true)).words} in fp32"
    )


def n_equal(some: list[Any], others: list[Any]) -> int:
    return sum(one == other for one, other in zip(some, others, strict=True))
