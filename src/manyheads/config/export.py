"""What `manyheads export` can be told."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob, require


class Format(Enum):
    huggingface = "huggingface"  # a folder that transformers opens


@dataclass(kw_only=True, slots=True)
class ExportConfig:
    """Everything `manyheads export` can be told."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    output: str = knob("", "a new folder; empty: <run>/huggingface")
    format: Format = knob(Format.huggingface, "whose folder: that of the model's family, for transformers")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run to export, for example run=outputs/my-run")
