"""The verb `compare`: two or more models, or predictions in files, on the same rows; is one better, and where?

Differences are paired: both answers to a row are drawn together, and McNemar's exact test asks whether of the rows that
one alone has right each has as many as the other. p-values of several pairs are corrected by Holm.

n rows . C classes or labels
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import EvaluateConfig, MergeLabels
from manyheads.config.conversion import to_plain
from manyheads.config.required import bounds_of, check_reached
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import (
    ClassLookup,
    drop_zero_fraction,
    join_names,
    label_cells,
    label_names,
    label_sets,
    normalise_name,
)
from manyheads.data.opening import read_file
from manyheads.data.rows import Rows
from manyheads.data.table import RawTable, coded, require_whole, take
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import EvaluationData, find_data
from manyheads.evaluation.held_out import learnt_texts
from manyheads.inference.format import ModelFolder, enclosing_run, open_folder
from manyheads.plugins.judge.config import CHANGE, CalibrationMethod, CompareConfig, compared_figures
from manyheads.runs.files import write_json
from manyheads.runs.summary import names_of
from manyheads.runs.verb_output import VerbOutput, output_folder, refuse_occupied
from manyheads.terminal import progress_bar, say, show_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manyheads.evaluation.report import ReportSection

FILES = (".csv", ".tsv", ".parquet", ".jsonl")  # of predictions
PREDICTION = "prediction"  # the column of them
POWER = 0.8416  # standard deviations below which 80 % of a normal distribution lie


COMPARED = VerbOutput("compare", "compare.json", ('"models":', '"pairs":', '"n_rows":'), ("changed.csv", "report.html"))


@dataclass(slots=True)
class ComparedModel:
    """A model by its name, and its answers: class ids `(n,)`, or, of several labels, bool `(n, C)`."""

    name: str
    answers: "NDArray[Any]"


def compare(config: CompareConfig) -> dict[str, Any]:
    """Compare every two of `runs` on the same rows; returns the content of compare.json.

    Writes compare.json, changed.csv and report.html to `output`, else outputs/compare-<data>.

    Raises:
        UserError: one sentence; a run, the data, or a file of predictions that is of other rows.
    """
    if len(config.runs) < 2:
        raise UserError(f"runs={format_value(config.runs)} is one model, but two or more are compared: add another")
    with _of_runs():
        folders = {one: open_folder(one, "classify", graph=True) for one in config.runs if not _is_file(one)}
    if not folders:
        raise UserError(
            f"runs={format_value(config.runs)} are files alone, but one run at least says what to read: add it"
        )
    first_name, first = next(iter(folders.items()))
    labels, home = first.labels(), enclosing_run(first.path)
    for name, folder in folders.items():
        _require_alike(name, folder, first_name, first)
    bounds_of(config.require, compared_figures("labels" if first.settings.multi else "classes"))
    asked = EvaluateConfig(run=first_name, split=config.split, data=config.data)
    with _of_runs():
        data = find_data(asked, home, first.settings, labels)
    folder = Path(config.output or Path("outputs", f"compare-{data.name}-{data.split}"))
    if config.output or config.overwrite:
        refuse_occupied(folder, COMPARED, overwrite=config.overwrite)
    seen = []  # rows that are judged and that a model learnt from
    for name, model in folders.items():
        n_learnt, note = learnt_texts(enclosing_run(model.path), data.rows, labels, who=name, also_hub=True)
        if n_learnt:
            seen.append(note)
    merged = {config.data.merge_labels, first.settings.columns.merge_labels}
    known = ClassLookup(labels, any_case=MergeLabels.case in merged)
    read = {one: _predictions(Path(one), data, known) for one in config.runs if _is_file(one)}

    names = names_of(config.runs)
    judged = []
    for name, one in zip(names, config.runs, strict=True):
        answers = read[one] if one in read else _answers_of(folders[one], data, labels, config)
        judged.append(ComparedModel(name, answers))
    found: dict[str, Any] = compare_answers(judged, data, labels) | {"warnings": seen}
    written = _write(folder, found, judged, data, labels, config)
    if config.require:
        last = next(one for one in found["pairs"] if (one["from"], one["to"]) == (names[0], names[-1]))
        change = {f"{CHANGE}{name}": of for name, of in last["change"].items()}
        check_reached(config.require, found["models"][names[-1]] | change, f"{data.title} of {names[-1]}")
    return written


@contextmanager
def _of_runs() -> Iterator[None]:
    """Mistakes in one of `runs`, which other verbs call `run`, by the name that was typed."""
    try:
        yield
    except ValueError as error:
        raise UserError(re.sub(r"(?<![\w./])run=", "runs=", str(error), count=1)) from error


def _is_file(run: str) -> bool:
    return Path(run).suffix.lower() in FILES and not Path(run).is_dir()


def _require_alike(name: str, folder: ModelFolder, first_name: str, first: ModelFolder) -> None:
    ours, theirs = folder.labels(), first.labels()
    if sorted(ours) != sorted(theirs):
        raise UserError(
            f"runs: {name} has the classes {list_names(ours)}, but {first_name} has {list_names(theirs)}: models of "
            "the same "
            "classes are compared"
        )
    for what, one, other in (
        ("pairs of texts", folder.settings.pairs, first.settings.pairs),
        ("any number of labels", folder.settings.multi, first.settings.multi),
    ):
        if one != other:
            has = f"{name if one else first_name} takes or gives {what}, and {first_name if one else name} does not"
            raise UserError(f"runs: {has}: models of one kind are compared")


def _predictions(path: Path, data: EvaluationData, known: ClassLookup) -> "NDArray[Any]":
    """Answers out of a file, in the order of the rows: its column `prediction`, several labels `joined`."""
    import numpy as np

    if not path.is_file():
        raise UserError(f"runs={path} does not exist: name a run, or a file of predictions")
    table, rows = read_file(path), data.rows
    if PREDICTION not in table.names:
        raise UserError(
            f"{path} has no column '{PREDICTION}', but {list_names(table.names)}: name that of the answers so"
        )
    require_whole(table, str(path))
    multi = rows.sets is not None
    if len(table.numbers) != len(rows):
        raise UserError(
            f"{path} has {len(table.numbers):,} rows, but {rows.source} has {len(rows):,}: give one for each"
        )
    places = _places(path, table, rows)
    numbers, remedy = table.numbers, "give the predictions in the order of the rows, or "
    if places is not None:
        numbers, remedy = take(numbers, places), "give predictions of these rows, or "
    for column, texts in (("text", rows.texts), ("text_pair", rows.pairs)):
        if texts is None or column not in table.names:
            continue
        theirs = table.column(column)
        pairs = zip(theirs if places is None else take(theirs, places), texts, strict=True)
        if (at := next((at for at, (theirs, ours) in enumerate(pairs) if theirs != ours), None)) is not None:
            raise UserError(
                f"{path}, row {numbers[at]:,} has another text than {rows.source}, row {rows.numbers[at]:,}: "
                f"{remedy}leave out the column '{column}'"
            )
    labels, classes = known.names, table.classes.get(PREDICTION)
    ids = {name: index for index, name in enumerate(labels)}
    cells = coded(table.column(PREDICTION))
    cells = cells if places is None else cells.take(places)
    values = label_cells(cells.values, PREDICTION, multi=multi)
    answers, faults = label_sets(values, classes, known) if multi else label_names(values, classes, known)
    given = [[one] if isinstance(one, str) else one for one in answers]
    strange: dict[int, Any] = {}  # of the different values
    for at, names in enumerate(given):
        unknown = [cells.values[at]] if at in faults else [one for one in names if one not in ids]
        if unknown:
            strange[at] = unknown[0]
    if strange:
        row = int(np.isin(cells.codes, [*strange]).argmax())
        raise UserError(
            f"{path}, row {numbers[row]:,}: the prediction '{format_value(strange[int(cells.codes[row])])}' is no "
            "class "
            f"of the models: they have {list_names(labels)}"
        )
    marks = np.zeros((len(values), len(labels)), dtype=bool)
    for at, names in enumerate(given):
        marks[at, [ids[one] for one in names]] = True
    return marks[cells.codes] if multi else marks.argmax(1).astype(np.int32)[cells.codes]


def _places(path: Path, table: RawTable, rows: Rows) -> "NDArray[Any] | None":
    """Which row of a file answers each of `rows`, by the columns `index` and `row` of our own predictions; None: they
    are in one order, as neither column is there, or one alone, which is of something else."""
    import numpy as np

    own = {"index": rows.unread.positions if rows.unread else range(len(rows)), "row": rows.numbers}
    own = {name: np.asarray(numbers, dtype=np.int64) for name, numbers in own.items() if name in table.names}
    theirs = list[Any]()
    for name in own:
        cells = [drop_zero_fraction(normalise_name(cell)) for cell in table.column(name)]
        theirs += [np.array(cells, dtype=np.int64)] if all(map(re.compile("[0-9]{1,18}").fullmatch, cells)) else []
    if own and len(theirs) == len(own):
        order, others = np.lexsort([*own.values()]), np.lexsort(theirs)
        if all(
            (of_rows[order] == of_file[others]).all() for of_rows, of_file in zip(own.values(), theirs, strict=True)
        ):
            places = np.empty(len(rows), dtype=np.int64)
            places[order] = others
            return places
    if len(own) == 2:
        raise UserError(
            f"{path} has the columns index and row, as predictions of evaluate have, but they are not those of "
            f"{rows.source}: give predictions of its rows, or leave out both columns if they are in the same order"
        )
    return None


def _answers_of(folder: ModelFolder, data: EvaluationData, labels: list[str], config: CompareConfig) -> "NDArray[Any]":
    """The answers of a model, its classes in the order of `labels`."""
    import numpy as np

    from manyheads.evaluation.answered import answer_rows
    from manyheads.evaluation.evaluation import Setup
    from manyheads.inference.classifier import TextClassifier
    from manyheads.inference.folder import load, place

    classifier = place(load(folder, TextClassifier), config.hardware)
    fitted = classifier.calibration
    may_change = fitted is not None and fitted.method != CalibrationMethod.temperature.name  # which changes no answer
    if fitted is not None and may_change and fitted.digest == data.rows.digest(labels):
        raise UserError(
            f"{data.rows.source} holds the rows on which calibrate was fitted, so the figures of {folder.path} would "
            "be optimistic: compare on other rows"
        )
    own = np.array([labels.index(name) for name in classifier.labels])
    back = np.argsort(own)
    given: list[Any] = []
    with progress_bar(len(data.rows)) as progress:
        stored = answer_rows(classifier, data.rows, Setup(tokens=config.batch.tokens, progress=progress))
        for found in stored.answers():
            given.append(found.answers[:, back] if found.multi else own[found.answers].astype(np.int32))
    return np.concatenate(given)


def compare_answers(judged: list[ComparedModel], data: EvaluationData, labels: list[str]) -> dict[str, Any]:
    """Figures of every model, and of every two the differences, McNemar's test, and the rows needed to find them."""
    from manyheads.evaluation.intervals import holm, plain
    from manyheads.evaluation.metrics import change_of_answers, score_answers

    truth = truth_of(data, len(labels))
    models = {one.name: plain(score_answers(truth, one.answers, len(labels))) for one in judged}
    pairs: list[dict[str, Any]] = []
    for before, after in combinations(judged, 2):
        (change,) = change_of_answers(truth, before.answers, [after.answers], len(labels))
        was, now = right_of(truth, before.answers), right_of(truth, after.answers)
        won, lost = int((~was & now).sum()), int((was & ~now).sum())
        pairs.append(
            {
                "from": before.name,
                "to": after.name,
                "change": {name: asdict(one) for name, one in change.items()},
                "won": won,
                "lost": lost,
                "changed": int((~right_of(before.answers, after.answers)).sum()),
                "p": mcnemar(won, lost),
                "rows_needed": rows_needed(won, lost, len(truth)),
            }
        )
    for pair, p in zip(pairs, holm([one["p"] for one in pairs]), strict=True):
        pair["p_holm"] = p
    return {"n_rows": len(truth), "labels": labels, **data.about, "models": models, "pairs": pairs}


