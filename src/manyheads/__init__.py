"""Transformer-encoder text classifiers from configuration.

The blocks are in `manyheads.nn`; the names below are imported on first use, so that `import manyheads` costs nothing.
"""

import sys
from typing import TYPE_CHECKING, Any

from manyheads.plugin import VERSION, register, resolve

if TYPE_CHECKING:
    from manyheads.cli.compose import compose
    from manyheads.data.datamodule import TextData
    from manyheads.inference.folder import load_to_answer as load
    from manyheads.training.module import LitModule
    from manyheads.training_run import train

if sys.platform == "win32":  # no locks of files by fcntl, no signals such as SIGUSR1, no groups of processes
    print(
        "manyheads needs Linux or macOS: on Windows, install it in WSL (wsl --install); folders of `manyheads export "
        "format=onnx` answer on Windows by their predict.py",
        file=sys.stderr,
    )
    sys.exit(2)

__version__ = VERSION
__all__ = ["LitModule", "TextData", "__version__", "compose", "load", "register", "train"]
_HOME = {
    "LitModule": "manyheads.training.module:LitModule",
    "TextData": "manyheads.data.datamodule:TextData",
    "compose": "manyheads.cli.compose:compose",
    "load": "manyheads.inference.folder:load_to_answer",
    "train": "manyheads.training_run:train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'manyheads' has no attribute {name!r}")
    return resolve(_HOME[name])


def __dir__() -> list[str]:
    """What completion in a notebook shows: also what was not imported yet."""
    return sorted({*globals(), *__all__})
