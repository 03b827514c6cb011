"""`pretrain.before=10min`: a run first learns from its own texts without their labels, then is trained from that.

Both are runs of their own: the pretraining lies in `<output>/pretrain`. It never sees what the run is judged on.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from manyheads.config import PairKind, Resume, RunConfig, Segments
from manyheads.runs.config_file import read_run, save_run
from manyheads.runs.folder import held, is_first_process, named_folder, refuse_links, start_folder
from manyheads.runs.resume import find_start

FOLDER = "pretrain"
POLL = 0.1  # seconds
OF_TRAINING = ("dropout", "dropout_embedding", "dropout_residual", "dropout_classifier", "dropout_attention")
OF_TRAINING += ("dropout_tokens",)


def pretrained(run: RunConfig, train: Callable[[RunConfig], Any]) -> RunConfig:
    """`run` as it goes on once its pretraining is done, which is begun, gone on with or found finished here.

    Raises:
        ValueError, Stopped: as of `train`.
    """
    if run.dry:
        train(pretraining_of(run, ""))
        return replace(run, pretrain=replace(run.pretrain, before=""))
    if run.resume is Resume.never:
        find_start(run)  # which refuses a folder that holds something
    else:
        refuse_links(named_folder(run.output))
    if run.resume is Resume.must:
        refuse_anew(run)
    folder = start_folder(run.output, again=run.resume is not Resume.never)
    goes_on = going_on(run, folder)
    reading = pretraining_of(run, str(folder / FOLDER))
    if (folder / FOLDER / "summary.json").is_file():  # a guard that the training has to change is too late for it
        reading = replace(reading, guard=read_run(folder / FOLDER).guard)
    if (folder / "summary.json").is_file():
        find_start(reading)  # which refuses another pretraining than the one that was done
        return goes_on
    if is_first_process() and not (folder / "config.yaml").is_file():
        with held(folder):
            save_run(replace(run, output=str(folder)), folder / "config.yaml")
    train(reading)
    wait_for(folder / FOLDER / "summary.json", run.hardware.timeout)
    return goes_on


def wait_for(last: Path, timeout: float) -> None:
    """Wait until the first process has written the `last` file of the pretraining; the others are done before it is.

    Raises:
        ValueError: it did not within `timeout` seconds.
    """
    until = monotonic() + timeout
    while not last.is_file():
        if monotonic() > until:
            raise ValueError(
                f"{last} did not appear within hardware.timeout={timeout:g} seconds: the process that writes it has "
                "ended or is stuck; its log says why"
            )
        sleep(POLL)


def refuse_anew(run: RunConfig) -> None:
    """A run that must go on has a pretraining that is done, or can go on.

    Raises:
        ValueError: it has neither.
    """
    inner = named_folder(run.output) / FOLDER
    if not (inner / "summary.json").is_file():
        find_start(replace(pretraining_of(run, str(inner)), resume=Resume.must))


def pretraining_of(run: RunConfig, output: str) -> RunConfig:
    """The pretraining of a run: as `manyheads pretrain` would do it on the same data, with the same encoder."""
    from manyheads.cli.compose import compose  # it brings Hydra, which a run without pretraining does not need

    usual = compose("pretrain", [f"init_from={run.init_from}"] if run.init_from else [])
    model = replace(run.model, **{name: getattr(usual.model, name) for name in OF_TRAINING})
    if model.pair is PairKind.cross:  # texts are read apart there: so they have no segments
        alone = Segments.never if model.segments is Segments.pairs else model.segments
        model = replace(model, pair=PairKind.joint, segments=alone)
    same = ("seed", "test", "dry", "init_from", "data", "tokenizer", "guard", "hardware", "logger")
    return replace(
        usual,
        **{name: getattr(run, name) for name in same},
        model=model,
        output=output,
        resume=Resume.never if run.dry else Resume.auto,
        budget=run.pretrain.before,
        batch=replace(usual.batch, tokens=run.batch.tokens),
        pretrain=replace(run.pretrain, before=""),
        checkpoint=replace(usual.checkpoint, every=run.checkpoint.every, keep=run.checkpoint.keep),
        trainer=usual.trainer | {key: run.trainer[key] for key in ("max_time",) if key in run.trainer},
    )


def going_on(run: RunConfig, folder: Path) -> RunConfig:
    """The training that follows: it has the weights and the tokenizer of the pretraining in `folder`."""
    weights = folder / FOLDER
    return replace(
        run,
        output=str(folder),
        resume=Resume.auto,
        init_from=str(weights),
        tokenizer=replace(run.tokenizer, path=str(weights / "model" / "tokenizer.json")),
        pretrain=replace(run.pretrain, before=""),
    )
