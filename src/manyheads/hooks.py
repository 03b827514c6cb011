"""The hooks: what a plugin may add.

    Verb       a command, `manyheads NAME`, with settings of its own
    Flag       another way to run the verbs
    Section    settings of a training or of other verbs, and what they do
    Part       something that a setting chooses by name: a score, a pooling, a figure, a data source, ...
    Task       another thing to learn than classes

A `Plugin` lists them. Core adds its own parts in the same way (builtin.py), and so do the plugins of the package
(plugins/). These import the hooks from `manyheads.plugin`, users' plugins from `manyheads.api`. Standard library only.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

Code = str | Callable[..., Any]  # "module:name", which is imported on first use, or the object itself
NOTHING: Mapping[str, Any] = MappingProxyType({})
KINDS = (  # of parts: those that core or a plugin of the package looks up
    *("score", "normaliser", "positions", "pooling", "activation", "norm", "encoder"),
    *("task", "objective", "source", "file", "folder", "weights", "tokenizer", "module"),
    *("figure", "analysis", "finding", "chapter", "advice", "answer_rule", "view", "record", "writer"),
)


class Verb(NamedTuple):
    """A command: `manyheads NAME key=value ...`.

    Attributes:
        config: the class of its settings, a section.
        run: the function that does it; called with the checked settings.
        help: a line for the list of verbs.
        groups: the groups of presets it reads, each with its default preset or None.
        examples: command lines for its help.
        barred: presets of these groups that make no sense here, each with the reason.
        unread: settings of `config` that it never reads, each with the reason.
        prefix: by group, how the names of its own presets begin, which no other verb reads.
        from_weights: by group, the preset that `init_from=` implies, where it is not that of `train`.
        task: the only task of its models; settings that only other tasks read are refused.
        why_task: the reason, for the sentence that refuses one.
        no_multirun: what the verb does instead, if `-m` does nothing here; "": `-m` runs it several times.
        takes_several: set if the verb tries several values of a setting, such as `optim.lr=1e-3,1e-4` or `1..4`, which
            are collected in its setting `search`. `takes_several(name, given)` returns the values (or the ends of the
            range) as values of the setting, and raises UserError if that is impossible.
        record: called in place of `run` where `--json` is typed; returns what is printed. None: what `run` returns. A
            part of kind `record` that has the verb's name makes tables of it.
        shared: `shared(config)` returns how several jobs of one command share its work; None: they cannot.
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
    record: Code | None = None


class Shared(NamedTuple):
    """How several jobs with the same command share its work.

    Attributes:
        target: the folder or file at `output` through which they find each other; None if it was not typed.
        remedy: what to type in that case, such as "folder: add output=FOLDER".
        is_folder: whether `target` is a folder; else it is a file, and the jobs' files lie next to it.
        words: more words for the command of each job.
        processes: how many processes each job starts at once.
    """

    target: Path | None
    remedy: str
    is_folder: bool = True
    words: tuple[str, ...] = ()
    processes: int = 1


class Flag(NamedTuple):
    """A flag on the command line, by which a verb is run in another way.

    Attributes:
        name, long: its two names, such as `-m` and `--multirun`.
        run: `run(verb, overrides, config_dir)` is called with the words after the verb that are no flags, and the
            folder of a user's own presets or None; returns the exit code.
        help: a line for the list of flags.
    """

    name: str
    long: str
    run: Code
    help: str


