"""Transformer-encoder text classifiers from configuration.

The blocks are in `manyheads.nn`; the names below are imported on first use, so that `import manyheads` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from manyheads.plugin import VERSION

if TYPE_CHECKING:
    from manyheads.cli.compose import compose
    from manyheads.data.datamodule import TextData
    from manyheads.inference.folder import load_to_answer as load
    from manyheads.plugin import register
    from manyheads.training.module import LitModule
    from manyheads.training_run import train

__version__ = VERSION
__all__ = ["LitModule", "TextData", "__version__", "compose", "load", "register", "train"]


def __getattr__(name: str) -> Any:
    match name:
        case "LitModule":
            from manyheads.training.module import LitModule

            return LitModule
        case "TextData":
            from manyheads.data.datamodule import TextData

            return TextData
        case "compose":
            from manyheads.cli.compose import compose

            return compose
        case "load":
            from manyheads.inference.folder import load_to_answer

            return load_to_answer
        case "register":
            from manyheads.plugin import register

            return register
        case "train":
            from manyheads.training_run import train

            return train
    raise AttributeError(f"module 'manyheads' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion in a notebook shows: also what was not imported yet."""
    return sorted({*globals(), *__all__})
