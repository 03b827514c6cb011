"""Transformer-encoder text classifiers from configuration."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads.inference.folder import load_to_answer as load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """`manyheads.load` on first use, so that `import manyheads` alone costs nothing."""
    if name == "load":
        from manyheads.inference.folder import load_to_answer

        return load_to_answer
    raise AttributeError(f"module 'manyheads' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion in a notebook shows: `load`, too, before its first use."""
    return sorted({*globals(), *__all__})