def truth_of(data: EvaluationData, n_classes: int) -> "NDArray[Any]":
    import numpy as np

    from manyheads.data.tokens import multi_hot

    if data.rows.sets is None:
        return np.asarray(data.rows.labels, dtype=np.int64)
    return multi_hot(data.rows.sets, n_classes).bool().numpy()


def right_of(truth: "NDArray[Any]", answers: "NDArray[Any]") -> "NDArray[Any]":
    """Of which rows both are the same `(n,)`."""
    return truth == answers if truth.ndim == 1 else (truth == answers).all(1)


def mcnemar(won: int, lost: int) -> float:
    """p of the rows that one of two models alone has right being split so unevenly by chance: McNemar (1947), by the
    binomial distribution."""
    from scipy.stats import binomtest

    return float(binomtest(min(won, lost), won + lost).pvalue) if won + lost else 1.0


def rows_needed(won: int, lost: int, n: int) -> int | None:
    """Rows on which a difference such as this one is found at p < 0.05 in four of five samples; None: there is none.
    Connor (1987), "Sample Size for Testing Differences in Proportions for the Paired-Sample Design", corrected for
    continuity, as McNemar's exact test has less power than the test that he assumes."""
    from manyheads.evaluation.intervals import Z

    apart, change = (won + lost) / n, (won - lost) / n
    if not change:
        return None
    needed = ((Z * math.sqrt(apart) + POWER * math.sqrt(apart - change**2)) / change) ** 2
    return math.ceil(needed + 1 / abs(change))


