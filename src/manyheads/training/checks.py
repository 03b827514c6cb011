"""What is refused before torch is imported: of the settings what this machine lacks, and what is not in the data.

Standard library only.
"""

from importlib.util import find_spec
from typing import Any

from manyheads.config import DataConfig, LoggerConfig, LoggerKind, Long, ModelConfig, PairKind

PACKAGES = {  # any one of them
    LoggerKind.csv: (),
    LoggerKind.tensorboard: ("tensorboard", "tensorboardX"),
    LoggerKind.wandb: ("wandb",),
}
SHOWN = 12  # class names in a sentence


def check_end(trainer: dict[str, Any]) -> None:
    """Training must end after some epochs or steps: the learning rate falls towards that end.

    Raises:
        ValueError: neither limit is set.
    """
    if all(trainer.get(limit) in (None, -1) for limit in ("max_epochs", "max_steps")):
        raise ValueError(
            "trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them"
        )


def check_logger(logger: LoggerConfig) -> None:
    """The package of `logger.kind` must be installed.

    Raises:
        ValueError: it is not.
    """
    packages = PACKAGES[logger.kind]
    if packages and not any(find_spec(name) for name in packages):
        raise ValueError(missing_package(logger))


def missing_package(logger: LoggerConfig) -> str:
    """The sentence for a logger whose package is not installed."""
    return f"logger.kind={logger.kind.name} needs a package that is not installed: pip install 'manyheads[track]'"


def check_pair(model: ModelConfig, *, pairs: bool) -> None:
    """`model.pair=cross` needs two texts a row.

    Raises:
        ValueError: the data has one.
    """
    if model.pair is PairKind.cross and not pairs:
        raise ValueError(
            "model.pair=cross compares two texts, but the data has no second text: name its column by data.text_pair, "
            "or use model.pair=joint"
        )


def check_long(data: DataConfig, *, pairs: bool) -> None:
    """`data.long=windows` reads one text a row.

    Raises:
        ValueError: the data has two.
    """
    if data.long is Long.windows and pairs:
        raise ValueError(
            "data.long=windows reads a long text in parts, but the data has pairs of texts: use data.long=both, or "
            "leave the second text out by data.text_pair="
        )


def check_class_names(choice: Any, names: list[str]) -> None:
    """`optim.class_weights` must name classes of the data, if it names any.

    Raises:
        ValueError: a name that is no class.
    """
    unknown = [name for name in choice if name not in names] if isinstance(choice, dict) else []
    if unknown:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ValueError(
            f"optim.class_weights names the class {unknown[0]!r}, which is not in the data: "
            f"the classes are {', '.join(names[:SHOWN])}{more}"
        )
