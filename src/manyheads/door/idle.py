"""Settings that were typed but would change nothing: said, not swallowed."""

from collections.abc import Mapping
from typing import Any

from manyheads.config import EvaluateConfig, Source
from manyheads.config.plain import show
from manyheads.door.verbs import Config


def refuse_idle(config: Config, typed: Mapping[str, Any]) -> None:
    """Refuse what `evaluate` is told of data while it reads the run's own, which config.yaml describes.

    Raises:
        ValueError: names the first such setting.
    """
    if not isinstance(config, EvaluateConfig) or config.data.source is not Source.run or config.data.path:
        return
    for name, value in typed.items():
        if name.startswith("data.") and name != "data.source":
            raise ValueError(
                f"{name}={show(value)} does nothing here, where evaluate reads the run's own data as training read it: "
                "name other data by data.path=, data.hub= or data=<preset>, or leave it away"
            )