def pair_verdict(pair: dict[str, Any], n_rows: int) -> str:
    """The result of a pair in a sentence."""
    change, first, second = pair["change"]["accuracy"], pair["from"], pair["to"]
    points = (
        f"{100 * change['value']:+.1f} points (95 % interval {100 * change['low']:.1f} to {100 * change['high']:.1f})"
    )
    counts = (
        f"right where the other is wrong: {pair['won']:,} rows against {pair['lost']:,}, Holm p = {pair['p_holm']:.2g}"
    )
    if pair["p_holm"] < 0.05:
        better, other = (second, first) if change["value"] > 0 else (first, second)
        return f"{better} is better than {other}: accuracy of {second} less that of {first} is {points}; {counts}"
    said = f"{second} and {first} do not differ significantly: {points}; {counts}"
    needed = pair["rows_needed"]
    if needed and needed > n_rows:
        said += f"; about {needed:,} rows are needed to find a difference of this size"
    return said


def _write(
    folder: Path,
    found: dict[str, Any],
    judged: list[ComparedModel],
    data: EvaluationData,
    labels: list[str],
    config: CompareConfig,
) -> dict[str, Any]:
    import numpy as np

    from manyheads.evaluation.evaluation import dotted, write_answers
    from manyheads.evaluation.report import Page, installed_versions, value_sections, write_page

    same = [right_of(judged[0].answers, one.answers) for one in judged[1:]]
    truth, changed = truth_of(data, len(labels)), np.flatnonzero(~np.all(same, axis=0))
    words = partial(_words, labels=labels)
    said = [pair_verdict(pair, found["n_rows"]) for pair in found["pairs"]]
    page = Page(
        title=f"{' and '.join(one.name for one in judged)} compared",
        subtitle=f"{data.title}, {found['n_rows']:,} rows",
        sections=[
            *_sections(found),
            *changed_rows(judged, truth, data, words, config.rows),
            *value_sections({"Settings": dict(dotted(to_plain(config))), "Versions": installed_versions()}),
        ],
        verdict=f"{said[0]}.",
        warnings=found["warnings"],
    )
    with output_folder(folder, COMPARED, overwrite=config.overwrite) as place:
        columns = [truth, *(one.answers for one in judged)]
        answers = ([words(column[at]) for column in columns] for at in changed.tolist())
        names = ["label", *(f"{PREDICTION} of {one.name}" for one in judged)]
        write_answers(place / "changed.csv", data.rows.pick(changed), names, answers)
        write_page(place / "report.html", page)
        write_json(place / "compare.json", found)
    for name, figures in found["models"].items():
        of = figures["accuracy"]
        say(f"{name}: accuracy {of['value']:.4f} ({of['low']:.3f} to {of['high']:.3f})")
    say(*said, *(f"warning: {one}" for one in found["warnings"]))
    show_files(folder, ["compare.json", "changed.csv", "report.html"])
    return found


