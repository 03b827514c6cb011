"""Settings to plain values and back, values as a sentence quotes them, and the flags of Lightning's Trainer.

The way back trusts nothing, since files of other people pass through it: every key must be declared, every value be
of the declared type, and nothing may name code to call. Standard library only.
"""

import ast
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum, EnumType
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

import manyheads.plugin as plugin
from manyheads.config.facts import Setting, default_of, nearest, nearest_setting, settings
from manyheads.config.facts import one_of as one_of
from manyheads.errors import UserError

Section = TypeVar("Section")
KIND_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
DEEPEST = 8  # levels of nesting, far more than any setting has
OUR_FLAGS = {  # flags that other settings stand for
    "accelerator": "set hardware.accelerator",
    "devices": "set hardware.devices",
    "num_nodes": "set hardware.nodes",
    "strategy": "set hardware.strategy",
    "precision": "set hardware.precision",
    "accumulate_grad_batches": "set batch.accumulate",
    "logger": "choose loggers by logger=NAME",
    "log_every_n_steps": "set logger.every",
    "default_root_dir": "set output",
    "callbacks": "set checkpoint.metric and checkpoint.patience",
    "enable_checkpointing": "set checkpoint.metric and checkpoint.patience",
    "enable_progress_bar": "manyheads draws its own",
    "enable_model_summary": "use dry=true",
    "num_sanity_val_steps": "manyheads checks the data first",
    "use_distributed_sampler": "manyheads shares out the rows",
    "reload_dataloaders_every_n_epochs": "manyheads shares out the rows",
    "plugins": "set hardware.precision and hardware.strategy",
    "barebones": "manyheads needs the figures it leaves out",
    "fast_dev_run": "use debug=fast",
    "overfit_batches": "use debug=overfit",
    "min_steps": "set trainer.max_epochs or trainer.max_steps",
    "limit_train_batches": "set data.rows, or trainer.max_steps",
    "limit_test_batches": "set test=false, or data.rows",
    "limit_predict_batches": "manyheads predict answers every row",
}
END_FLAGS = ("max_epochs", "max_steps")  # of how long a run trains
WARNED_FLAGS = (  # others make another model of a resumed run, as is meant; all further flags but max_time are refused
    *(*END_FLAGS, "gradient_clip_val", "gradient_clip_algorithm"),
    *("val_check_interval", "check_val_every_n_epoch", "limit_val_batches"),
)
_KINDS = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}


def to_plain(value: Any) -> Any:
    """A settings dataclass, or a value of one, as dicts, lists and scalars alone; choices become their names."""
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


def from_plain(schema: type[Section], values: Any, where: str = "") -> Section:
    """Build `schema` from a mapping as `to_plain` makes it; absent keys keep their defaults.

    Args:
        where: dotted section in front of every name, for instance "model."

    Raises:
        UserError: an unknown key, a value of the wrong type, or a rule of the section is broken.
    """
    if not isinstance(values, Mapping):
        name = where.rstrip(".") or "the configuration"
        raise UserError(f"{name}={show(values)} is not a section: it must hold keys and values")
    known = {one.name: one for one in fields(schema)}  # type: ignore[arg-type]
    made = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(unknown_sentence(f"{where}{key}", value, schema, where))
        kind: Any = known[key].type
        if is_dataclass(kind):
            made[key] = from_plain(kind, value, f"{where}{key}.")  # type: ignore[arg-type]
        else:
            one = known[key]
            made[key] = convert(Setting(f"{where}{key}", kind, default_of(one), one.metadata["facts"]), value)
    return schema(**made)


