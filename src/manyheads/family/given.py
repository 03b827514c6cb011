"""Values of a stranger's config.json, each checked before it is used. Standard library only."""

from pathlib import Path
from typing import Any

from manyheads.config.plain import one_of, show
from manyheads.whole import read_json

MOST_BYTES = 2**22  # of a config.json


class Given:
    """The keys of one JSON file; a key that is absent or null has its default."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError: too large, not JSON, or not an object."""
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path} is larger than {MOST_BYTES // 2**20} MiB: it is no description of a model")
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError(f"{path} must be an object with keys and values")
        self.path, self.content = path, content

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Given":
        """What a config.json with this content says."""
        given = cls.__new__(cls)
        given.path, given.content = Path("config.json"), content
        return given

    def get(self, name: str, default: Any = None) -> Any:
        value = self.content.get(name)
        return default if value is None else value

    def whole(self, name: str, default: int | None = None, *, at_least: int = 1, at_most: int = 2**31) -> int:
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            raise self.wrong(name, value, f"it must be a whole number from {at_least} to {at_most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise self.wrong(name, value, "it must be a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "it must be true or false")
        return value

    def choice(self, name: str, choices: dict[str, str], default: str) -> str:
        """What `choices` has for the value.

        Raises:
            ValueError: it is none of them: another model than ours can be.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, value, f"manyheads has {one_of(list(choices))} there, so this model cannot be read")
        return choices[value]

    def must_be(self, name: str, *allowed: Any) -> None:
        """Refuse another value of an option that would make another model."""
        value = self.get(name)
        if value is not None and value not in allowed:
            raise self.wrong(name, value, "manyheads has no such option, so this model cannot be read")

    def wrong(self, name: str, value: Any, why: str) -> ValueError:
        return ValueError(f"{self.path}: {name}={show(value)}, but {why}")
