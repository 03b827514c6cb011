"""How a model that answers by texts finds its answer."""

from dataclasses import dataclass, fields

from manyheads.config.knobs import check_ranges, knob, require

LENGTH_PENALTY = 0.6


@dataclass(kw_only=True, slots=True)
class GenerateConfig:
    """The search for an answer, token after token; classifiers read nothing of it."""

    n_beams: int = knob(1, "answers followed at a time; 1: the likeliest token at every step", at_least=1, at_most=256)
    length_penalty: float = knob(
        LENGTH_PENALTY, "how much beams favour long answers; 0: not at all", at_least=0.0, at_most=10.0
    )
    max_length: int = knob(0, "most tokens of an answer; 0: data.max_length of the training", at_least=0, at_most=2**20)

    def __post_init__(self) -> None:
        check_ranges(self, "generate.")
        require(
            self.n_beams > 1 or self.length_penalty == LENGTH_PENALTY,
            f"generate.length_penalty={self.length_penalty} does nothing with generate.n_beams=1: "
            "follow several answers, such as generate.n_beams=4, or leave it away",
        )

    def check_read(self, *, by_texts: bool) -> None:
        """Refuse what is set for a model that does not answer `by_texts`, and reads nothing of it.

        Raises:
            ValueError: a setting differs from its default.
        """
        default = GenerateConfig()
        typed = next((one.name for one in fields(self) if getattr(self, one.name) != getattr(default, one.name)), None)
        require(
            by_texts or typed is None,
            f"generate.{typed}={getattr(self, str(typed), None)} does nothing here, as the model of run answers by "
            "classes: leave it away",
        )