def convert(one: Setting, value: Any) -> Any:
    """`value` as the setting is declared, or a `UserError` naming the setting, the rule and the default."""
    name, default, (inner, optional) = one.name, one.default, unwrap(one.kind)
    if value is None and optional:
        return None
    if inner is Any:
        number = _scalar(int, value) if isinstance(default, int) else None
        return flat(name, value) if number is None else number
    if get_origin(inner) is dict:
        if not isinstance(value, Mapping):
            raise UserError(
                f"{name}={show(value)} is not a section: "
                f"set one {'flag' if name == 'trainer' else 'option'} at a time, such as "
                + (f"{name}.max_epochs=3" if name == "trainer" else f"{name}.NAME=VALUE")
            )
        return {str(key): flat(f"{name}.{key}", each) for key, each in value.items()}
    if get_origin(inner) is list:
        each = replace(one, kind=get_args(inner)[0], default="an empty list")
        if not isinstance(value, list | tuple):
            convert(each, value)  # what no list can hold either is said first
            raise UserError(f"{name}={show(value)} is not a list: write it in brackets, such as {name}=[{show(value)}]")
        return [convert(each, inner_value) for inner_value in value]
    if choices := choices_of(one):
        if isinstance(inner, EnumType) and isinstance(value, inner):
            return value
        if not isinstance(value, str) or value not in choices:
            raise UserError(f"{name}={show(value)} is not a choice: choose {one_of(choices)}")
        return inner[value] if isinstance(inner, EnumType) else value
    made = _scalar(inner, value)
    if isinstance(made, str) and "\0" in made:
        raise UserError(f"{name}={show(value)} holds a NUL, which no name and no file may: remove it")
    if made is None:
        words = KIND_WORDS[inner] + (" or null" if optional else "")
        raise UserError(f"{name}={show(value)} has the wrong type: it must be {words}; the default is {show(default)}")
    return made


def mapping_of(name: str, known: Mapping[str, Setting]) -> str:
    """The setting that holds `name` as one of its keys, such as `trainer`; empty: none does."""
    inside = (one.name for one in known.values() if name.startswith(f"{one.name}.") and get_origin(one.kind) is dict)
    return next(inside, "")


def choices_of(one: Setting) -> list[str]:
    """The names of which a setting, or each value of a list, is one; none where it is no choice."""
    kind, _ = unwrap(one.kind)
    inner = get_args(kind)[0] if get_origin(kind) is list else kind
    if callable(one.facts.among):
        return one.facts.among()
    if one.facts.part:
        return plugin.names(one.facts.part)
    return list(inner.__members__) if isinstance(inner, EnumType) else []


def unwrap(kind: Any) -> tuple[Any, bool]:
    """`float | None` as (float, True); any other type as (type, False)."""
    if isinstance(kind, UnionType):
        (inner,) = (one for one in get_args(kind) if one is not NoneType)
        return inner, True
    return kind, False


def unknown_sentence(name: str, value: Any, schema: type, where: str = "") -> str:
    """The sentence for a key that `schema` does not declare."""
    if name.split(".")[-1] == "_target_":
        return _code_sentence(name, value)
    near = nearest_setting(name, schema, where)
    remedy = f"did you mean {near}?" if near else "none has a name like it, remove it"
    return f"{show(name)}={show(value)} is not a setting: {remedy}"


def _code_sentence(name: str, value: Any) -> str:
    return (
        f"{show(name)}={show(value)} names code to call, which a setting never may: "
        "remove it, and give parts of your own by plugins="
    )


def interpolation_sentence(typed: str) -> str:
    """The sentence for a value that holds `${...}`."""
    return f"{typed} holds an interpolation, but settings are plain values: write the value itself"


def refuse_code(values: Any, verbatim: Collection[str] = ()) -> None:
    """Refuse `_target_` keys, and `${...}` in any text but that of the settings named in `verbatim`."""
    for name, value in leaves(values):
        if "_target_" in name.split("."):
            raise UserError(_code_sentence(name, value))
        if isinstance(value, str) and "${" in value and name not in verbatim:
            raise UserError(interpolation_sentence(f"{show(name)}={show(value)}"))


