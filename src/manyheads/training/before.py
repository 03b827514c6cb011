"""What happens before the first step: settings checked, learning from texts without labels, a teacher's answers.

What this machine lacks and what is not in the data is refused, by a `ValueError` of one sentence, before torch is
imported: standard library only, until a teacher answers.

`pretrain.before=10min`: a run first learns from its own texts without their labels, then is trained from that. Both are
runs of their own: the pretraining lies in `<output>/pretrain`. It never sees what the run is judged on.

`teacher=<run>`: the logits of a finished run for the training rows, from which another one learns.

n rows . C classes
"""

import hashlib
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from manyheads.config import (
    Balance,
    DataConfig,
    InferenceHardware,
    LoggerConfig,
    LoggerKind,
    Long,
    ModelConfig,
    PairKind,
    Resume,
    RunConfig,
    Segments,
    Task,
    TuneConfig,
)
from manyheads.config.fields import listed
from manyheads.data.rows import Rows, Splits
from manyheads.inference.format import FILES, MORE, ModelFolder, open_folder
from manyheads.runs.config_file import read_run, save_run
from manyheads.runs.folder import held, is_first_process, named_folder, refuse_links, start_folder, wait_for
from manyheads.runs.resume import Start, find_start

if TYPE_CHECKING:
    import torch
    from torch import Tensor


PACKAGES = {  # any one of them
    LoggerKind.csv: (),
    LoggerKind.tensorboard: ("tensorboard", "tensorboardX"),
    LoggerKind.wandb: ("wandb",),
}
SHOWN = 12  # class names in a sentence
BYTES_JUDGED, BYTES_CONFUSED = 20, 16  # of an answer, as logits and probabilities; of a cell, as a number and in a list
BYTES_MARKED, BYTES_DRAWN = 73, 73_000  # where a row has any number of labels: of an answer; of a label, resampled
FOLDER = "pretrain"


def check_end(trainer: dict[str, Any]) -> None:
    """Training must end after some epochs or steps: the learning rate falls towards that end."""
    if all(trainer.get(limit) in (None, -1) for limit in ("max_epochs", "max_steps")):
        raise ValueError(
            "trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them"
        )


def check_logger(logger: LoggerConfig) -> None:
    """The package of `logger.kind` must be installed."""
    packages = PACKAGES[logger.kind]
    if packages and not any(find_spec(name) for name in packages):
        raise ValueError(missing_package(logger))


def missing_package(logger: LoggerConfig) -> str:
    """The sentence for a logger whose package is not installed."""
    return f"logger.kind={logger.kind.name} needs a package that is not installed: pip install 'manyheads[track]'"


def check_rows(run: RunConfig | TuneConfig, splits: Splits) -> None:
    """What settings say of classes and pairs of texts must be in the data."""
    pairs = splits.train.pairs is not None
    check_class_names(run.optim.class_weights, splits.labels)
    check_balance(run.batch.balance, run.optim.class_weights, multi=splits.multi)
    if run.model.pair is PairKind.cross and not pairs:
        raise ValueError(
            "model.pair=cross compares two texts, but the data has no second text: name its column by data.text_pair, "
            "or use model.pair=joint"
        )
    check_long(run.data, pairs=pairs)


def check_long(data: DataConfig, *, pairs: bool) -> None:
    """`data.long=windows` reads one text a row."""
    if data.long is Long.windows and pairs:
        raise ValueError(
            "data.long=windows reads a long text in parts, but the data has pairs of texts: use data.long=both, or "
            "leave the second text out by data.text_pair="
        )


def check_size(splits: Splits, memory: int) -> None:
    """Judging by classes must fit into `memory`, in bytes: all answers to the rows of the larger split and, where a row
    has one class, the table of confusions, else the figures of each label in every resample."""
    judged, n_classes = max(splits.test or splits.validation, splits.validation, key=len), len(splits.labels)
    per_class = BYTES_JUDGED * len(judged) + BYTES_CONFUSED * n_classes
    n_bytes = n_classes * (BYTES_MARKED * len(judged) + BYTES_DRAWN if splits.multi else per_class)
    if n_bytes > memory:
        raise ValueError(
            f"judging {len(judged):,} rows ({judged.source}) by {n_classes:,} classes takes {n_bytes / 1e9:,.0f} GB, "
            f"but this machine has {memory / 1e9:,.0f} GB: join rare classes in the data, or read fewer rows by "
            "data.rows"
        )


def check_balance(balance: Balance, choice: Any, *, multi: bool) -> None:
    """`batch.balance` draws rows by their one class, which `optim.class_weights` do not make up for, too."""
    if multi and balance is not Balance.none:
        raise ValueError(
            f"batch.balance={balance.name} draws rows by their class, but rows of this data have any number of "
            "labels: remove it, or weigh labels by optim.class_weights=balanced"
        )
    if choice == "balanced" and balance is not Balance.none:
        raise ValueError(
            f"batch.balance={balance.name} and optim.class_weights=balanced would both make up for rare classes: "
            "remove one of them"
        )


def check_class_names(choice: Any, names: list[str]) -> None:
    """`optim.class_weights` must name classes of the data, if it names any."""
    unknown = [name for name in choice if name not in names] if isinstance(choice, dict) else []
    if unknown:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ValueError(
            f"optim.class_weights names the class {unknown[0]!r}, which is not in the data: "
            f"the classes are {', '.join(names[:SHOWN])}{more}"
        )


