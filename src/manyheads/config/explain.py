"""What `manyheads explain` can be told."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob


class Claim(Enum):
    all = "all"
    formula = "formula"  # the steps from X to the output, with their shapes
    scale = "scale"  # q · k has variance d_k, and the softmax's gradients with and without 1 / √d_k
    order = "order"  # without positions the encoder is blind to order
    heads = "heads"  # h heads of d / h cost what one head of d costs
    length = "length"  # time and memory grow with T², with a window they do not
    retrieval = "retrieval"  # a low temperature turns attention into a look-up
    senses = "senses"  # the vector of "check" and "station" takes up its context
    relations = "relations"  # the weights of a sentence from a trained model


@dataclass(kw_only=True, slots=True)
class ExplainConfig:
    """Everything `manyheads explain` can be told. The defaults take less than five minutes on two cores."""

    output: str = knob("", "folder of attention.json and the pictures; empty: outputs/explain-<seed>")
    page: str = knob("", "Markdown page whose figures marked by their place in the JSON are updated; empty: none")
    only: Claim = knob(Claim.all, "one experiment; other figures stay")
    seed: int = knob(0, "seed of samples, sentences and weights", at_least=0, below=2**32)
    samples: int = knob(20_000, "random pairs of q and k behind a moment", at_least=500, at_most=10_000_000)
    repeats: int = knob(9, "timings behind a median, taken in turn", at_least=1, at_most=1000)
    longest: int = knob(4096, "longest text that is timed, in tokens", at_least=128, at_most=65_536)
    steps: int = knob(800, "training steps of each of the two small models", at_least=1, at_most=100_000)

    def __post_init__(self) -> None:
        check_ranges(self, "")
