"""A calibration is fitted to the answers of a classifier, judged by cross-validation, and written into its folder.

The figures after it are of folds: each fifth of the rows is mapped by what was fitted on the others, so that no row is
judged by what was fitted on it.

n rows . C classes or labels
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree
from typing import Any

import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor
from torch.nn import functional as F

from manyheads.data.tokens import multi_hot
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.evaluation.metrics import score, score_labels
from manyheads.inference.card import FIGURE, card_figures, figure_lines, plain_line
from manyheads.inference.classifier import TextClassifier, answer_in_chunks
from manyheads.inference.folder import load, place
from manyheads.inference.format import CALIBRATION, CARD, ModelFolder, enclosing_run, read_thresholds
from manyheads.linear.blend import UNSURE
from manyheads.linear.calibration import LEAST_MAPPED, MOST_READ, Calibration
from manyheads.plugins.judge.config import FEWEST, CalibrateConfig, CalibrationMethod
from manyheads.runs.files import refuse_unwritable, replace_folder, write_atomic
from manyheads.runs.summary import Interval, moved_by, read_summary, words_of
from manyheads.runs.verb_output import VerbOutput, refuse_occupied
from manyheads.terminal import progress_bar

FOLDS = 5
CALIBRATED, AFTER = "Calibrated by", "after calibrate"  # how a card says it
MOST, MOST_LOGITS = 100_000, 2**24  # rows and logits that a calibration is fitted to: of more, rows are drawn
SHOWN = ("loss", "brier", "calibration_error", "adaptive_calibration_error", "classwise_calibration_error", "accuracy")
STEADY = 1e-3  # of the way from a line to the probability itself, so that it rises where it would be flat
PULL = 1e-3  # by which `vector` holds scales at that of `temperature` and shifts at 0


def fit_and_write(
    config: CalibrateConfig, folder: ModelFolder, data: EvaluationData, target: Path, output: VerbOutput
) -> dict[str, Any]:
    """Fit a calibration on the rows, judge it, and write it to `target`; returns the content of calibration.json."""
    labels = folder.labels()
    rows = data.rows.sample(max(FEWEST, min(MOST, MOST_LOGITS // len(labels))), config.seed)
    classifier = replace(place(load(folder, TextClassifier), config.hardware), calibration=None)

    def answer(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        return {"": classifier.logits(texts, pairs, tokens=config.batch.tokens)}

    with progress_bar(len(rows)) as progress:
        logits_nC = answer_in_chunks(answer, rows, len(labels), progress)[""].double()
    truth = torch.tensor(list(rows.labels)) if rows.sets is None else multi_hot(rows.sets, len(labels)).double()
    fitted = fit_calibration(config.method, logits_nC, truth)
    after_nC = map_by_folds(config.method, logits_nC, truth, config.seed)
    found = {
        **fitted.as_json(),
        "digest": data.rows.digest(labels),
        "rows": len(rows),
        "of": len(data.rows),
        "source": data.rows.source,
        "before": calibration_figures(logits_nC, truth, labels),
        "after": calibration_figures(after_nC, truth, labels),
    }
    write_calibrated(config, folder, fitted, found, target, output)
    return found


def write_calibrated(
    config: CalibrateConfig,
    folder: ModelFolder,
    fitted: Calibration,
    found: dict[str, Any],
    target: Path,
    output: VerbOutput,
) -> None:
    """Write calibration.json and the model card, where there is one, into the folder itself or into a copy of it."""
    thresholds, figures = None, None
    if folder.settings.multi:
        thresholds = fitted.thresholds(read_thresholds(folder.path / "thresholds.json", folder.settings)["both"])
    home = enclosing_run(folder.path)
    summary = read_summary(home / "summary.json") if home else None
    if summary:
        figures = card_figures(summary)
    with refuse_unwritable(target):
        file, card = folder.path / CARD, ""
        if file.is_file():
            card = calibrated_card(file.read_text("utf-8"), found, folder.labels(), thresholds, figures)
        if not config.output:
            write_atomic(target / CALIBRATION, json.dumps(found, ensure_ascii=False) + "\n")
            if card:
                write_atomic(file, card)
            return
        with replace_folder(target.resolve()) as part:
            copytree(folder.path, part, dirs_exist_ok=True)
            # so that a model that was trained, or calibrated where it was, is never taken for such a copy
            copy = json.dumps({**found, "copy": True}, ensure_ascii=False) + "\n"
            (part / CALIBRATION).write_text(copy, encoding="utf-8")
            if card:
                (part / CARD).write_text(card, encoding="utf-8")
            refuse_occupied(target, output, overwrite=config.overwrite)  # something may have come in between


def fit_calibration(method: CalibrationMethod, logits_nC: Tensor, truth: Tensor) -> Calibration:
    """Fit a map from logits to those of calibrated probabilities, on rows that the model has not learnt from.

    `temperature` minimises the cross-entropy by one scale for all classes, `vector` by a scale and a shift for each:
    Guo et al. (2017), "On Calibration of Modern Neural Networks". `isotonic`: see `rising_lines`.

    Args:
        logits_nC: in fp64.
        truth: class ids `(n,)`, or, of several labels, marks `(n, C)`.
    """
    if method is CalibrationMethod.isotonic:
        return Calibration(method.name, knots=rising_lines(logits_nC, truth))
    n_rows, n_classes = logits_nC.shape
    if truth.ndim == 2:
        marks_nC, n_choices, cross_entropy = truth.double(), 2, F.binary_cross_entropy_with_logits
    else:
        marks_nC, n_choices, cross_entropy = F.one_hot(truth.long(), n_classes).double(), n_classes, F.cross_entropy
    # rows all right would be certain, were it not for those that may have any class: see UNSURE
    marks_nC = (marks_nC + UNSURE / n_rows / n_choices) / (1 + UNSURE / n_rows)

    log_scale = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    _minimise(lambda: cross_entropy(logits_nC * log_scale.exp(), marks_nC), [log_scale])
    shift_C = torch.zeros(n_classes, dtype=torch.float64)
    if method is CalibrationMethod.temperature:
        scale_C = log_scale.detach().exp().clamp(max=MOST_READ).expand(n_classes)
        return Calibration(method.name, scale_C.clone(), shift_C)

    start_C = log_scale.detach().expand(n_classes).clone()  # vector begins at the temperature
    log_scale_C = start_C.clone().requires_grad_()
    shift_C.requires_grad_()

    def loss() -> Tensor:
        pull = PULL * ((log_scale_C - start_C).square().sum() + shift_C.square().sum())
        return cross_entropy(logits_nC * log_scale_C.exp() + shift_C, marks_nC) + pull

    _minimise(loss, [log_scale_C, shift_C])
    return Calibration(method.name, log_scale_C.detach().exp().clamp(max=MOST_READ), shift_C.detach())


def _minimise(loss: Callable[[], Tensor], parameters: list[Tensor]) -> None:
    search = torch.optim.LBFGS(parameters, lr=1.0, max_iter=200, line_search_fn="strong_wolfe")

    def step() -> Any:
        search.zero_grad()
        value = loss()
        value.backward()
        return value

    search.step(step)


def rising_lines(logits_nC: Tensor, truth: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of each class a rising line from its probability to how often it is right: isotonic regression, Zadrozny and
    Elkan (2002), "Transforming Classifier Scores into Accurate Multiclass Probability Estimates".

    Returns:
        C pairs of knots: probabilities in ascending order `(P,)`, and those that they become `(P,)`; in fp64.
    """
    multi = truth.ndim == 2
    likely_nC = (logits_nC.sigmoid() if multi else logits_nC.softmax(-1)).numpy()
    knots = []
    for at, likely_n in enumerate(likely_nC.T):
        is_so_n = (truth[:, at] if multi else truth == at).double().numpy()
        if not is_so_n.any():  # nothing is known of it, least of all that no text has it
            knots.append((torch.tensor([0.0, 1.0]).double(), torch.tensor([0.0, 1.0]).double()))
            continue
        line = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(likely_n, is_so_n)
        x = torch.tensor(line.X_thresholds_, dtype=torch.float64)
        y = torch.tensor(line.y_thresholds_, dtype=torch.float64)
        # from 0 to 1, level beyond the probabilities that were seen; above and below what `of` would cut off, which
        # would make one of all probabilities up to a thousandth, and give their label to all texts that have them
        x = torch.cat([x.new_zeros(1), x, x.new_ones(1)]).clamp(0, 1)
        y = torch.cat([y[:1], y, y[-1:]]).clamp(LEAST_MAPPED, 1 - LEAST_MAPPED)
        knots.append((x, torch.lerp(y, x, STEADY)))
    return knots


