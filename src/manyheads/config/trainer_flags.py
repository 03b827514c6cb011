"""Flags of Lightning's Trainer, read from its source: importing Lightning takes seconds, reading it takes none."""

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyheads.config.facts import nearest
from manyheads.config.fields import flat, show
from manyheads.config.run import default_trainer

OURS = {  # flags that other settings stand for
    "accelerator": "set hardware.accelerator",
    "devices": "set hardware.devices",
    "num_nodes": "set hardware.nodes",
    "strategy": "set hardware.strategy",
    "precision": "set hardware.precision",
    "accumulate_grad_batches": "set batch.accumulate",
    "logger": "set logger.kind",
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
}
LIMITS = ("max_epochs", "max_steps")  # of how long a run trains
WARNED = (  # others make another model of a resumed run, as is meant; all further flags but max_time are refused
    *(*LIMITS, "gradient_clip_val", "gradient_clip_algorithm"),
    *("val_check_interval", "check_val_every_n_epoch", "limit_val_batches"),
)
_KINDS = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}


def check_flags(config: Any) -> None:
    """Check every flag in `config.trainer`, where a verb has such a section, and put each in its own type.

    Raises:
        ValueError: as of `checked_flag`.
    """
    flags = getattr(config, "trainer", None)
    if flags and flags != default_trainer():
        for name, value in flags.items():
            flags[name] = checked_flag(name, value)


def checked_flag(name: str, value: Any) -> Any:
    """The value of `trainer.<name>`.

    Raises:
        ValueError: Lightning has no such flag, another setting stands for it, or the type is wrong.
    """
    typed = f"trainer.{name}={show(value)}"
    if name in OURS:
        raise ValueError(f"{typed}: this flag is decided elsewhere: {OURS[name]}")
    known = trainer_flags()
    if name not in known:
        near = nearest(name, [one for one in known if one not in OURS])
        remedy = f"did you mean trainer.{near}?" if near else "see the signature of lightning.pytorch.Trainer"
        raise ValueError(f"{typed} is not a flag of Lightning's Trainer: {remedy}")
    words, holds = known[name]
    if isinstance(value, float) and value.is_integer() and "float" not in words:
        value = int(value)  # 1e4
    value = flat(f"trainer.{name}", value)
    if not any(_is(value, kind) for kind in holds):
        raise ValueError(f"{typed} has the wrong type: Lightning takes {' or '.join(words)}")
    return value


@cache
def trainer_flags() -> dict[str, tuple[list[str], list[type]]]:
    """Every keyword of `lightning.pytorch.Trainer`: the words and the types of the plain values it takes."""
    tree = ast.parse(_source().read_text(encoding="utf-8"))
    (trainer,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "Trainer")
    (init,) = (one for one in trainer.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return {one.arg: _kinds(one.annotation) for one in init.args.kwonlyargs}


def _source() -> Path:
    """The file of the Trainer. Only the top package is looked up: a deeper look-up would import it."""
    spec = find_spec("lightning")
    assert spec is not None, "lightning is a dependency"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], "pytorch", "trainer", "trainer.py")


def _kinds(annotation: ast.expr | None) -> tuple[list[str], list[type]]:
    names = [one.id for one in ast.walk(annotation) if isinstance(one, ast.Name)] if annotation else []
    words = [name for name in _KINDS if name in names or (name == "str" and any(one.startswith("_") for one in names))]
    kinds = [_KINDS[word] for word in words] or list(_KINDS.values())
    if "Optional" in names:
        return [*words, "null"], [*kinds, type(None)]
    return words, kinds


def _is(value: Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)