def pretrained(run: RunConfig, train: Callable[[RunConfig], Any]) -> RunConfig:
    """`run` as it goes on once its pretraining is done, which is begun, resumed or found finished here by `train`."""
    if run.dry:
        train(pretraining_of(run, ""))
        return replace(run, pretrain=replace(run.pretrain, before=""))
    if run.resume is Resume.never:
        find_start(run)  # which refuses a folder that holds something
    else:
        refuse_links(named_folder(run.output))
    if run.resume is Resume.must:
        inner = named_folder(run.output) / FOLDER
        if not (inner / "summary.json").is_file():
            find_start(replace(pretraining_of(run, str(inner)), resume=Resume.must))  # which refuses to begin
    folder = start_folder(run.output, again=run.resume is not Resume.never)
    goes_on = replace(
        run,
        output=str(folder),
        resume=Resume.auto,
        init_from=str(folder / FOLDER),
        tokenizer=replace(run.tokenizer, path=str(folder / FOLDER / "model" / "tokenizer.json")),
        pretrain=replace(run.pretrain, before=""),
    )
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
    last, timeout = folder / FOLDER / "summary.json", run.hardware.timeout  # the others are done before the first is
    why = f"{last} did not appear within hardware.timeout={timeout:g} seconds: the process that writes it has ended or"
    wait_for(last, timeout, f"{why} is stuck; its log says why")
    return goes_on


def pretraining_of(run: RunConfig, output: str) -> RunConfig:
    """The pretraining of a run: as `manyheads pretrain` would do it on the same data, with the same encoder."""
    from manyheads.cli.compose import compose

    usual = compose("pretrain", [f"init_from={run.init_from}"] if run.init_from else [])
    dropout = [one.name for one in fields(ModelConfig) if one.name.startswith("dropout")]
    model = replace(run.model, **{name: getattr(usual.model, name) for name in dropout})
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


def check_teacher(teacher: str, splits: Splits) -> None:
    """The teacher, if there is one, must be a run that answers such rows with the same classes. Nothing heavy is
    imported."""
    if not teacher:
        return
    folder = open_teacher(teacher)
    settings = folder.settings
    if settings.task is not Task.classify:
        raise ValueError(f"teacher={teacher} has task={settings.task.name}, but a teacher must be a classifier")
    takes, has = (
        "pairs of texts" if pairs else "single texts" for pairs in (settings.pairs, splits.train.pairs is not None)
    )
    if takes != has:
        raise ValueError(f"teacher={teacher} takes {takes}, but the data has {has}: name another run")
    labels = folder.labels()
    if sorted(labels) != sorted(splits.labels):
        raise ValueError(
            f"teacher={teacher} has the classes {listed(labels)}, but the data has {listed(splits.labels)}: "
            "name a run that was trained on the same classes"
        )
    if settings.multi != splits.multi:
        gives, has = ("any number of labels" if multi else "one label" for multi in (settings.multi, splits.multi))
        raise ValueError(f"teacher={teacher} answers with {gives}, but a row of the data has {has}: name another run")


def open_teacher(teacher: str) -> ModelFolder:
    """The folder of the teacher's model."""
    try:
        return open_folder(teacher)
    except ValueError as error:
        raise ValueError(str(error).replace("run=", "teacher=", 1)) from error


def teach(run: RunConfig, splits: Splits) -> "Tensor":
    """The teacher's logits `(n, C)` of the training rows, its classes in the order of `splits.labels`.

    It reads the texts by its own tokenizer, and answers in the type that was asked for, by default the quickest.
    Answers are cached as tokens are: of processes that start together one computes them. Adds to `splits.notes` what
    was answered.
    """
    import torch

    from manyheads.data.cache import cache_folder, cached_logits
    from manyheads.inference.precision import choose_device, quick

    folder, rows, hardware = open_teacher(run.teacher), splits.train, run.hardware
    names = folder.labels()
    device = choose_device(InferenceHardware(accelerator=hardware.accelerator, threads=hardware.threads))
    autocast = quick(hardware.precision, folder.settings.model, device)
    logits_nC = cached_logits(
        rows,
        f"{digest_of(run.teacher)} {autocast or torch.float32}",
        len(names),
        lambda: answers(folder, rows, device, autocast),
        cache_folder(run.data),
        float(hardware.timeout),
    )
    logits_nC = logits_nC[:, [names.index(label) for label in splits.labels]]
    note = f"teacher: {run.teacher} answers {len(rows):,} training rows"
    if not splits.multi:
        right = (logits_nC.argmax(-1) == torch.tensor(rows.labels)).double().mean()
        note += f", {float(right):.1%} of them as they are labelled"
    splits.notes.append(note)
    return logits_nC


def answers(folder: ModelFolder, rows: Rows, device: "torch.device", autocast: "torch.dtype | None") -> "Tensor":
    """Logits `(n, C)` of the model in `folder`, its classes in their own order."""
    from manyheads.inference.classifier import TextClassifier, in_chunks
    from manyheads.inference.folder import load
    from manyheads.terminal import progress_bar

    with progress_bar(len(rows)) as progress:
        model = load(folder, TextClassifier).on(device, autocast)
        ask = lambda texts, pairs: {"": model.logits(texts, pairs, tokens=8192)}  # noqa: E731
        return in_chunks(ask, rows, len(model.labels), progress)[""]


def digest_of(teacher: str) -> str:
    """Of all that the teacher answers by."""
    folder, digest = open_teacher(teacher).path, hashlib.sha256()
    for name in (*FILES, *(one for one in MORE if (folder / one).is_file())):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def check_same_teacher(teacher: str, start: Start) -> None:
    """A student goes on with the teacher it began with: its path alone does not say that it is the same."""
    before = start.progress.get("teacher", "")
    if start.checkpoint is not None and teacher and before and before != digest_of(teacher):
        raise ValueError(
            f"teacher={teacher} is no longer the model that {start.checkpoint} was taught by: put that model back, or "
            "start a new run in another folder"
        )
