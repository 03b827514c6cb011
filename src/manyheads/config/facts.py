"""How a setting is declared: its default, and the facts about it that its field carries; and how settings are found.

A section is a dataclass whose fields are made by `setting`. `settings` lists those of a schema by dotted name,
`settings_where` those with given facts. `check_ranges` turns a value out of range into one sentence; rules that join
two settings are in the section that holds both. Standard library only.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, make_dataclass, replace
from difflib import SequenceMatcher
from enum import Enum
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform

import manyheads.plugin as plugin
from manyheads.config.sentences import one_of
from manyheads.errors import UserError

Schema = TypeVar("Schema")
BOUNDS = {"ge": ("at least", operator.ge), "gt": ("above", operator.gt)}
BOUNDS |= {"le": ("at most", operator.le), "lt": ("below", operator.lt)}
LONGEST = 200  # characters of what a person may have mistyped; to compare more takes seconds
ALIKE = 0.8  # how similar two names are, of which one may be mistyped
CALLED = {  # a setting, and what other programs call it; docs/coming-from.md has more
    "trainer.max_epochs": "epochs n_epochs num_epochs num_train_epochs max_epoch",
    "trainer.max_steps": "train_steps num_train_steps n_steps",
    "trainer.gradient_clip_val": "max_grad_norm grad_clip gradient_clip clip_grad_norm",
    "optim.lr": "learning_rate body_learning_rate base_lr",
    "optim.weight_decay": "wd",
    "optim.warmup": "warmup_steps warmup_ratio num_warmup_steps",
    "optim.schedule": "lr_scheduler lr_scheduler_type scheduler",
    "optim.beta1": "adam_beta1",
    "optim.beta2": "adam_beta2",
    "optim.eps": "adam_epsilon",
    "optim.objective": "loss loss_fn loss_function criterion",
    "optim.class_weights": "class_weight",
    "optim.focal_gamma": "focal_loss",
    "optim.freeze": "freeze_base freeze_layers",
    "batch.rows": "batch_size train_batch_size per_device_train_batch_size",
    "batch.tokens": "batch_size eval_batch_size per_device_eval_batch_size max_tokens",
    "batch.accumulate": "gradient_accumulation_steps accumulate_grad_batches",
    "model.n_heads": "num_heads heads num_attention_heads nhead",
    "model.n_layers": "num_layers num_hidden_layers layers",
    "model.d_model": "hidden_size hidden_dim dim embedding_dim embed_dim",
    "model.d_ff": "intermediate_size ffn_dim dim_feedforward",
    "model.dropout": "dropout_rate hidden_dropout_prob",
    "model.dropout_attention": "attention_dropout attention_probs_dropout_prob",
    "model.activation": "hidden_act",
    "data.path": "dataset data_file data_path data_dir train_file train_path train_data train_csv file csv path input",
    "input": "data dataset data_file data_path input_file test_file test_path test_data file csv path",
    "data.text": "text_column text_column_name text_column_names text_col text_field feature_columns",
    "data.label": "label_column label_column_name label_col label_field target_column target_col",
    "data.weight": "sample_weight sample_weights weight_column",
    "data.max_length": "max_length max_len maxlen max_seq_length max_seq_len model_max_length max_sequence_length",
    "data.validation_share": "val_size valid_size validation_size dev_size val_ratio validation_fraction",
    "data.validation_split": "val_split dev_split",
    "data.test_share": "test_size test_ratio",
    "data.folds": "k_fold kfold cv n_splits n_folds",
    "data.group": "groups group_by group_column",
    "data.rows": "max_train_samples max_samples max_rows n_rows nrows limit",
    "data.hub": "dataset_name",
    "tokenizer.lowercase": "do_lower_case cased uncased",
    "tokenizer.path": "tokenizer_name tokenizer_file",
    "init_from": "pretrained pretrained_model model_name model_name_or_path model_path base_model pretrainedvectors",
    "model": "model_type architecture",
    "checkpoint.metric": "metric_for_best_model monitor",
    "checkpoint.patience": "early_stop early_stopping early_stopping_patience",
    "checkpoint.every": "save_steps",
    "checkpoint.keep": "save_total_limit save_top_k",
    "resume": "resume_from_checkpoint",
    "output": "output_dir output_path output_file out out_dir outdir save_dir save_path run_name experiment_name name",
    "overwrite": "overwrite_output_dir force",
    "seed": "random_state random_seed",
    "budget": "max_time time_limit",
    "hardware.accelerator": "device gpu cuda use_gpu use_cuda no_cuda",
    "hardware.devices": "gpus num_gpus n_gpus n_gpu world_size",
    "hardware.nodes": "num_nodes",
    "hardware.threads": "n_jobs num_threads",
    "hardware.precision": "bf16 fp16 amp mixed_precision dtype torch_dtype",
    "hardware.recompute": "gradient_checkpointing",
    "hardware.compile": "torch_compile",
    "logger": "report_to tracker",
    "logger.every": "logging_steps log_every_n_steps",
    "run": "checkpoint checkpoint_path ckpt ckpt_path model_path model_dir run_dir model_name model_name_or_path",
    "top_k": "topk",
}
SETTING_ALIASES: dict[str, list[str]] = {}  # what other programs call them: what is meant, the likeliest first
for _setting, _names in CALLED.items():
    for _name in _names.split():
        SETTING_ALIASES.setdefault(_name, []).append(_setting)
NEEDLESS = {  # what other programs ask for, and why there is no such setting
    "the separator of a file is recognised": "sep delimiter separator quotechar",
    "a file is read as UTF-8": "encoding",
    "the first line of a file names its columns": "header",
    "classes are those of the training rows": "num_labels num_classes n_classes",
    "texts are cut at data.max_length and never padded": "padding truncation pad_to_max_length",
    "rows are shuffled in each epoch": "shuffle",
    "splits are drawn by class": "stratify",
    "the weights of the best epoch are kept": "load_best_model_at_end",
}


class Facts(NamedTuple):
    """What is known of a setting beyond its type and default. A fact that is None is that of the section around it.

    `resume`: what another value means for a run that is resumed. It is free to change, makes another model and is said
    to (warn), or is refused. `weights`: with `init_from` the setting is fixed by the weights, theirs by default, free
    of them, or unused.
    """

    help: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    among: tuple[str, ...] | Callable[[], list[str]] = ()  # of a text: all it may be; a function asks the registry
    part: str = ""  # of a text, or each of a list: the name of a part of this kind, see `manyheads.plugin`
    item: Callable[[str, Any], Any] | None = None  # of a mapping: converts one value, given its key
    path: bool = False  # a file or folder, or a list of them: made absolute
    hub: bool = False  # of a path: may be a model of the Hugging Face hub instead
    several: bool = False  # a text, or a list of texts; its type is Any, as Hydra knows no unions of lists
    verbatim: bool = False  # taken as typed, without a grammar of quotes and commas
    may_be_empty: bool = True  # typed without a value
    required: str = ""  # what to do where it is empty
    written_to: bool = False  # a place outside the run folder that a run writes to
    by_data: bool = False  # limits the training by what the data turns out to be
    by_rows: bool = False  # the training rows decide what its default comes to; a resumed run keeps that
    null: str | None = None  # the setting that counts where this one is null
    resume: Literal["free", "warn", "refuse"] | None = None
    weights: Literal["fixed", "default", "free", "unused"] | None = None
    tasks: tuple[str, ...] | None = None  # of a plugin's setting: those that read it; None: all
    needs: str | None = None  # without which nothing reads it: see cli/validation.py
    only_with: str = ""  # of a plugin's setting: another one, without which a verb does not have it
    implies: tuple[str, str] | None = None  # a setting, unless it is changed, and what it is where this one is set

    def within(self, section: "Facts | None") -> "Facts":
        """The same, with what it leaves to the section around it."""
        if section is None:
            return self
        names = ("resume", "weights", "tasks", "needs")
        return self._replace(**{name: getattr(section, name) for name in names if getattr(self, name) is None})

    def limits(self) -> list[str]:
        """The range in words: ["at least 1", "below 10"]."""
        found = []
        for key, (words, _) in BOUNDS.items():
            bound = getattr(self, key)
            if bound is not None:
                found.append(f"{words} {bound}")
        return found

    def allows(self, value: Any) -> bool:
        """Whether a number, or each number of a list, is in range."""
        numbers = value if isinstance(value, list) else [value]
        for key, (_, holds) in BOUNDS.items():
            bound = getattr(self, key)
            if bound is not None and not all(holds(number, bound) for number in numbers):
                return False
        return True


def setting(default: Any, help: str, *, path: bool = False, verbatim: bool = False, **more: Any) -> Any:
    """Declare one setting, or a section of them. `help` is what `manyheads VERB --help` prints; `more` are `Facts`."""
    metadata = {"facts": Facts(help, path=path, verbatim=verbatim or (path and default is not list), **more)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def field_of(schema: type, name: str) -> Any:
    """Declare a setting as another section does."""
    (one,) = (one for one in fields(schema) if one.name == name)
    return field(default=one.default, default_factory=one.default_factory, metadata=one.metadata)


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of a schema: `model.n_heads`, its type, default and facts."""

    name: str
    kind: Any
    default: Any
    facts: Facts

    @property
    def is_text(self) -> bool:
        """Whether it is a text, or a text or several, and no choice among names."""
        return (self.facts.several or self.kind is str) and not self.facts.part and not callable(self.facts.among)

    def is_read_in(self, task: str) -> bool:
        """Whether runs of this task read it."""
        asked = self.facts.tasks is None or task in self.facts.tasks
        return asked and self.name not in plugin.task(task).unread


