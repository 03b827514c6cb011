"""The dotted name of every setting, and the one nearest to what somebody typed."""

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import SequenceMatcher
from typing import Any, get_type_hints

ELSEWHERE = {  # what other programs call them
    "epochs": "trainer.max_epochs",
    "num_epochs": "trainer.max_epochs",
    "num_train_epochs": "trainer.max_epochs",
    "learning_rate": "optim.lr",
    "batch_size": "batch.rows",
    "num_heads": "model.n_heads",
    "num_layers": "model.n_layers",
    "hidden_size": "model.d_model",
    "max_seq_length": "data.max_length",
    "num_beams": "generate.n_beams",
    "beam_size": "generate.n_beams",
    "max_new_tokens": "generate.max_length",
    "gpus": "hardware.devices",
    "dataset": "data",
    "checkpoint_path": "run",
    "ckpt_path": "run",
    "model_path": "run",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of a verb's settings: `model.n_heads`, its type, default, and the knob's metadata."""

    name: str
    kind: Any
    default: Any
    metadata: Any


def settings(schema: type, where: str = "", made: Any = None) -> dict[str, Setting]:
    """Every setting of a dataclass by dotted name, depth first in the order of declaration."""
    types = get_type_hints(schema)
    found: dict[str, Setting] = {}
    for one in fields(schema):
        name = f"{where}{one.name}"
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        default = default if made is None else getattr(made, one.name)
        if is_dataclass(types[one.name]):
            found |= settings(types[one.name], f"{name}.", default)  # type: ignore[arg-type]
        else:
            found[name] = Setting(name, types[one.name], default, one.metadata)
    return found


def nearest_setting(name: str, schema: type, where: str = "") -> str | None:
    """The setting of `schema` that `name` was probably meant to be, or None.

    Args:
        where: dotted section in front of every name of `schema`, for instance "model."
    """
    known = [one for found in settings(schema, where).values() for one in _spread(found)]
    usual = ELSEWHERE.get(name.rsplit(".", 1)[-1].lower())
    return usual if usual in known else nearest(name, known)


LONGEST = 200  # characters of what a person may have mistyped; to compare more takes seconds


def nearest(name: str, known: Iterable[str], at_least: float = 0.6) -> str | None:
    """The most similar of the dotted names, whole or by their last part; None where nothing is near."""
    best, winner = at_least, None
    for candidate in known if len(name) <= LONGEST else ():
        score = _similarity(name.lower().replace("-", "_"), candidate.replace("-", "_"))
        if score > best:
            best, winner = score, candidate
    return winner


def _similarity(name: str, candidate: str) -> float:
    section, _, last = name.rpartition(".")
    its_section, _, its_last = candidate.rpartition(".")
    tail = SequenceMatcher(None, last, its_last).ratio() * (1.0 if section in ("", its_section) else 0.9)
    return max(SequenceMatcher(None, name, candidate).ratio(), tail)


def _spread(one: Setting) -> list[str]:
    """`trainer` as `trainer.max_epochs` and so on: its flags are what people type."""
    return [f"{one.name}.{key}" for key in one.default] if isinstance(one.default, dict) else [one.name]
