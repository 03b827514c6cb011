"""The verb `curve`: figures by the number of training rows, a process for each share of them and seed, and what more
rows would bring.

S sizes . K seeds . R draws, of which entry 0 is the means as they are
"""

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config.conversion import to_plain
from manyheads.config.facts import hooks
from manyheads.config.figures import lower_is_better
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_rows
from manyheads.data.sources import read_splits
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import CurveConfig
from manyheads.plugins.sweep.journal import Trial, folder_of, open_journal
from manyheads.plugins.sweep.scheduler import Search
from manyheads.plugins.sweep.tune import refuse_many_processes, shared_question
from manyheads.terminal import Sheet, print_sheet, show_files, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manyheads.evaluation.report import Picture
    from manyheads.runs.summary import Interval, Summary

DRAWS = 2000
LEAST = 3  # sizes that a law of three numbers is fitted to
MORE = 2  # times the rows
log = logging.getLogger("manyheads.tune")


@dataclass(slots=True)
class Line:
    """A model: its figure at each size with the interval of its mean and what its runs had, and the power law of its
    errors; `twice` is the figure with twice the rows, `limit` that of any number. None: too few sizes."""

    figures: "list[Interval]"
    runs: list[list[float]]
    law: list[float] | None = None
    twice: "Interval | None" = None
    limit: "Interval | None" = None


def curve(config: CurveConfig) -> dict[str, Any]:
    """Make the runs that the journal lacks, then print and write what all of them came to.

    Returns:
        The content of curve.json.

    Raises:
        Stopped: a signal ended it; its runs have saved, and the same words go on.
        UserError: a mistake in the settings or the data, found before anything is written; a folder that holds
            another curve; a run that came to no figure.
    """
    refuse_many_processes(config, "curve")
    check_training(config.trainer)
    for refuse in hooks(config, "refuse"):
        refuse(config, "here")
    splits = read_splits(config.data, config.seed, with_test=config.test)
    settled = config.checkpoint.settled(config.run({}).task, multi=splits.multi)
    asked, config = config, replace(config, checkpoint=settled)
    check_rows(config.run({}), splits)
    folder = Path(config.output or "outputs/curve").absolute()
    setting = {at: {"data.train_share": share} for at, share in enumerate(config.shares, start=1)}
    trials = [Trial(at, config.seed + more, of) for more in range(config.seeds) for at, of in setting.items()]
    with open_journal(folder, {"shares": config.shares} | shared_question(config, splits)) as journal, shown(log):
        journal.trials = iter(trials)
        Search(config, journal).run()
        ended = [journal.find(one.number, one.seed) for one in trials]
    from manyheads.runs.summary import read_summary

    sizes: dict[int, list[Summary]] = {at: [] for at in setting}
    for trial, outcome in zip(trials, ended, strict=True):
        place = folder_of(folder, trial.number, trial.seed)
        summary = read_summary(place / "summary.json")
        if outcome is None or not outcome.counts or summary is None:
            why = outcome.why if outcome and outcome.why else "was ended"
            raise UserError(f"the run in {place} {why}: repeat the words to try again, or use other settings")
        sizes[trial.number].append(summary)
    return told(asked, settled.metric, [*sizes.values()], folder)


def told(config: CurveConfig, metric: str, sizes: "list[list[Summary]]", folder: Path) -> dict[str, Any]:
    """Write curve.json and report.html of the runs of each size, and print the table."""
    from manyheads.evaluation.report import Page, Section, Table, dotted, installed_versions, value_sections, write_page
    from manyheads.runs.files import write_atomic
    from manyheads.runs.summary import BOTH, LINEAR, NETWORK, words_of

    name, falls, split = metric, lower_is_better(metric), sizes[0][0].judged_on
    rows, n_judged = [of[0].rows["train"] for of in sizes], sizes[0][0].rows[split]
    every = [[{BOTH: getattr(one, split)} | one.members[split] for one in of] for of in sizes]
    models = [model for model in (BOTH, NETWORK, LINEAR) if all(model in one for of in every for one in of)]
    if not any(BOTH in one.members[split] for of in sizes for one in of):  # no linear model has a share anywhere
        models.remove(BOTH)
    lines = {model: fitted(rows, [[one[model][name] for one in of] for of in every], falls=falls) for model in models}
    about = {"metric": name, "split": split, "rows_judged": n_judged, "rows": rows, "shares": config.shares}
    found = about | {"models": {model: asdict(one) for model, one in lines.items()}}
    table = [[f"{n:,}", *(one.figures[at].words for one in lines.values())] for at, n in enumerate(rows)]
    for which, guesses in (
        (f"{MORE * rows[-1]:,}, by the fit", [one.twice.words for one in lines.values() if one.twice]),
        ("any number, by the fit", [one.limit.words for one in lines.values() if one.limit]),
    ):
        table += [[which, *guesses]] if guesses else []
    title = f"{words_of(name)} on {n_judged:,} {split} row{'s' * (n_judged != 1)} by the number of training rows"
    notes, columns = notes_on(config, lines, name), ["training rows", *models]
    picture = drawn(rows, lines, words_of(name), falls=falls)
    page = Page(
        title="What more rows would bring",
        subtitle=title,
        sections=[
            Section("Learning curve", Table(columns, table, "w" + "n" * len(models)), notes, [picture]),
            *value_sections({"Settings": dict(dotted(to_plain(config))), "Versions": installed_versions()}),
        ],
    )
    write_page(folder / "report.html", page)
    for file, content in (("curve.png", picture.png), ("curve.json", json.dumps(found, indent=2).encode() + b"\n")):
        write_atomic(folder / file, content)
    print_sheet(Sheet(title, columns, table, notes))
    show_files(folder, ["curve.json", "report.html"])
    return found