@cache
def settings(schema: type, where: str = "") -> dict[str, Setting]:
    """Every setting of a dataclass by dotted name, depth first in the order of declaration. Not to be changed.

    Args:
        where: dotted section in front of every name, for instance "model."
    """

    found: dict[str, Setting] = {}

    def collect(schema: Any, where: str, section: Any, section_facts: Facts | None) -> None:
        for one in fields(schema):
            name, facts = f"{where}{one.name}", one.metadata["facts"].within(section_facts)
            default = default_of(one) if section is None else getattr(section, one.name)  # as the section around has it
            if is_dataclass(one.type):
                collect(one.type, f"{name}.", default, facts)
            else:
                found[name] = Setting(name, one.type, default, facts)

    collect(schema, where, None, None)
    return found


@cache
def settings_where(schema: type, **facts: Any) -> tuple[str, ...]:
    """Dotted names of the settings with these facts: `settings_where(RunConfig, path=True)`."""
    wanted = facts.items()
    return tuple(one.name for one in settings(schema).values() if wanted <= one.facts._asdict().items())


def default_of(one: Field) -> Any:
    """The default of a dataclass field, made anew where it is a section."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def require(holds: bool, sentence: str) -> None:
    """Raise `UserError(sentence)` unless the rule holds."""
    if not holds:
        raise UserError(sentence)


def check_ranges(section: Any, name: str) -> None:
    """Check every field of `section` against its range, and choices against their Enum or the registry.

    Raises:
        UserError: names the setting, its value, the range and the default.
    """
    for one in fields(section):
        value, facts = getattr(section, one.name), one.metadata["facts"]
        choices = type(one.default)
        if isinstance(one.default, Enum) and not isinstance(value, choices):
            members = ", ".join(f"{choices.__name__}.{each}" for each in choices.__members__)
            raise UserError(f"{name}{one.name}={value} is not one of {choices.__name__}'s members: choose {members}")
        require(bool(value) or not facts.required, f"{name}{one.name} is empty: {facts.required}")
        known = choices_by(facts)
        for each in value if isinstance(value, list) else [value]:
            if known and each not in known:
                raise UserError(f"{name}{one.name}={each} is not a choice: choose {one_of(known)}")
        if value is None or facts.allows(value):
            continue
        default = default_of(one)
        if default is None:
            default = "null"
        elif default == []:
            default = "an empty list"
        raise UserError(
            f"{name}{one.name}={value} is out of range: it must be {' and '.join(facts.limits())}; "
            f"the default is {default}"
        )


def choices_by(facts: Facts) -> list[str]:
    """All that a text with these facts may be; none where it may be any."""
    if facts.part:
        return plugin.names(facts.part)
    return list(facts.among()) if callable(facts.among) else list(facts.among)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def section(prefix: str = "", opening: str = "") -> Callable[[type[Schema]], type[Schema]]:
    """Declare a section of settings: a frozen dataclass with keywords alone, whose values are checked against their
    facts, then by its own `__post_init__`, then by the plugins that widen it.

    Plugins widen a section that has an `opening`: their settings become further fields of it. Those of the package are
    known when the section is declared. Where a user's plugin is registered later, `with_plugins` makes a class below
    it, which has the same name and is kept until the registry changes again. A section that holds a widened one is
    widened, too. `isinstance(config, RunConfig)` holds for all of them.

    Args:
        prefix: its name in front of those of its settings, for instance "model."
        opening: the name by which plugins add settings to it (`Section.into`); empty: they cannot.
    """

    def declare(schema: Any) -> Any:
        own_check = getattr(schema, "__post_init__", None)  # also that of a section that it extends

        def check(self: Any) -> None:
            check_ranges(self, prefix)
            if own_check is not None:
                own_check(self)
            for one in plugin.sections(opening):
                if one.check is not None:
                    plugin.resolve(one.check)(self)

        schema.opening, schema.__post_init__ = opening, check
        for name, kind, field_ in fields_of_plugins(opening):  # before the class is made: to make one takes long
            schema.__annotations__[name] = kind
            setattr(schema, name, field_)
        return dataclass(frozen=True, kw_only=True)(schema)

    return declare


def fields_of_plugins(opening: str) -> list[tuple[str, Any, Any]]:
    """Name, type and field of what plugins add to the sections with this opening."""
    added = []
    for one in plugin.sections(opening):
        config = plugin.resolve(one.config)
        if one.name:
            added.append((one.name, config, setting(config, one.help, **one.facts)))
        else:
            added += [(each.name, each.type, field_of(config, each.name)) for each in fields(config)]
    return added


def with_plugins(schema: Any) -> Any:
    """A section with the settings that plugins add to it, or within it: a class below it, or itself if they add none
    that it does not have."""
    return _with_plugins(schema, plugin.changes()) if hasattr(schema, "opening") else schema


@cache
def _with_plugins(schema: Any, changes: int) -> Any:
    """`changes` of the registry are a part of the key of the cache."""
    declared = {one.name for one in fields(schema)}
    added: list[tuple[str, Any, Any]] = []
    for one in fields(schema):
        wider: Any = with_plugins(one.type)
        if wider is not one.type:
            added.append((one.name, wider, field(default_factory=wider, metadata=one.metadata)))
    added += [one for one in fields_of_plugins(schema.opening) if one[0] not in declared]
    if not added:
        return schema
    namespace = {"__module__": schema.__module__, "__doc__": schema.__doc__}
    return make_dataclass(schema.__name__, added, bases=(schema,), namespace=namespace, frozen=True, kw_only=True)


def replace_settings(config: Schema, values: Mapping[str, Any]) -> Schema:
    """A copy of a section with other values, by dotted name: `replace_settings(run, {"optim.lr": 0.1})`."""
    for name, value in values.items():
        section, _, key = name.partition(".")
        inner = replace_settings(getattr(config, section), {key: value}) if key else value
        config = replace(config, **{section: inner})  # type: ignore[type-var]
    return config


def hooks(config: Any, name: str) -> Iterator[Callable[..., Any]]:
    """What the sections of plugins that widen `config`, or a section in it, have for a hook: a field of `Section`."""
    inner = [getattr(config, one.name) for one in fields(config)]
    for part in (config, *inner):
        for section in plugin.sections(getattr(part, "opening", "")):
            code = getattr(section, name)
            if code is not None:
                yield plugin.resolve(code)


def nearest_setting(name: str, schema: type, where: str = "") -> str | None:
    """The setting of `schema` that `name` was probably meant to be, or None.

    Args:
        where: dotted section in front of every name of `schema`, for instance "model."
    """
    known: list[str] = []
    for one in settings(schema, where).values():
        if isinstance(one.default, dict):  # of `trainer` its flags: they are what people type
            known += [f"{one.name}.{key}" for key in one.default]
        else:
            known.append(one.name)
    return called_elsewhere(name, known) or nearest(name, known)


def called_elsewhere(name: str, known: Iterable[str]) -> str | None:
    """The setting that other programs call `name`, or its last part, if it is among `known`; else None."""
    usual = SETTING_ALIASES.get(name.rsplit(".", 1)[-1].lower().replace("-", "_"), [])
    return next((one for one in usual if one in known), None)


def why_needless(name: str) -> str:
    """Why there is no such setting, though other programs have one; empty: none is known to."""
    last = name.rsplit(".", 1)[-1].lower()
    return next((why for why, names in NEEDLESS.items() if last in names.split()), "")


def nearest(name: str, known: Iterable[str], at_least: float = ALIKE) -> str | None:
    """The most similar of the dotted names, whole or by their last part; None where nothing is near."""
    if len(name) > LONGEST:
        return None
    name = name.lower().replace("-", "_")
    section, _, last = name.rpartition(".")

    def similarity(candidate: str) -> float:
        candidate = candidate.replace("-", "_")
        its_section, _, its_last = candidate.rpartition(".")
        whole = SequenceMatcher(None, name, candidate).ratio()
        tail = SequenceMatcher(None, last, its_last).ratio()
        if section not in ("", its_section):
            tail *= 0.9
        return max(whole, tail)

    best, highest = None, at_least
    for candidate in known:
        score = similarity(candidate)
        if score > highest:
            best, highest = candidate, score
    return best
