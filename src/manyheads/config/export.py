"""What `manyheads export` can be told."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob, require


class Format(Enum):
    huggingface = "huggingface"  # a classifier of transformers
    sentence_transformers = (
        "sentence_transformers"  # an encoder of transformers, pooling and head in modules of their own
    )


@dataclass(kw_only=True, slots=True)
class ExportConfig:
    """Everything `manyheads export` can be told."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    output: str = knob("", "a new folder; empty: <run>/<format>")
    format: Format = knob(Format.huggingface, "a classifier of its family, or its encoder with any pooling behind it")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run to export, for example run=outputs/my-run")
