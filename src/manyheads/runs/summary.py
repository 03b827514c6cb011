"""The results of a finished run: its figures with their intervals, in summary.json, and how they are put in words.

Nothing but the standard library is needed to read them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin

from manyheads.config.facts import require
from manyheads.config.figures import is_of_answers
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.runs.files import read_json, write_json
from manyheads.runs.notebook import html_table

JOINT = ": "  # between one of several columns of labels and a label of it
MEAN = "mean"  # a figure of several columns of labels: the mean of the main figure of each
NETWORK, LINEAR, BOTH = "network", "linear model", "both"  # the models of a run in tables, reports and files
CALIBRATION = "calibration.json"  # that `manyheads calibrate` adds to model/
POINTS = 100  # of a share
ENDS = {"value", "low", "high"}  # of an interval
MOST = 1e300  # of a figure: NaN, infinity and what no float holds are none


@dataclass(slots=True)
class Interval:
    """A figure and its 95 % interval: of a share of rows Wilson's, of a mean over classes `shares_interval`, of a
    change `change_interval`, of a loss `mean_interval`, of a calibration error `error_interval`. How often each holds
    the figure of all texts is in docs/results/intervals.md. It always holds the figure itself."""

    value: float
    low: float
    high: float

    @property
    def leans(self) -> bool:
        """Whether it lies mostly to one side of the figure, though the figure is not near 0 or 1."""
        sides = sorted([self.value - self.low, self.high - self.value])
        return 0.1 < self.value < 0.9 and sides[1] > 4 * sides[0]

    @property
    def is_known(self) -> bool:
        """Whether it has a width; the loss of a single row has none, which says nothing of other rows."""
        return self.low < self.high

    @property
    def words(self) -> str:
        return f"{self.value:.4f} ({self.low:.3f} to {self.high:.3f})" if self.is_known else f"{self.value:.4f}"


Figures = dict[str, Interval]  # of one model, by name


def figures_to_plain(figures: Figures) -> dict[str, dict[str, float]]:
    """Figures as JSON has them."""
    return {name: asdict(figure) for name, figure in figures.items()}


@dataclass(kw_only=True, slots=True)
class Summary:
    """What summary.json holds.

    Attributes:
        seconds, real_tokens_per_s: of the training steps; padding does not count as tokens.
        wall_seconds: everything up to the first figure of the finished model.
        best: the validation figure of the best epoch, whose weights are shipped, as measured during training, in
            `precision`. All figures but these and `train` are in single precision.
        train: of the network in that epoch, during training, with dropout.
        validation, test: of the model as shipped.
        members: by split, those of each member alone, and of a linear model that does not answer.
        baselines: of models that were fitted on the train split, evaluated on `judged_on`.
        leads: the figures of the model there minus theirs, with paired intervals.
        warnings: about the figures.
        split: parts into which micro-batches were cut, as memory ran out.
        left_out: optimiser steps, from 1, that were skipped, as the loss or gradient was not finite.
        linear: the weight of the linear model in each answer. terms: what it counts.
        label_counts: how many training rows have each class or label.
        measured: what plugins have measured, by name.
        digests: of the rows of each split. files: of the files that settings name.
    """

    output: str
    parameters: int
    epochs: int
    steps: int
    seconds: float
    wall_seconds: float
    real_tokens_per_s: float
    padding_share: float
    truncated_share: float
    precision: str
    rows: dict[str, int]
    best: dict[str, Any]
    train: dict[str, float]
    validation: dict[str, Interval]
    test: dict[str, Interval]
    judged_on: str
    baselines: dict[str, dict[str, Interval]]
    versions: dict[str, str]
    split: int = 1
    left_out: list[int] = field(default_factory=list)
    leads: dict[str, dict[str, Interval]] = field(default_factory=dict)
    linear: float = 0.0
    digests: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    members: dict[str, dict[str, dict[str, Interval]]] = field(default_factory=dict)
    terms: str = ""
    label_counts: dict[str, int] = field(default_factory=dict)
    measured: dict[str, Interval] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def _repr_html_(self) -> str:
        """The figures as a notebook shows them."""
        names, models = [*getattr(self, self.judged_on)], models_of(self, self.judged_on)
        lines = [["", *map(words_of, names)]]
        for model, figures in with_baselines(models, self.baselines).items():
            lines.append([model, *(figures[name].words if name in figures else "" for name in names)])
        title = f"{self.judged_on}: {self.rows[self.judged_on]:,} rows, with 95 % intervals"
        notes = [f"{name}: {fact}" for name, fact in {**facts(self), "run": self.output}.items()]
        return html_table(title, lines, [*(f"warning: {one}" for one in self.warnings), *notes])

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        write_json(path, asdict(self))


def read_summary(path: Path) -> Summary | None:
    """What `write` has written; None where there is no file. A UserError says that it is anything else."""
    if not path.is_file():
        return None
    found = read_json(path)
    with damaged(path):
        summary = Summary(
            **{one.name: typed(found[one.name], one.type) for one in fields(Summary) if one.name in found}
        )
        require(summary.judged_on in ("validation", "test") and bool(getattr(summary, summary.judged_on)), "no figures")
        facts(summary)  # which is all that is said of it
        return summary


def written_summary(home: Path) -> dict[str, Any]:
    """What summary.json of the run folder `home` holds, unchecked; nothing where there is none."""
    file = home / "summary.json"
    written = read_json(file) if file.is_file() else {}
    return written if isinstance(written, dict) else {}


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """What goes wrong with the content of a file of ours, which somebody else may have changed, is a `UserError`."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: it does not hold what manyheads writes there") from error


