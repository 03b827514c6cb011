"""The hooks: what a plugin may add. Verbs, sections of settings, tasks, and parts by kind and name.

Plugins import these from `manyheads.plugin`. Standard library only.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

Code = str | Callable[..., Any]  # "module:name", or the object itself
NOTHING: Mapping[str, Any] = MappingProxyType({})
KINDS = (  # of parts that core, or a plugin of the package, asks for
    *("score", "normaliser", "positions", "pooling", "activation", "norm", "encoder"),
    *("task", "objective", "source", "weights", "figure", "analysis", "answer_rule", "view", "module"),
)


class Verb(NamedTuple):
    """`manyheads NAME key=value ...`.

    Attributes:
        config: its settings, a section.
        run: called with the checked settings.
        groups: the groups of presets it reads, each with the one that is read unless another is typed.
        examples: command lines for its help.
        barred: presets of these groups that make no sense here, each with the reason.
        unread: settings of `config` that it never reads, each with the reason.
        prefix: by group, how the names of its own presets begin, which no other verb reads.
        from_weights: by group, the preset that `init_from=` means here, where it is not the one of `train`.
        task: it is of this task alone, and reads no setting that only others read.
        why_task: why it does not, for the sentence that refuses one.
        no_multirun: what it does, and so why `-m` does nothing here; empty where `-m` runs several.
        takes_several: it tries several values of a setting of a run: those that are typed, or a range such as `1..4`,
            are kept in its setting `search` by name. `takes_several(name, given)`: what is tried of one, a range's
            ends, as values of the setting; raises UserError for what cannot be.
        shared: `shared(config)`: how several jobs of one command share its work, a `Shared`; None: they cannot.
    """

    name: str
    config: Code
    run: Code
    help: str
    groups: Mapping[str, str | None] = NOTHING
    examples: tuple[str, ...] = ()
    barred: Mapping[str, str] = NOTHING
    unread: Mapping[str, str] = NOTHING
    prefix: Mapping[str, str] = NOTHING
    from_weights: Mapping[str, str] = NOTHING
    task: str = ""
    why_task: str = ""
    no_multirun: str = ""
    takes_several: Code | None = None
    shared: Code | None = None


class Shared(NamedTuple):
    """How jobs that were given the same command share its work.

    Attributes:
        target: what they find each other by: the folder or the file at `output`; None where that is not typed.
        remedy: what to type then, such as "folder: add output=FOLDER".
        is_folder: `target` is a folder; else a file, next to which the files of the jobs are.
        words: further words of each job.
        processes: how many processes each job starts at once.
    """

    target: Path | None
    remedy: str
    is_folder: bool = True
    words: tuple[str, ...] = ()
    processes: int = 1


class Section(NamedTuple):
    """Settings `NAME.key`, or without a name plain settings, which verbs of core and of other plugins have, too, where
    they are open to them.

    Attributes:
        config: the section. Where `name` is empty, its settings become settings of what it widens, such as
            `logger.mlflow`, which `check` then checks.
        help: what it is about.
        into: what it widens: `run` a training, `search`, `table` and `curve` verbs that do several, `judge` and
            `answer` those that judge rows or answer texts, `logger` the section of that name; see
            `section(opening=...)`. The hooks below get all settings of the verb, whatever is widened.
        facts: see `setting`, for instance `resume="free"` or `tasks=("pretrain",)`.
        check: `check(config)`, once all settings of a verb are made; raises UserError for what does not go together.
        unread: `unread(config, name)`: why nothing would read a setting that was typed, and what to do; or "".
        launch: `launch(verb, config, words, config_dir)` before a verb runs; where it returns a text, such as the
            command that submits a job, that is printed in place of running. `words` are those after the verb.
        refuse: `refuse(config, where)` where a verb begins to run ("here") and for each job of "-m": raises UserError
            for what cannot be done there, such as what `launch` would have launched.
        files: names, or patterns of `fnmatch`, of what `launch` leaves in the folder of a run that has not begun.
        barred: presets that make no sense in a verb without this section, each with the reason.
        logger: `logger(run, folder)`: a context manager around a training and its judging, in the first process; gives
            a list of Lightning's loggers, which get the figures of steps, then those of splits as `test/accuracy`.
        links: folders in that of a run which such a logger keeps for itself, and which may hold links.
    """

    name: str
    config: Code
    help: str
    into: tuple[str, ...] = ("run",)
    facts: Mapping[str, Any] = NOTHING
    check: Code | None = None
    unread: Code | None = None
    launch: Code | None = None
    refuse: Code | None = None
    files: tuple[str, ...] = ()
    barred: Mapping[str, str] = NOTHING
    logger: Code | None = None
    links: tuple[str, ...] = ()


class Part(NamedTuple):
    """What `name` means where a setting of this kind chooses it, such as `model.score=cosine`.

    Attributes:
        make: what makes it; docs/extending.md has the signature of each kind.
        options: the names and defaults of `model.<kind>_options`; None: those of the signature of `make`.
        facts: what core must know of it before it is made, by kind.
    """

    kind: str
    name: str
    make: "Code | Task"
    options: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = NOTHING


class Task(NamedTuple):
    """What a model learns to answer with: the `make` of a part of kind `task`, which the setting `task` chooses.

    Attributes:
        answers: what it answers by, such as "classes".
        model: what a model of it does, after "run=FOLDER", such as "is a classifier".
        column: the setting `data.<column>` that names the column of the answers: label, target, or text, which is its
            own answer.
        figures: validation figures for `checkpoint.metric`; `auto` is the first. Of a classifier those that are
            registered as such, like the next.
        required: all that evaluate measures, which `require` may bound.
        hub: the Hugging Face hub's name of the task, and its title.
        assemble: `assemble(model, vocab_size=, max_length=, n_classes=, n_segments=)`: the network, of the settings
            `model`. Its `words` are the table of its words.
        objective: `objective(run, tokens, labels)`: a module with `learn(network, batch)` and `check(network, batch)`,
            the losses of a batch; `train_metrics` and `validation_metrics`; `given(batch)`, what the network is called
            with; and `plan(run, tokens, labels, n_words)`, lines of a dry run.
        predictor: a class below `inference.predictor.Predictor`, which opens a model and answers by it.
        evaluate: `evaluate(predictor, rows, setup)`: an `Evaluation`.
        read: `read(run, with_test=)`: the splits; None: the rows with what is in `column`.
        read_split: `read_split(data, split)`: the rows to judge a model on; None: those of `read`.
        tokens: `tokens(splits, tokenizer, max_length, encoded)`: those of each split, by name, where `encoded(rows, n)`
            are those of some rows, cut to n; None: all rows are cut to `max_length`.
        check: `check(run)`: raises UserError where settings do not go together; None: they all do.
        unread: settings of core that it does not read: refused where they are typed.
        lacks: those that also no preset may set for it.
        attends: its network attends, whatever its encoder is.
        is_weights: `init_from` may name a model of it.
        looks: most validations of a run with a budget, at even distances; 0: one each epoch.
    """

    answers: str
    model: str
    column: str
    figures: tuple[str, ...]
    required: tuple[str, ...]
    hub: tuple[str, str]
    assemble: Code
    objective: Code
    predictor: Code
    evaluate: Code
    read: Code | None = None
    read_split: Code | None = None
    tokens: Code | None = None
    check: Code | None = None
    unread: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    attends: bool = False
    is_weights: bool = False
    looks: int = 0

    @property
    def has_classes(self) -> bool:
        return self.column == "label"


class Plugin(NamedTuple):
    """All that one plugin adds.

    Attributes:
        presets: a folder of presets, composed as a further root after those of the package.
    """

    name: str
    version: str = "0"
    verbs: Sequence[Verb] = ()
    sections: Sequence[Section] = ()
    parts: Sequence[Part] = ()
    presets: str | Path | None = None


# What verbs of several plugins share: those that train, and those that judge a trained model on rows.
TRAINING: dict[str, str | None] = {
    "task": "classify",
    "data": "demo",
    "model": "tiny",
    "optim": "scratch",
    "hardware": "auto",
    "logger": "csv",
    "experiment": None,
}  # the groups of whatever trains
FINISHED = {"run": "the data of a finished run, which only evaluate reads"}
OF_TRAINING = {"fsdp": "a way to hold weights in training"}
OF_RUN: dict[str, str | None] = {"data": "run", "hardware": "auto"}  # the groups of whatever judges
LONG = ("data.long", "data.stride", "data.windows")
ONE_DEVICE = {"hardware.devices": "one device is used", "hardware.timeout": "no other process is waited for"}
UNREAD_IN_JUDGING: dict[str, str] = (
    {"data.max_length": "texts are cut as the model was trained to", "data.cache": "nothing is cached"}
    | dict.fromkeys(LONG, "texts are read as the model was trained to")
    | dict.fromkeys(("data.validation_share", "data.test_share", "data.split_seed"), "no split is carved out")
    | dict.fromkeys(("data.folds", "data.fold", "data.group", "data.train_share"), "rows are judged as they are")
)
