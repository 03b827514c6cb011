"""Whether rows are held out: that a model did not learn from them, and what is said if it did."""

from contextlib import suppress
from pathlib import Path

from manyheads.data.rows import Rows, Splits, comparable_hashes
from manyheads.data.sources import read_rows
from manyheads.errors import UserError
from manyheads.inference.format import learnt_in
from manyheads.runs.config_file import read_run
from manyheads.runs.summary import written_summary
from manyheads.terminal import typed_path


def require_same(splits: Splits, split: str, home: Path, otherwise: str) -> None:
    """Raise UserError if `split` may hold training rows, because the data is not that of the training in `home`. If the
    split is a file of its own, and only this file has changed, that is noted in `splits.notes`.

    Args:
        otherwise: what else the user can do.
    """
    known = written_summary(home).get("digests")
    if not isinstance(known, dict) or not known:
        return
    by_name = splits.by_name()

    def has_changed(name: str) -> bool:  # a digest reads all rows: those of other splits are read only if they count
        return known.get(name) != by_name[name].digest(splits.labels)

    if not has_changed(split):
        return
    source = by_name[split].source
    if has_changed("train") or has_changed("validation"):
        raise UserError(
            f"{source} has changed since training: rows that were learnt from may be in its {split} split; give the "
            f"same data, or {otherwise}"
        )
    if split in known:
        splits.notes.append(f"{source}: the {split} split has other rows than when the run was trained")


def learnt_texts(
    model: Path, rows: Rows, labels: list[str], *, who: str = "the model", also_hub: bool = False
) -> tuple[int, str]:
    """How many rows have a text that a run, or one that it began from (`init_from`), learnt from, and a sentence that
    says so. 0 and an empty sentence if they are a split that the run did not learn from, or if its data cannot be read.
    0 and a sentence if most are in its data, but this has changed since.

    Args:
        model: the folder of the model.
        who: the name of its model in the sentence.
        also_hub: read its data even if that is fetched from the Hub.
    """
    home, seen = learnt_in(model), list[Path]()
    while home is not None and home not in seen:
        n, sentence = _learnt_by(home, rows, labels, who, also_hub=also_hub)
        if sentence:
            return n, sentence
        seen.append(home)
        home = _began_from(home)
        if home is not None:
            who = f"{typed_path(home)}, from which {who} began,"
    return 0, ""


def _began_from(home: Path) -> Path | None:
    """The folder of the run that a run names by `init_from`; None if it did not learn the same task."""
    with suppress(ValueError):
        run = read_run(home / "config.yaml")
        if run.init_from:
            origin = Path(run.init_from).expanduser()
            before = learnt_in(origin / "model") or learnt_in(origin)
            if before is not None and read_run(before / "config.yaml").task == run.task:
                return before
    return None


def _learnt_by(home: Path, rows: Rows, labels: list[str], who: str, *, also_hub: bool) -> tuple[int, str]:
    """`learnt_texts` of one run."""
    from manyheads.data.hashes import count_shared  # imports numpy, which no mistake has to wait for

    digests = written_summary(home).get("digests")
    known = digests if isinstance(digests, dict) else {}
    digest = rows.digest(labels)
    if digest in (known.get("validation"), known.get("test")) and digest != known.get("train"):
        return 0, ""
    with suppress(ValueError):
        run = read_run(home / "config.yaml")
        if also_hub or (run.data.path and Path(run.data.path).expanduser().exists()):
            splits = read_rows(run, with_test=False)
            train = splits.train
            n, at, there = count_shared(*comparable_hashes(rows, train))
            if 2 * n > len(rows) and known and splits.digests()["train"] != known.get("train"):
                now = f"it now holds most texts of {rows.source}"
                return 0, f"{train.source} has changed since {who} was trained: {now}"
            if n:
                first = f"(first: row {rows.numbers[at]} is row {train.numbers[there]} of {train.source})"
                return n, f"{n:,} of {len(rows):,} texts of {rows.source} are also in what {who} learnt from {first}"
    return 0, ""


def require_new(model: Path, rows: Rows, labels: list[str], otherwise: str) -> list[str]:
    """Raise UserError if `model` learnt from more than half of these texts; return a note if from fewer.

    Args:
        otherwise: what the user can do.
    """
    n, sentence = learnt_texts(model, rows, labels)
    if 2 * n > len(rows):
        raise UserError(f"{sentence}, of which it is too sure: {otherwise}")
    return [sentence] if sentence else []