def typed(value: Any, kind: Any) -> Any:
    """A value of JSON as the fields above are declared: mappings of figures as intervals, numbers finite."""
    if kind is Interval:
        require(value.keys() == ENDS, "another figure")
        return Interval(**{end: typed(number, float) for end, number in value.items()})
    if kind is Any:
        return value
    inner = get_args(kind)[-1:]
    if get_origin(kind) is dict:
        return {key: typed(one, *inner) for key, one in value.items()}
    if get_origin(kind) is list:
        return [typed(one, *inner) for one in value]
    require(isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool), "another type")
    require(not isinstance(value, int | float) or -MOST < value < MOST, "not finite")
    return value


def models_of(summary: Summary, split: str) -> dict[str, Figures]:
    """The figures on one split by the name of the model, the one that answers first."""
    return dict(summary.members.get(split) or {NETWORK: getattr(summary, split)})


def moved_by(method: str, *, multi: bool) -> Callable[[str], bool]:
    """Whether `manyheads calibrate` changes a figure: those of probabilities always; those of answers, but for labels,
    whose thresholds move along, and for a temperature, which keeps the likeliest class."""
    answers_too = not multi and method != "temperature"
    return lambda figure: answers_too or not is_of_answers(figure)


def with_baselines(members: dict[str, Figures], baselines: dict[str, Figures]) -> dict[str, Figures]:
    """The figures of the models, then those of the baselines that are not among them."""
    return {**members, **{name: figures for name, figures in baselines.items() if name not in members}}


def words_of(figure: str) -> str:
    """The name of a figure as a sentence has it."""
    return figure.replace("_", " ").replace("f1", "F1")


def strongest(baselines: dict[str, Figures], figure: str) -> str:
    """The baseline with the highest `figure`, of equals the last; empty: there are none."""
    return max(reversed(baselines), key=lambda name: baselines[name][figure].value, default="")


def lead_words(lead: Interval, name: str) -> str:
    """How far a model is ahead of the baseline `name`, in percentage points, with the interval."""
    value, low, high = (POINTS * one for one in (lead.value, lead.low, lead.high))
    between = f"95 % interval {low:.1f} to {high:.1f}"
    if low > 0:
        return f"beats the {name} by {value:.1f} points ({between})"
    if high < 0:
        return f"falls short of the {name} by {-value:.1f} points ({between})"
    return f"is not significantly different from the {name}: {value:+.1f} points ({between})"


def lead_line(leads: dict[str, Figures], baselines: dict[str, Figures], split: str) -> str:
    """The lead over the strongest baseline in words; empty where none was measured."""
    if not leads:
        return ""
    figure, where = next(iter(next(iter(leads.values())))), "these rows" if split == "all" else split
    rival = strongest(baselines, figure)
    measured = "the mean over columns" if figure == MEAN else words_of(figure)
    return f"in {measured} on {where} the model {lead_words(leads[rival][figure], rival)}"


def facts(summary: Summary) -> dict[str, str]:
    """The facts of a run, by name, in words."""
    out = f"step{'s' * (len(summary.left_out) > 1)} {', '.join(map(str, summary.left_out))}"
    epochs = f"{summary.epochs} epoch{'s' * (summary.epochs != 1)}"
    said = {
        "lead": lead_line(summary.leads, summary.baselines, summary.judged_on),
        "parameters": f"{summary.parameters:,}",
        "rows": ", ".join(f"{name} {n:,}" for name, n in summary.rows.items()),
        "trained": f"{epochs}, {summary.steps:,} step{'s' * (summary.steps != 1)}, {summary.seconds:.1f} s",
        "best epoch": best_words(summary),
        LINEAR: linear_words(summary.terms, summary.linear) if summary.terms else "",
        "speed": f"{summary.real_tokens_per_s:,.0f} real tokens/s in {summary.precision}",
        "padding": f"{summary.padding_share:.1%} of the attention grids",
        "truncated": f"{summary.truncated_share:.1%} of the training texts",
        "memory": f"ran out: micro-batches were cut into {summary.split}, and that many more are summed in each step"
        if summary.split > 1
        else "",
        "left out": f"{out}, whose loss or gradient was not finite: the rows are in nonfinite.json"
        if summary.left_out
        else "",
    }
    said |= {name: figure.words for name, figure in summary.measured.items()}
    return {name: fact for name, fact in said.items() if fact}


def best_words(summary: Summary) -> str:
    """The epoch whose weights are shipped, with the network's figure as the tables have it, or as measured then."""
    best = summary.best
    if not best:
        return "the last one"
    shown = models_of(summary, "validation").get(NETWORK, {}).get(best["metric"])
    value = shown.value if shown else best["value"]
    return f"{best['epoch']}, network's validation {words_of(best['metric'])} {value:.4f}"


def linear_words(terms: str, share: float) -> str:
    """What the linear model counts, and its weight in the answers."""
    part = f"its weight in each answer is {share:.0%}" if share else "not part of the answers, which are the network's"
    return f"logistic regression on TF-IDF of {terms}; {part}"


def names_of(runs: Sequence[str]) -> list[str]:
    """The shortest ends of the paths that differ from each other."""
    parts = [Path(one).parts for one in runs]
    for n in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-n:]) for one in parts]
        if len({*names}) == len(names):
            return names
    raise UserError(f"runs={format_value(list(runs))} names one model twice: name others")