def fitted(rows: list[int], figures: "list[list[Interval]]", *, falls: bool) -> Line:
    """The means of the figures `figures` of the runs of each size, and a power law through them. A mean is uncertain by
    the rows it is judged on, as the interval of each run says, and by the seeds, whose variance is that of all sizes
    together; of both the law is fitted to draws. `falls`: the figure is an error itself."""
    import numpy as np

    from manyheads.evaluation.intervals import Z, error_at, power_law
    from manyheads.runs.summary import Interval

    value_SK = np.array([[one.value for one in of] for of in figures])
    below_S = np.array([[one.value - one.low for one in of] for of in figures]).mean(1) / Z
    above_S = np.array([[one.high - one.value for one in of] for of in figures]).mean(1) / Z
    n_sizes, n_seeds = value_SK.shape
    draw = np.random.default_rng(0)
    noise_RS = draw.standard_normal((DRAWS, n_sizes))
    noise_RS *= np.where(noise_RS < 0, below_S, above_S)  # near 1 the interval of a share reaches down alone
    if n_seeds > 1:
        of_seeds = np.sqrt(value_SK.var(1, ddof=1).mean() / n_seeds)
        noise_RS += draw.standard_t(n_sizes * (n_seeds - 1), (DRAWS, n_sizes)) * of_seeds
    mean_RS = value_SK.mean(1) + np.vstack([np.zeros(n_sizes), noise_RS])

    def interval(value_R: "NDArray[np.float64]") -> Interval:
        low, high = np.percentile(value_R[1:], (2.5, 97.5)).tolist()
        value, least, most = float(value_R[0]), 0.0, np.inf if falls else 1.0
        return Interval(value, max(least, min(low, value)), min(most, max(high, value)))

    line = Line([interval(mean_R) for mean_R in mean_RS.T], value_SK.tolist())
    if n_sizes >= LEAST:
        law_3R = power_law(np.array(rows), mean_RS if falls else 1 - mean_RS)
        twice_R, limit_R = (one if falls else 1 - one for one in (error_at(law_3R, MORE * rows[-1]), law_3R[0]))
        line.law, line.twice, line.limit = law_3R[:, 0].tolist(), interval(twice_R), interval(limit_R)
        if line.limit.low == line.limit.high:  # of all draws no error is left, which says nothing of how much may be
            line.limit.low, line.limit.high = (
                min(line.limit.low, line.twice.low),
                max(line.limit.high, line.twice.high),
            )
    return line


def notes_on(config: CurveConfig, lines: dict[str, Line], figure: str) -> list[str]:
    """How to read the table, and what was fitted."""
    seeds = f"the mean of {config.seeds} seeds" if config.seeds > 1 else "one seed, whose chance no interval holds"
    laws = [
        f"{model}: {figure if figure == 'loss' else f'1 - {figure}'} = {a:.4f} + {b:.3g} n^-{c:.3f}"
        for model, one in lines.items()
        for a, b, c in ([one.law] if one.law else [])
    ]
    return [
        f"A figure is {seeds}; 95 % intervals are over the rows that are judged and the seeds. The rows of each seed "
        "are drawn by class, those of a smaller share among those of a larger.",
        *(laws or [f"A power law is fitted to {LEAST} shares or more."]),
    ]


def drawn(rows: list[int], lines: dict[str, Line], figure: str, *, falls: bool) -> "Picture":
    """Means with their intervals over the training rows, and the fits up to twice as many."""
    import numpy as np

    from manyheads.evaluation.intervals import error_at
    from manyheads.evaluation.report import BLUE, GREY, RED, Picture, draw

    picture, panels = draw(1, 1, width=7.0, height=4.2)
    axes = panels[0, 0]
    for (model, one), colour in zip(lines.items(), (BLUE, RED, GREY), strict=False):
        value_S = np.array([of.value for of in one.figures])
        ends_2S = np.array([[of.value - of.low, of.high - of.value] for of in one.figures]).T
        axes.errorbar(rows, value_S, ends_2S, fmt="o", color=colour, markersize=4, capsize=2, label=model)
        if one.law:
            n = np.geomspace(rows[0], MORE * rows[-1], 100)
            error = error_at(np.array(one.law), n)
            axes.plot(n, error if falls else 1 - error, color=colour, linewidth=1)
    axes.set(xscale="log", xlabel="training rows", ylabel=figure)
    axes.minorticks_off()
    axes.set_xticks(at := [*rows, MORE * rows[-1]], [f"{n:,}" for n in at])
    axes.legend(frameon=False, fontsize=8)
    caption = f"{figure} by training rows, with 95 % intervals; lines: power laws, up to twice the rows"
    return Picture("curve", picture, caption, "wide")