def map_by_folds(method: CalibrationMethod, logits_nC: Tensor, truth: Tensor, seed: int) -> Tensor:
    """Calibrated logits `(n, C)`: the rows of each fold are mapped by what the rows of the others fitted."""
    order_n = torch.randperm(len(logits_nC), generator=torch.Generator().manual_seed(seed))
    mapped_nC = torch.empty_like(logits_nC)
    for fold in range(FOLDS):
        is_held_n = torch.zeros(len(order_n), dtype=torch.bool)
        is_held_n[order_n[fold::FOLDS]] = True
        fitted = fit_calibration(method, logits_nC[~is_held_n], truth[~is_held_n])
        mapped_nC[is_held_n] = fitted.of(logits_nC[is_held_n], multi=truth.ndim == 2)
    return mapped_nC


def calibration_figures(logits_nC: Tensor, truth: Tensor, labels: list[str]) -> dict[str, Any]:
    """The figures that a calibration changes, each with its interval."""
    if truth.ndim == 1:
        scores = score(truth.numpy(), logits_nC.softmax(-1).numpy(), labels)
    else:
        scores = score_labels(truth.bool().numpy(), logits_nC.sigmoid().numpy(), labels, [0.5] * len(labels))
    found = {name: asdict(scores.figures[name]) for name in SHOWN if name in scores.figures}
    if truth.ndim == 2:  # thresholds decide it, which are mapped as well
        found.pop("accuracy", None)
    return found


