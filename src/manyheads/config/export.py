"""What `manyheads export` can be told."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob, require


class Format(Enum):
    huggingface = "huggingface"  # a classifier of transformers
    sentence_transformers = "sentence_transformers"  # an encoder and its pooling, which give a text a vector


class Members(Enum):
    auto = "auto"  # the network, and what stays behind is said first
    network = "network"  # the network alone is asked for


@dataclass(kw_only=True, slots=True)
class ExportConfig:
    """Everything `manyheads export` can be told."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    output: str = knob("", "a new folder; empty: <run>/<format>")
    format: Format = knob(
        Format.huggingface, "a classifier of its family, or its encoder with any pooling, for vectors"
    )
    members: Members = knob(Members.auto, "what of the run is exported; network: its linear model is not asked after")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run to export, for example run=outputs/my-run")
