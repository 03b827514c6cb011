"""Where a run starts: from scratch, at its newest checkpoint, or nowhere because it is finished.

A resumed run is compared with the saved one in two steps that share no setting: `find_start` compares all settings but
the limits of training, before any row is read; `check_limits` compares those, as soon as rows or a budget have decided
them. Standard library only.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.config import Resume, RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.config.facts import settings
from manyheads.config.sentences import format_value
from manyheads.config.trainer_flags import END_FLAGS, WARNED_FLAGS
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.runs.checkpoints import delete_leftovers, newest_checkpoint, read_progress
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json_or_none
from manyheads.runs.folder import is_unbegun, named_folder, refuse_links, refuse_taken, refuse_unwritable_output
from manyheads.runs.lock import lock_run_folder
from manyheads.runs.resolve import BUDGET_FLAGS, with_resolved
from manyheads.runs.restart import RestartState, read_restart_state


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts.

    Attributes:
        checkpoint: the one it resumes from; None: from scratch.
        progress: its progress.json.
        saved: the settings of the run that is in the folder; None: it holds none that matters.
        finished: nothing is left to do.
        restart: what a guard has decided for this start.
        notes: lines for the log.
    """

    checkpoint: Path | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    saved: RunConfig | None = None
    finished: bool = False
    restart: RestartState = RestartState()
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What the run took before."""
        return float(self.progress.get("seconds", 0.0))

    @property
    def is_trained(self) -> bool:
        """Whether the last step is done."""
        return self.finished or bool(self.progress.get("finished"))

    def with_resolved(self, run: RunConfig) -> RunConfig:
        """`run` with what its settings were resolved to at its first start, if there was one."""
        return run if self.saved is None else with_resolved(run, self.saved)

    def knows_budget(self, run: RunConfig) -> bool:
        """Whether the budget of `run`, if it has one, was converted to steps before."""
        return not run.budget or (self.saved is not None and self.saved.budget == run.budget)


def find_start(run: RunConfig) -> Start:
    """What `run.resume` means for the folder `run.output`.

    Nothing is written; the first process deletes leftovers of a kill. The folder does not change after that until all
    processes have read it, and they follow the first where they have seen something else.

    Raises:
        UserError: the folder holds something else, no checkpoint where one is required, or a run with other settings.
    """
    if run.resume is Resume.never or run.dry:
        refuse_taken(run.output, by_training=not run.dry)
        if not run.dry:
            refuse_unwritable_output(run.output or "outputs")
        return Start()
    folder = named_folder(run.output)
    if not folder.is_dir():
        refuse_taken(str(folder))  # a file
    if not folder.is_dir() or is_unbegun(folder):
        _refuse_without_checkpoint(run, folder)
        refuse_unwritable_output(str(folder))
        return Start()
    if not (folder / "config.yaml").is_file():
        if not this_process().is_first:
            return Start()  # the first is about to write it, or refuses
        raise UserError(f"output={folder} is not empty and holds no run with its config.yaml: name another folder")
    refuse_links(folder)
    if (folder / "summary.json").is_file():
        start = Start(saved=read_run(folder), finished=True)
    else:
        start = find_restart(folder, saved=None)
        if start.checkpoint is None:
            _refuse_without_checkpoint(run, folder)
            return _restart_of_same_run(start, run, folder)
    return _compared(start, run, folder)


def find_restart(folder: Path, saved: RunConfig | None) -> Start:
    """The start at the newest checkpoint of the run in `folder`, with what a guard has decided for it.

    Args:
        saved: its settings; None: those of its config.yaml.
    """
    with lock_run_folder(folder):
        if this_process().is_first:
            delete_leftovers(folder)
            delete_leftovers(folder / "checkpoints")
        checkpoint = newest_checkpoint(folder / "checkpoints")
    restart = read_restart_state(folder)
    progress = {} if checkpoint is None else read_progress(checkpoint)
    if saved is None and (checkpoint is not None or restart != RestartState()):
        saved = read_run(folder)
    return Start(checkpoint, progress, saved, restart=restart, notes=restart.notes())


def _restart_of_same_run(start: Start, run: RunConfig, folder: Path) -> Start:
    """Without a checkpoint what a guard has decided counts for a run with the same settings alone."""
    if start.saved is None:
        return Start()
    try:
        _compared(start, run, folder)
    except ValueError:
        return Start()
    return start


def _compared(start: Start, run: RunConfig, folder: Path) -> Start:
    """`start` with notes on the settings that differ from the saved run; the limits of training are left to
    `check_limits`."""
    saved = start.saved
    assert saved is not None
    later = [f"trainer.{name}" for name in _limits(run)]
    step = int(start.progress.get("step", 0))
    notes = list(changed_settings(saved, with_resolved(run, saved), folder, step, skipped=later))
    if start.is_trained:  # other settings are refused, so that nobody takes old figures for new ones
        _refuse_too_late(notes, folder)
    return Start(start.checkpoint, start.progress, saved, start.finished, start.restart, [*notes, *start.notes])


def _limits(run: RunConfig) -> tuple[str, ...]:
    """The flags of the Trainer that settings alone do not decide."""
    return BUDGET_FLAGS if run.budget else END_FLAGS


def changed_settings(
    saved: RunConfig, run: RunConfig, folder: Path, step: int, *, skipped: Iterable[str] = (), only: Iterable[str] = ()
) -> Iterator[str]:
    """A note on each setting that may differ from the saved run and does.

    Args:
        skipped: settings that are not compared.
        only: the settings that are compared; empty: all.

    Raises:
        UserError: a setting differs that may not.
    """
    old, new, skipped = plain_settings(saved), plain_settings(run), {*skipped}
    for name in only or dict.fromkeys([*old, *new]):
        if name in skipped or old.get(name) == new.get(name) or resume_policy(name) == "free":
            continue
        was, asked = f"{name}={format_value(old.get(name))}", f"{name}={format_value(new.get(name))}"
        if resume_policy(name) == "refuse":
            raise UserError(
                f"{asked}, but the run in {folder} has {was}, which its checkpoints depend on: leave that as it was, "
                "or start a new run in another folder"
            )
        yield f"{asked} from step {step} on, where the run began with {was}"


def resume_policy(name: str) -> str:
    """What another value of a setting means for a run that is resumed: "free", "warn" or "refuse".

    Raises:
        KeyError: nobody has decided it.
    """
    section, _, flag = name.partition(".")
    if section == "trainer":
        if flag == "max_time":
            return "free"
        return "warn" if flag in WARNED_FLAGS else "refuse"
    decided = settings(RunConfig)[name].facts.resume
    if decided is None:
        raise KeyError(name)
    return decided


def check_limits(start: Start, run: RunConfig) -> list[str]:
    """Compare the limits of training, once they are resolved in `run`, with those of the saved run.

    Returns:
        Notes on those that differ.

    Raises:
        UserError: they differ and the run is trained to its end, or the run is already past one: it would end at once,
            with weights that were never validated.
    """
    if start.saved is None:
        return []
    folder, step = named_folder(run.output), int(start.progress.get("step", 0))
    limits = [f"trainer.{name}" for name in _limits(run)]
    notes = list(changed_settings(start.saved, run, folder, step, only=limits))
    if start.is_trained:
        _refuse_too_late(notes, folder)
    elif start.checkpoint is not None:
        _refuse_passed(start, run, folder)
    return notes


def _refuse_too_late(notes: Iterable[str], folder: Path) -> None:
    for note in notes:
        if not note.startswith("hardware."):
            changed = note.partition(" ")[0]
            raise UserError(
                f"the run in {folder} is trained to its end, too late for {changed}: leave that as it was, or start a "
                "new run in another folder"
            )


def _refuse_passed(start: Start, run: RunConfig, folder: Path) -> None:
    begun = int(start.progress["batch"]) > 0  # another step, of another epoch
    for name in ("steps", "epochs"):
        limit, done = run.trainer.get(f"max_{name}"), int(start.progress[name.removesuffix("s")])
        if limit not in (None, -1) and limit < done + begun:
            asked = f"budget={run.budget}, which is {limit} {name}" if run.budget else f"trainer.max_{name}={limit}"
            raise UserError(
                f"{asked}, but the run in {folder} has done {done} {name} and is not finished: give more, or leave "
                "that as it was"
            )


def refuse_other_input(digests: Mapping[str, str], files: Mapping[str, str], folder: Path) -> None:
    """Refuse rows or files that a finished run did not read, since its figures are of others.

    Args:
        digests: of the rows of each split.
        files: digests of the files that settings name, by setting.

    Raises:
        UserError: one of them differs.
    """
    summary = read_json_or_none(folder / "summary.json")
    known = summary if isinstance(summary, dict) else {}
    other = "start a new run in another folder"
    if name := first_difference(known.get("digests"), digests):
        raise UserError(
            f"the rows of {name} are not those that the finished run in {folder} read: give the same data, or {other}"
        )
    if name := first_difference(known.get("files"), files):
        raise UserError(
            f"{name} names other content than the finished run in {folder} read: give the same files, or {other}"
        )


def first_difference(known: Any, now: Mapping[str, str]) -> str:
    """The first name whose digest is known and differs; empty: none."""
    if not isinstance(known, dict):
        return ""
    for name, digest in now.items():
        if known.get(name, digest) != digest:
            return name
    return ""


def _refuse_without_checkpoint(run: RunConfig, folder: Path) -> None:
    if run.resume is Resume.must:
        raise UserError(
            f"resume=must, but {folder / 'checkpoints'} holds no checkpoint that is whole: "
            "use resume=auto to start anew there, or name another folder by output="
        )