class Section(NamedTuple):
    """Settings `NAME.key` that are added to verbs of core and of other plugins, and hooks that act on them.

    Attributes:
        name: the first part of the settings' names; "": they become settings of the section that they widen, such as
            `logger.mlflow`.
        config: the class of the settings.
        help: what they are about, in a line.
        into: the openings that they widen: `run` (a training), `search`, `table`, `curve` (verbs that train several
            times), `judge` (verbs that judge rows), `answer` (verbs that answer texts), `data`, `tokenizer`, `model`,
            `optim`, `logger` (the section of that name); see `section(opening=...)`. The hooks below get all settings
            of the verb, whatever is widened.
        facts: of all settings, as in `setting`: for instance `resume="free"` or `tasks=("pretrain",)`.
        check: `check(config)` is called with the complete settings of a verb; raises UserError for a combination that
            makes no sense.
        unread: `unread(config, name)` returns why nothing would read a setting that was typed, and what to do; or "".
        launch: `launch(verb, config, words, config_dir)` is called before a verb runs, with the `words` after it on the
            command line. If it returns a text, such as the command that submits a job, that is printed and the verb
            does not run.
        refuse: `refuse(config, where)` is called where a verb begins to run ("here") and for each job of `-m` ("-m");
            raises UserError for what is impossible there.
        files: names or `fnmatch` patterns of files that `launch` leaves in the folder of a run that has not begun.
        barred: presets that make no sense in a verb without this section, each with the reason.
        logger: `logger(run, folder)` returns a context manager that is open during training and evaluation, in the
            first process. It yields a list of Lightning loggers; they get the figures of steps, then those of splits,
            such as `test/accuracy`.
        tokenizer: `tokenizer(run, splits, tokenizer)` returns the tokenizer to train with: the given one, or one with
            some of its entries, under their names. With `init_from` the network has the vectors of these alone.
        measure: `measure(context)` is called in the first process with a network that has been trained, see
            `training.context.RunContext`; returns figures with their intervals by name, for summary.json.
        tables: `tables(data, tables)` is called with the settings `data` and the tables that they name, by role (train,
            validation, test; or `all`, of which splits are drawn), each a function that reads one, a
            `data.table.RawTable`. Returns those to use: with other cells or columns, fewer rows, or by other roles.
        links: folders within a run folder that belong to such a logger and may hold symbolic links.
        rows: `rows(run, splits)` is called once the rows of a training are read. It returns `Rows` to learn from in
            addition to train, or None; they may have `probabilities` in place of labels. They are not judged on.
        resolve: `resolve(run, splits)` is called once the rows of a training are read, and once for all trainings of a
            verb or of `data.folds`. It returns `run` with what its settings with the fact `by_rows` come to with these
            rows; raises UserError for rows that such a setting cannot be used with.
        begin: `begin(run, network, tokens, labels, first=)` is called before training begins or resumes, in each of its
            processes, with the tokens of train and the names of the classes. It may freeze parameters, always the same;
            and, where `first`, change the weights, which no step has changed yet; in the end all processes get those of
            the first. The table `network.words` may hold the words of `tokens` alone, see `training.weights.SeenWords`;
            to change the vectors of others is refused.
        coarse: `coarse(data)`, of a section that widens `data`, returns None or `find(labels, multi=)`, which is given
            the labels of the training table, and whether rows have any number of them, and returns those that are no
            classes of their own, each with the classes that it may stand for. Rows with such a label are in no split;
            those of the training table are `splits.coarse`, from which `rows` may learn.
        loss: `loss(run)` returns None or what is minimised in place of cross-entropy, as a part of kind `objective`.
        keep: `keep(data, splits)`, of a section that widens `data`, returns plain values by name, which config.json of
            a classifier holds as `kept`; parts of kind `finding` have it as `stored.kept`.
        fields: `fields(data)`, of such a section, returns names of columns that are joined to a text after `data.text`.
        read: `read(kept)`, of such a section, returns None, or a function of the texts of rows that returns what the
            tokenizer and the linear model of a classifier read of each. A text that was read is returned as it is.
        read_as: `read_as(kept)`, of a section that widens `data`, returns its settings, by name, by which other rows
            are read for a model with these values `kept`.
        script: `script(kept, texts)` returns what `read(kept)(texts)` does, from a module of plain Python, which
            `export` puts next to predict.py.
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
    tokenizer: Code | None = None
    measure: Code | None = None
    links: tuple[str, ...] = ()
    rows: Code | None = None
    tables: Code | None = None
    resolve: Code | None = None
    begin: Code | None = None
    coarse: Code | None = None
    loss: Code | None = None
    keep: Code | None = None
    fields: Code | None = None
    read: Code | None = None
    read_as: Code | None = None
    script: Code | None = None


class Part(NamedTuple):
    """Something that a setting chooses by name: `model.score=cosine` looks up kind "score", name "cosine".

    Attributes:
        kind: one of `KINDS`.
        name: the value of the setting.
        make: the class or function that makes it; docs/extending.md has the signature for each kind.
        options: names and defaults of `model.<kind>_options`; None: the keyword parameters of `make`.
        facts: what core has to know before it is made; docs/extending.md lists the facts of each kind.
    """

    kind: str
    name: str
    make: "Code | Task"
    options: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = NOTHING


class Task(NamedTuple):
    """A kind of answer that a model learns: the `make` of a part of kind `task`, which the setting `task` chooses.

    Attributes:
        answers: the answers, such as "classes".
        model: continues "run=FOLDER ..." in sentences, such as "is a classifier".
        column: the setting `data.<column>` that names the column of answers: label, target, or text, if a text is its
            own answer.
        figures: validation figures for `checkpoint.metric`; `auto` is the first. Of a classifier those that are
            registered as such, like the next.
        required: the figures of evaluate that `require` may bound; or a function that returns them, of what is kept
            with a model (`Section.keep`), or of None where that is not known yet.
        hub: the task's identifier on the Hugging Face hub, and its title.
        assemble: `assemble(model, vocab_size=, max_length=, n_classes=, n_segments=)` builds the network from the
            settings `model`; its attribute `words` is the word embedding.
        objective: `objective(run, tokens, labels)` returns a module with
            `training_loss(network, batch)` and `validation_loss(network, batch)`, the loss of each row;
            `train_metrics` and `validation_metrics`, torchmetrics that these update;
            `given(batch)`, the arguments of the network; and
            `plan(run, tokens, labels, n_words)`, lines for a dry run.
        predictor: a subclass of `inference.predictor.Predictor`, which opens a model and answers with it.
        evaluate: `evaluate(predictor, rows, setup)` returns an `Evaluation`.
        read: `read(run, with_test=)` returns the splits; None: rows with their values in `column`.
        read_split: `read_split(data, split)` returns the rows to judge a model on; None: those of `read`.
        tokens: `tokens(run, splits, tokenizer, encoded)` returns the tokens of each split by name, where
            `encoded(rows, n)` encodes rows, cut to n tokens; None: those of a classifier.
        check: `check(run)` raises UserError for settings that do not go together.
        finish: `finish(context)` is called with a network that has been trained, a `training.context.RunContext`, and
            returns a function that writes further files into the folder of the model, its argument.
        unread: settings of core that it does not read; refused where they are typed.
        lacks: settings that it does not have at all; refused also in a preset.
        attends: whether its network has attention, whatever its encoder is.
        is_weights: whether `init_from` may name a model of this task.
        max_validations: of a run with a budget, evenly spaced; 0: one an epoch.
    """

    answers: str
    model: str
    column: str
    figures: tuple[str, ...]
    required: tuple[str, ...] | Code
    hub: tuple[str, str]
    assemble: Code
    objective: Code
    predictor: Code
    evaluate: Code
    read: Code | None = None
    read_split: Code | None = None
    tokens: Code | None = None
    check: Code | None = None
    finish: Code | None = None
    unread: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    attends: bool = False
    is_weights: bool = False
    max_validations: int = 0

    @property
    def has_classes(self) -> bool:
        return self.column == "label"


class Plugin(NamedTuple):
    """All that one plugin adds: the value `PLUGIN` of its module.

    Attributes:
        name: of the plugin, which no other may have.
        version: recorded with a run.
        presets: a folder of presets, searched after those of the package.
    """

    name: str
    version: str = "0"
    verbs: Sequence[Verb] = ()
    flags: Sequence[Flag] = ()
    sections: Sequence[Section] = ()
    parts: Sequence[Part] = ()
    presets: str | Path | None = None


# What the verbs of several plugins have in common: of those that train, and of those that judge a trained model.
TRAINING: dict[str, str | None] = {
    "task": "classify",
    "data": "demo",
    "model": "tiny",
    "optim": "scratch",
    "hardware": "auto",
    "logger": "csv",
    "experiment": None,
}  # groups of presets, with their defaults
FINISHED = {"run": "the data of a finished run, which only evaluate reads"}
OF_TRAINING = {"fsdp": "it shards weights in training"}
OF_RUN: dict[str, str | None] = {"data": "run", "hardware": "auto"}  # groups of presets, with their defaults
LONG = ("data.long", "data.stride", "data.windows")
ONE_DEVICE = {"hardware.devices": "one device is used", "hardware.timeout": "there is no other process to wait for"}
UNREAD_IN_EVALUATE: dict[str, str] = (
    {"data.max_length": "texts are cut as the model was trained to", "data.cache": "nothing is cached"}
    | dict.fromkeys(LONG, "texts are read as the model was trained to")
    | dict.fromkeys(("data.validation_share", "data.test_share", "data.split_seed"), "no split is held out")
    | dict.fromkeys(("data.folds", "data.fold", "data.group", "data.train_share"), "rows are judged as they are")
)
UNREAD_IN_JUDGING = UNREAD_IN_EVALUATE | {"data.weight": "all rows count alike, but for evaluate"}
