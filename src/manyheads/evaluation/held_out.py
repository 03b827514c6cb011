"""Rows that a model did not learn from: whether some are, and what is said where they are not."""

from contextlib import suppress
from pathlib import Path

from manyheads.config import RunConfig
from manyheads.data.rows import Rows, Splits, row_hashes
from manyheads.data.sources import read_rows
from manyheads.errors import UserError
from manyheads.runs.config_file import read_run
from manyheads.runs.summary import written_summary


def require_held_out(run: RunConfig, what: str, otherwise: str) -> None:
    """Raise UserError if a run was validated on the rows that it learnt from, by which `what` cannot be set."""
    if run.data.validates_on_train:
        raise UserError(
            f"data.validation_split={run.data.validation_split} of the run made its training rows those of validation, "
            f"by which {what} cannot be set, as they were learnt from: {otherwise}"
        )


def require_same(splits: Splits, split: str, home: Path, otherwise: str) -> None:
    """Raise UserError if rows that were learnt from may be in `split`, as the data is not that of the training in
    `home`; what is changed in a split that is a file of its own is noted. `otherwise`: what else can be done."""
    known = written_summary(home).get("digests")
    named = splits.by_name()
    if not isinstance(known, dict) or not known or known.get(split) == named[split].digest(splits.labels):
        return
    source = named[split].source
    if any(known.get(name) != named[name].digest(splits.labels) for name in ("train", "validation")):
        raise UserError(
            f"{source} has changed since training: rows that were learnt from may be in its {split} split; give the "
            f"same data, or {otherwise}"
        )
    if split in known:
        splits.notes.append(f"{source}: the {split} split has other rows than when the run was trained")


def learnt_texts(
    home: Path | None, rows: Rows, labels: list[str], *, who: str = "the model", also_hub: bool = False
) -> tuple[int, str]:
    """How many of the rows have a text that the run in `home`, `who`, learnt from, and that in words. None, where they
    are a split of the run that it did not learn from, or where its data is not at hand, which it is on the Hub if
    `also_hub`."""
    from manyheads.data.hashes import count_shared  # and numpy with it

    known = written_summary(home).get("digests") if home else None
    if not home or (isinstance(known, dict) and rows.digest(labels) in (known.get("validation"), known.get("test"))):
        return 0, ""
    with suppress(ValueError):
        run = read_run(home / "config.yaml")
        if also_hub or (run.data.path and Path(run.data.path).expanduser().exists()):
            train = read_rows(run, with_test=False).train
            n, at, there = count_shared(row_hashes(rows), row_hashes(train))
            first = f"(first: row {rows.numbers[at]} is row {train.numbers[there]} of {train.source})" if n else ""
            return n, f"{n:,} of {len(rows):,} texts of {rows.source} are also in what {who} learnt from {first}"
    return 0, ""


def require_new(home: Path | None, rows: Rows, labels: list[str], otherwise: str) -> list[str]:
    """Raise UserError if the run in `home` learnt from more than a half of the texts of rows that it is not to have
    learnt from; that it did from fewer is said. `otherwise`: what can be done."""
    n, said = learnt_texts(home, rows, labels)
    if 2 * n > len(rows):
        raise UserError(f"{said}, of which it is too sure: {otherwise}")
    return [said] if n else []
