"""Learning from texts without labels: what is hidden from the model, and which texts there are."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.budget import check_budget
from manyheads.config.knobs import check_ranges, knob


class Hide(Enum):
    mask = "mask"  # the mask token stands at every chosen place
    mixed = "mixed"  # at 80 % of them; at 10 % another token, at 10 % the token itself (BERT)


@dataclass(kw_only=True, slots=True)
class PretrainConfig:
    """Masked language modelling: Devlin et al. (2019), "BERT", section 3.1. Small models learn best from 15 to 20 % of
    the tokens, and need no mixture: Wettig et al. (2023), "Should You Mask 15% in Masked Language Modeling?"."""

    mask_share: float = knob(0.15, "share of the tokens that are to be told from the others", above=0.0, below=1.0)
    hide: Hide = knob(Hide.mask, "what stands there: mask, or mixed: 80 % mask, 10 % any token, 10 % the token itself")
    whole_words: bool = knob(False, "a word is hidden with all of its tokens, or with none")
    also: list[str] = knob(list, "further files or folders of texts to learn from, read like data.path")
    before: str = knob("", "budget of a pretraining on the run's own texts before it is trained, such as 10min")

    def __post_init__(self) -> None:
        check_ranges(self, "pretrain.")
        check_budget("pretrain.before", self.before)