def held(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The section of nested `values` that holds the setting `name`, and its key there."""
    *sections, key = name.split(".")
    for section in sections:
        values = values[section]
    return values, key


def by_name(schema: type, plain: dict[str, Any]) -> dict[str, Any]:
    """Every setting of `schema` by its dotted name, in the order of declaration, and each flag of the Trainer."""
    found: dict[str, Any] = {}
    for name in settings(schema):
        section, key = held(plain, name)
        found |= (
            {f"trainer.{flag}": value for flag, value in section[key].items()}
            if name == "trainer"
            else {name: section[key]}
        )
    return found


def plain_settings(config: Any) -> dict[str, Any]:
    """`by_name` of a settings dataclass; choices by their names."""
    return by_name(type(config), to_plain(config))


def leaves(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of what is neither a mapping nor a list; what is in a list has the name of the list."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(values, list):
        for value in values:
            yield from leaves(value, name)
    else:
        yield name, values


VOCABULARIES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")  # of older tokenizers


def make_tokenizer(folder: str | Path) -> str:
    """The command that makes the tokenizer.json of a model of transformers whose tokenizer is in older files."""
    made = f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    return f'python -c "from transformers import AutoTokenizer; {made}"'


def older_tokenizer(folder: Path) -> str:
    """What to do where a folder has no tokenizer.json, but older files of a tokenizer; empty: it has none of these."""
    older = next((name for name in VOCABULARIES if (folder / name).is_file()), "")
    return older and f"make one of its {older} by {make_tokenizer(folder)}"


def install_extra(name: str) -> str:
    """The command for the packages of an extra. No index has the package: it is installed from a clone."""
    return f"pip install -e '.[{name}]' in the clone of manyheads"


def show(value: Any) -> str:
    """A value as a sentence quotes it: as typed, on one line, shortened."""
    if isinstance(value, Enum):
        return value.name
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list) and len(value) > 8:
        return f"{len(value)} values"
    try:
        text = str(value)
    except ValueError:  # Python prints no int of more than 4300 digits
        text = "a very long number"
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def first_line(problem: BaseException) -> str:
    """Of what an error says, to be quoted in a sentence; its kind where it says nothing."""
    lines = str(problem).strip().splitlines()
    return lines[0].strip().rstrip(".:")[:200] if lines else type(problem).__name__


def show_list(value: Any) -> str:
    """A value, or the values of a list, as they are typed."""
    return f"[{', '.join(map(show, value))}]" if isinstance(value, list) else show(value)


def flat(name: str, value: Any, depth: int = 0) -> Any:
    """A plain value: scalars, and lists and dicts of them, with text as keys."""
    if depth > DEEPEST:
        raise UserError(f"{name} is nested too deeply: give a plain value")
    if isinstance(value, Mapping):
        if "_target_" in value:
            raise UserError(_code_sentence(f"{name}._target_", value["_target_"]))
        return {
            key if isinstance(key, str) else show(key): flat(name, inner, depth + 1) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [flat(name, inner, depth + 1) for inner in value]
    if isinstance(value, None | bool | int | float | str):
        return value
    raise UserError(f"{name} holds a {type(value).__name__}: give a number, text, true, false or null")


def listed(names: list[str], most: int = 12) -> str:
    """Names as a sentence lists them: of many the first, each shortened."""
    shown = ", ".join(map(show, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _scalar(kind: type, value: Any) -> Any:
    """The value as `kind`, or None where it is of another type. 1e4 is a whole number, 3 a number."""
    if kind in (bool, str):
        return value if isinstance(value, kind) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)  # of a text, too: YAML 1.1 reads 1e-3 as one
    except (ValueError, OverflowError):
        return None
    if kind is float or not number.is_integer():
        return number if kind is float and math.isfinite(number) else None
    return value if isinstance(value, int) else int(number)


def default_trainer() -> dict[str, Any]:
    """Lightning Trainer flags that differ from Lightning's own defaults."""
    return {"max_epochs": 30, "max_steps": 2500, "gradient_clip_val": 1.0}


def check_flags(config: Any) -> None:
    """Check every flag in `config.trainer`, where a verb has such a section, and put each in its own type.

    Raises:
        UserError: see `checked_flag`.
    """
    flags = getattr(config, "trainer", None)
    if flags and flags != default_trainer():
        for name, value in flags.items():
            flags[name] = checked_flag(name, value)


def check_training(trainer: dict[str, Any]) -> None:
    """Training must end after some epochs or steps, since the learning rate falls towards that end; validation must
    read all of its rows or none, and come by steps: by the clock a resumed run would choose among other weights."""
    if all(trainer.get(limit) in (None, -1) for limit in ("max_epochs", "max_steps")):
        raise UserError("trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them")
    limit, interval = trainer.get("limit_val_batches"), trainer.get("val_check_interval")
    if isinstance(interval, str | dict):
        raise UserError(
            f"trainer.val_check_interval={show(interval)} is a time, but validation comes by steps: give a share of an "
            "epoch, such as 0.5, or a number of batches"
        )
    if not reads_all_or_none(limit):
        raise UserError(
            f"trainer.limit_val_batches={show(limit)} would judge epochs by the longest texts alone, which validation "
            "reads first: remove it, or give fewer rows by data.validation_share or data.rows"
        )


def reads_all_or_none(limit: Any) -> bool:
    """Whether a limit of batches, as Lightning's Trainer takes it, leaves out nothing or everything: 1 is one batch and
    1.0 all of them."""
    return limit in (None, 0) or (isinstance(limit, float) and limit == 1.0)


def checked_flag(name: str, value: Any) -> Any:
    """The value of `trainer.<name>`.

    Raises:
        UserError: Lightning has no such flag, another setting stands for it, or the type is wrong.
    """
    typed = f"trainer.{name}={show(value)}"
    if name in OUR_FLAGS:
        raise UserError(f"{typed}: this flag is decided elsewhere: {OUR_FLAGS[name]}")
    known = trainer_flags()
    if name not in known:
        near = nearest(name, [one for one in known if one not in OUR_FLAGS])
        remedy = f"did you mean trainer.{near}?" if near else "see the signature of lightning.pytorch.Trainer"
        raise UserError(f"{typed} is not a flag of Lightning's Trainer: {remedy}")
    words, holds = known[name]
    if isinstance(value, float) and value.is_integer() and "float" not in words:
        value = int(value)  # 1e4
    value = flat(f"trainer.{name}", value)
    if not isinstance(value, holds) or (isinstance(value, bool) and bool not in holds):
        raise UserError(f"{typed} has the wrong type: Lightning takes {' or '.join(words)}")
    return value


@cache
def trainer_flags() -> dict[str, tuple[list[str], tuple[type, ...]]]:
    """Every keyword of `lightning.pytorch.Trainer`: the words and the types of the plain values it takes. They are read
    from its source, as importing Lightning takes seconds; to look up more than the top package would import it."""
    spec = find_spec("lightning")
    assert spec is not None, "lightning is a dependency"
    assert spec.submodule_search_locations
    source = Path(spec.submodule_search_locations[0], "pytorch", "trainer", "trainer.py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (trainer,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "Trainer")
    (init,) = (one for one in trainer.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return {one.arg: _kinds(one.annotation) for one in init.args.kwonlyargs}


def _kinds(annotation: ast.expr | None) -> tuple[list[str], tuple[type, ...]]:
    names = [one.id for one in ast.walk(annotation) if isinstance(one, ast.Name)] if annotation else []
    words = [name for name in _KINDS if name in names or (name == "str" and any(one.startswith("_") for one in names))]
    kinds = [_KINDS[word] for word in words] or list(_KINDS.values())
    kinds += [int] * (float in kinds)
    if "Optional" in names:
        return [*words, "null"], (*kinds, NoneType)
    return words, tuple(kinds)
