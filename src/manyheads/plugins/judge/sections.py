"""Settings that evaluate and predict get. They are found while `manyheads.config` is imported, and so import only how
settings are declared."""

from typing import Any

from manyheads.config.facts import require, section, setting
from manyheads.config.sentences import format_value, one_of

SLICES = ("length", "label", "script", "confidence", "worst")


@section()
class AnalysisConfig:
    """Further analyses of an evaluation."""

    slices: Any = setting(  # a list of texts
        list,
        "parts of the rows judged, too: length, label, script, confidence, column:<name>; worst: those to be found",
    )
    costs: str = setting(
        "", "csv of what answers cost: a header of answers, a row for each true class; empty: none", path=True
    )
    seed: int = setting(0, "seed of the rows by which the worst slices are found", ge=0, lt=2**32)


@section()
class LabelledConfig:
    """Rows that abstain.risk and sets.coverage are set on."""

    labelled: str = setting(
        "",
        "rows with their labels that abstain.risk and sets.coverage are set on; empty: the validation split of run",
        path=True,
    )


@section("abstain.")
class AbstainConfig:
    """Texts that are left without an answer."""

    risk: float = setting(
        0.0, "most of the answers that may be wrong, with 95 % confidence; 0: every text is answered", ge=0.0, lt=1.0
    )


@section("sets.")
class SetsConfig:
    """Sets of classes, in place of one."""

    coverage: float = setting(0.0, "share of texts whose set is to hold the right class; 0: no sets", ge=0.0, lt=1.0)
    by_class: bool = setting(False, "the same for the texts of each class")


@section("outliers.")
class OutliersConfig:
    """Texts that are marked, as they are unlike those of the training."""

    false_alarms: float = setting(
        0.0, "most of the texts like those of the training that may be marked; 0: none are looked for", ge=0.0, lt=1.0
    )


def check_slice_names(config: Any) -> None:
    """Raise UserError where `slices` is no list of ways to cut rows."""
    slices = config.slices
    is_list = isinstance(slices, list | tuple)
    for one in slices if is_list else [slices]:
        column = format_value(one).removeprefix("column:")
        require(
            one in SLICES or (isinstance(one, str) and one.startswith("column:") and column != ""),
            f"slices={format_value(one)} does not name a slice: choose {one_of([*SLICES])}, or for a column of that "
            f"name slices=[column:{column or 'NAME'}]",
        )
        # each is a test more that p-values are corrected for
        require(
            not is_list or slices.count(one) == 1,
            f"slices={format_value(slices)} names {one} twice: name it once",
        )
    require(
        is_list,
        f"slices={format_value(slices)} is not a list: write it in brackets, such as slices=[{format_value(slices)}]",
    )
