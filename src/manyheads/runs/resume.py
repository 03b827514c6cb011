"""Where a run begins: anew, at its newest checkpoint, or nowhere since it is finished. Standard library only."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from manyheads.config import Resume, RunConfig
from manyheads.config.facts import settings
from manyheads.config.fields import END_FLAGS, WARNED_FLAGS, plain_settings, show
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.runs.checkpoints import delete_leftovers, newest_checkpoint, read_progress
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json_or_none
from manyheads.runs.folder import is_unbegun, named_folder, refuse_links, refuse_taken
from manyheads.runs.lock import lock_run_folder
from manyheads.runs.restart import RestartState, read_restart_state

ENDS = (*END_FLAGS, "val_check_interval")  # what a budget is settled into


@dataclass(frozen=True, slots=True)
class Start:
    """The checkpoint to go on from, if any, and what its progress.json holds; or that there is nothing left to do.

    `tokens` is what batch.tokens=auto came to when the run began, `metric` what checkpoint.metric=auto did, `end` what
    budget did in flags of the Trainer, `limits` what its data and the flags of then came to, `again` what it does
    otherwise than then.
    """

    checkpoint: Path | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    notes: list[str] = field(default_factory=list)
    tokens: int | None = None
    metric: str | None = None
    end: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    again: RestartState = RestartState()

    @property
    def seconds(self) -> float:
        """What the run took before."""
        return float(self.progress.get("seconds", 0.0))

    def settled(self, run: RunConfig) -> RunConfig:
        """`run` with the batches, the end, and by the figure, that it began with."""
        run = replace(run, trainer={**run.trainer, **self.end}) if self.end else run
        run = run if self.tokens is None else replace(run, batch=replace(run.batch, tokens=self.tokens))
        return run if self.metric is None else replace(run, checkpoint=replace(run.checkpoint, metric=self.metric))

    def but_for_limits(self, run: RunConfig) -> RunConfig:
        """`run` settled, with the limits that it began with: what they are now is known once its data is read."""
        return replace(self.settled(run), trainer={**self.settled(run).trainer, **self.limits})


def find_start(run: RunConfig) -> Start:
    """What `run.resume` means for the folder `run.output`. Nothing is written; the first process deletes leftovers of a
    kill. Nothing else changes there before all have seen it, and they go on from what the first has seen.

    A UserError says that the folder holds what is not to be touched, nothing to go on from where there must be, or a
    run with other settings.
    """
    if run.resume is Resume.never or run.dry:
        refuse_taken(run.output, by_training=run.resume is Resume.never and not run.dry)
        return Start()
    folder = named_folder(run.output)
    if not folder.is_dir():
        refuse_taken(str(folder))  # a file
    if not folder.is_dir() or is_unbegun(folder):
        _refuse_nothing(run, folder)
        return Start()
    if not (folder / "config.yaml").is_file():
        if not this_process().is_first:
            return Start()  # the first is about to write it, or refuses
        raise UserError(f"output={folder} is not empty and holds no run with its config.yaml: name another folder")
    refuse_links(folder)
    if (folder / "summary.json").is_file():  # other settings are refused, so that nobody takes old figures for new
        before = read_run(folder)
        start = Start(finished=True, **_settled(before, run))
        _refuse_late(changes(before, start.but_for_limits(run), folder, 0), folder)
        return start
    with lock_run_folder(folder):
        for one in (folder, folder / "checkpoints") if this_process().is_first else ():
            delete_leftovers(one)
        checkpoint = newest_checkpoint(folder / "checkpoints")
    again = read_restart_state(folder)
    if checkpoint is None:
        _refuse_nothing(run, folder)
        return _anew(run, folder, again)
    progress, before = read_progress(checkpoint), read_run(folder, goes_on=True)
    start = Start(checkpoint, progress, **_settled(before, run), again=again)
    notes = list(changes(before, start.but_for_limits(run), folder, int(progress["step"])))
    if progress.get("finished"):
        _refuse_late(notes, folder)
    if start.end or not (run.budget or run.optim.limits_by_data):  # else only the rows tell what the limits are
        check_limits(start, start.settled(run))
    return replace(start, notes=[*notes, *again.notes()])


def _refuse_late(notes: Iterable[str], folder: Path) -> None:
    for note in notes:
        if not note.startswith("hardware."):
            late = note.partition(" ")[0]
            raise UserError(
                f"the run in {folder} is trained to its end, too late for {late}: leave that as it was, or start a new "
                "run in another folder"
            )


def changed_limits(start: Start, *settled: RunConfig) -> list[str]:
    """What to say of limits that are others than those the run began with, once its data is read: they are refused
    where it is trained to its end.

    Args:
        settled: the run with its limits; several where more than the labels would tell which, of which one may do.
    """

    def changed(run: RunConfig) -> list[str]:
        return [
            f"trainer.{name}={show(run.trainer.get(name))} from step {start.progress.get('step', 0)} on, where the run "
            f"began with trainer.{name}={show(was)}"
            for name, was in start.limits.items()
            if run.trainer.get(name) != was
        ]

    notes = min(map(changed, settled), key=len)
    if start.finished or start.progress.get("finished"):
        _refuse_late(notes, named_folder(settled[0].output))
    return notes


def refuse_other_input(digests: Mapping[str, str], files: Mapping[str, str], folder: Path) -> None:
    """Refuse rows, of which there are the `digests` of each split, and `files` of settings that a finished run did not
    read: its figures are of others."""
    written = read_json_or_none(folder / "summary.json")
    rows, contents = (written.get(key) if isinstance(written, dict) else None for key in ("digests", "files"))
    other = "start a new run in another folder"
    if name := _differing(rows, digests):
        raise UserError(
            f"the rows of {name} are not those that the finished run in {folder} read: give the same data, or {other}"
        )
    if name := _differing(contents, files):
        raise UserError(
            f"{name} names other content than the finished run in {folder} read: give the same files, or {other}"
        )


def _differing(known: Any, now: Mapping[str, str]) -> str:
    """The first name whose digest is known and another now; empty: none."""
    known = known if isinstance(known, dict) else {}
    return next((name for name, digest in now.items() if known.get(name, digest) != digest), "")


def resume_policy(name: str) -> str:
    """What another value of a setting means for a run that is resumed: "free", "warn" or "refuse"; a `KeyError`, where
    nobody has decided."""
    section, _, flag = name.partition(".")
    if section == "trainer":
        return "free" if flag == "max_time" else "warn" if flag in WARNED_FLAGS else "refuse"
    decided = settings(RunConfig)[name].facts.resume
    if decided is None:
        raise KeyError(name)
    return decided


def _anew(run: RunConfig, folder: Path, again: RestartState) -> Start:
    """The start of a run without a checkpoint: what was written down for its next start counts for the same alone."""
    if again == RestartState():
        return Start()
    before = read_run(folder)
    start = Start(**_settled(before, run), again=again, notes=again.notes())
    try:
        list(changes(before, start.but_for_limits(run), folder, 0))
    except ValueError:
        return Start()
    return start


def _settled(before: RunConfig, run: RunConfig) -> dict[str, Any]:
    """What `auto` in `run` came to when it began."""
    asked, began = ((one.budget, one.optim.few_epochs, one.optim.steps_per_class) for one in (run, before))
    names = () if asked != began else ENDS if run.budget else END_FLAGS
    ends = {name: before.trainer[name] for name in names if name in before.trainer}
    return {
        "tokens": before.batch.tokens if run.batch.is_auto else None,
        "metric": before.checkpoint.metric if run.checkpoint.metric == "auto" else None,
        "end": ends if run.budget else {},
        "limits": ends if not run.budget and run.optim.limits_by_data else {},
    }


def _refuse_nothing(run: RunConfig, folder: Path) -> None:
    if run.resume is Resume.must:
        raise UserError(
            f"resume=must, but {folder / 'checkpoints'} holds no checkpoint that is whole: "
            "use resume=auto to start anew there, or name another folder by output="
        )


def changes(before: RunConfig, now: RunConfig, folder: Path, step: int) -> Iterator[str]:
    """What to say of settings that differ; one that may not is refused."""
    old, new = plain_settings(before), plain_settings(now)
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) == new.get(name) or resume_policy(name) == "free":
            continue
        was, typed = f"{name}={show(old.get(name))}", f"{name}={show(new.get(name))}"
        if resume_policy(name) == "refuse":
            raise UserError(
                f"{typed}, but the run in {folder} has {was}, which its checkpoints are made of: leave that as it was, "
                "or start a new run in another folder"
            )
        yield f"{typed} from step {step} on, where the run began with {was}"


def check_limits(start: Start, run: RunConfig) -> None:
    """Refuse a limit that was passed before: it would end the run at once, with weights that nothing has judged.

    Args:
        run: settled; a budget is, where it is not that of the run's beginning, only once its steps are timed.
    """
    if start.checkpoint is None or start.progress.get("finished"):
        return
    within = int(start.progress["batch"]) > 0
    for name in ("steps", "epochs"):
        limit, done = run.trainer.get(f"max_{name}"), int(start.progress[name.removesuffix("s")])
        if limit not in (None, -1) and limit < done + within:
            typed = f"budget={run.budget}, which is {limit} {name}" if run.budget else f"trainer.max_{name}={limit}"
            raise UserError(
                f"{typed}, but the run in {start.checkpoint.parent.parent} has done {done} {name} and goes on: "
                "give more, or leave that as it was"
            )