def _words(answer: Any, labels: list[str]) -> str:
    """The class, or all labels `joined`."""
    if not getattr(answer, "ndim", 0):
        return labels[int(answer)]
    return join_names([labels[one] for one in answer.nonzero()[0].tolist()])


def _sections(found: dict[str, Any]) -> "list[ReportSection]":
    from manyheads.evaluation.report import ReportSection, ReportTable
    from manyheads.runs.summary import Interval, words_of

    names = list(next(iter(found["models"].values())))[:3]
    models = [[name, *(Interval(**of[one]) for one in names)] for name, of in found["models"].items()]
    pairs = []
    for one in found["pairs"]:
        change = []
        for name in names[:2]:
            of = one["change"][name]
            change.append(f"{of['value']:+.3f} ({of['low']:+.3f} to {of['high']:+.3f})")
        needed = f"{one['rows_needed']:,}" if one["rows_needed"] else "-"
        counts = [f"{one[key]:,}" for key in ("won", "lost", "changed")]
        pairs.append([f"{one['from']} to {one['to']}", *change, *counts, f"{one['p_holm']:.2g}", needed])
    changes = [f"change of {words_of(one)}" for one in names[:2]]
    columns = ["", *changes, "won", "lost", "answers changed", "p", "rows needed"]
    notes = [
        "won and lost are rows that the second alone, or the first alone, has right; p is McNemar's after Holm's "
        "correction; on as many rows as are needed a difference of this size is found in four of five samples; - is no "
        "difference"
    ]
    return [
        ReportSection("Figures of each", ReportTable(["model", *map(words_of, names)], models, "w" + "i" * len(names))),
        ReportSection("Every two of them", ReportTable(columns, pairs, "w" + "n" * 7), notes),
    ]


def changed_rows(
    judged: list[ComparedModel], truth: "NDArray[Any]", data: EvaluationData, words: Any, most: int
) -> "list[ReportSection]":
    """Rows that one of two alone has right, both ways, the first of them with their texts."""
    import numpy as np

    from manyheads.evaluation.report import Example, ReportSection

    sections = []
    for one, other in combinations(judged, 2):
        right = {of.name: right_of(truth, of.answers) for of in (one, other)}
        for better, worse in ((other, one), (one, other)):
            which = np.flatnonzero(right[better.name] & ~right[worse.name])
            examples = []
            for at in which[:most].tolist():
                texts = [data.rows.texts[at]]
                if data.rows.pairs is not None:
                    texts.append(data.rows.pairs[at])
                wanted, given = words(truth[at]) or "no label", words(worse.answers[at]) or "no label"
                examples.append(Example(f"row {data.rows.numbers[at]:,}", texts, wanted, given))
            if examples:
                title = f"{better.name} is right, {worse.name} is wrong: {len(which):,} rows"
                sections.append(ReportSection(title, examples=examples, long=True))
    return sections