def calibrated_card(
    card: str,
    fitted: dict[str, Any],
    labels: Sequence[str],
    thresholds: Sequence[float] | None,
    figures: dict[str, str] | None = None,
) -> str:
    """`card` after `manyheads calibrate`, which found `fitted`: the figures that it changed are replaced, and labels
    have their new thresholds.

    Args:
        figures: of the model before it, as in `add_results`; None: those of the card, some of which an earlier
            calibration has removed.
    """
    changed = moved_by(fitted["method"], multi=thresholds is not None)
    head, use, rest = card.partition("\n## Use\n")
    head, _, table = head.partition("\n## Figures\n")
    rows = []
    for line in figure_lines(figures) if figures else table.split("\n"):
        if not line.startswith("| ") or line == FIGURE:
            continue
        split, _, figure = line.removeprefix("| ").partition(" |")[0].partition(" ")
        is_of_model = split in ("validation", "test") and " of the " not in figure
        is_changed = is_of_model and changed(figure.replace(" ", "_").lower())
        if not is_changed and not figure.endswith(AFTER):
            rows.append(line)
    for name, figure in fitted["after"].items():
        rows.append(f"| {words_of(name)} {AFTER} | {Interval(**figure).words} |")
    if thresholds is not None:
        for label, threshold in zip(labels, thresholds, strict=True):
            line = rf"^(- {re.escape(plain_line(label))}, from )[\d.]+ on$"
            rest = re.sub(line, rf"\g<1>{threshold:.3f} on", rest, flags=re.MULTILINE)
    earlier = ""
    if changed("accuracy"):
        earlier = "; how it compares with other models was measured before that"
    said = (
        f"{CALIBRATED} {fitted['method']} on {fitted['rows']:,} rows of {plain_line(fitted['source'])}{earlier}. "
        f"Figures {AFTER} are of five folds of these rows, each mapped by what the others fitted."
    )
    head = re.sub(f"\n{CALIBRATED} .*\n?", "", head).rstrip("\n")
    return "\n".join([head, "", said, "", "## Figures", "", FIGURE, "|---|---|", *rows, ""]) + use + rest
