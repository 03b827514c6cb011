"""The verb `calibrate`: calibrate the probabilities of a finished classifier on rows that it has not learnt from.

The figures after it are of folds: each fifth of the rows is mapped by what was fitted on the others, so that no row is
judged by what was fitted on it.

n rows . C classes or labels
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

from manyheads.config import EvaluateConfig
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import EvaluationData, find_data
from manyheads.evaluation.held_out import require_new
from manyheads.inference.download import OF_HUB
from manyheads.inference.format import CALIBRATION, CARD, MORE, enclosing_run, open_folder, read_thresholds
from manyheads.plugins.judge.config import CalibrateConfig, CalibrationMethod
from manyheads.runs.files import refuse_unwritable, replace_folder, write_atomic
from manyheads.runs.summary import Interval, read_summary, words_of
from manyheads.runs.verb_output import VerbOutput, refuse_occupied
from manyheads.terminal import progress_bar, say

if TYPE_CHECKING:
    from torch import Tensor

    from manyheads.linear.calibration import Calibration

CALIBRATED = VerbOutput("calibrate", CALIBRATION, ('"method":', '"copy": true'), (CARD, *OF_HUB, *MORE))
FOLDS = 5
FEWEST = 50  # rows
MOST, MOST_LOGITS = 100_000, 2**24  # rows that are drawn, and logits of them, of more
SHOWN = ("loss", "brier", "calibration_error", "adaptive_calibration_error", "classwise_calibration_error", "accuracy")
STEADY = 1e-3  # of the way from a line to the probability itself, so that it rises where it would be flat
PULL = 1e-3  # by which `vector` holds scales at that of `temperature` and shifts at 0


def calibrate(config: CalibrateConfig) -> dict[str, Any]:
    """Fit calibration.json and write it into the model folder, in place of one that is there; returns its content.

    Raises:
        UserError: one sentence; the run, the data, or rows that the model learnt from.
    """
    folder = open_folder(config.run, "classify")
    labels, home = folder.labels(), enclosing_run(folder.path)
    data = find_data(
        EvaluateConfig(run=config.run, split=config.split, data=config.data), home, folder.settings, labels
    )
    if config.output and Path(config.output).exists():
        if not config.overwrite:
            raise UserError(
                f"output={config.output} is there already: name a new folder, or remove output to calibrate that of run"
                ", or add overwrite=true to replace what calibrate wrote there"
            )
        if Path(config.output).resolve() == folder.path.resolve():
            raise UserError(f"output={config.output} is the model of run: remove output to calibrate it where it is")
        refuse_occupied(Path(config.output), CALIBRATED, overwrite=True)
    if data.role == "train" or (data.role == "validation" and data.run and data.run.data.validates_on_train):
        raise UserError(
            f"{data.rows.source} holds rows that the model learnt from, which it is too sure of: calibrate it on others"
        )
    seen = require_new(home, data.rows, labels, "calibrate it on others") if data.run is None else []
    if len(data.rows) < FEWEST:
        raise UserError(
            f"{data.rows.source} has {len(data.rows)} rows, too few to fit anything that holds: give {FEWEST} or more"
        )

    import torch

    from manyheads.data.tokens import multi_hot
    from manyheads.evaluation.results import card_figures
    from manyheads.inference.card import calibrated_card
    from manyheads.inference.classifier import TextClassifier, answer_in_chunks
    from manyheads.inference.folder import load, place

    rows = data.rows.sample(max(FEWEST, min(MOST, MOST_LOGITS // len(labels))), config.seed)
    classifier = replace(place(load(folder, TextClassifier), config.hardware), calibration=None)
    with progress_bar(len(rows)) as progress:
        ask = lambda texts, pairs: {"": classifier.logits(texts, pairs, tokens=config.batch.tokens)}  # noqa: E731
        logits_nC = answer_in_chunks(ask, rows, len(labels), progress)[""].double()
    truth = torch.tensor(list(rows.labels)) if rows.sets is None else multi_hot(rows.sets, len(labels)).double()
    fitted = fit_calibration(config.method, logits_nC, truth)
    found = {
        **fitted.as_json(),
        "digest": data.rows.digest(labels),
        **before_and_after(config, logits_nC, truth, labels, data),
    }
    target, text = Path(config.output or folder.path), json.dumps(found, ensure_ascii=False) + "\n"
    thresholds = None
    if folder.settings.multi:
        thresholds = fitted.thresholds(read_thresholds(folder.path / "thresholds.json", folder.settings)["both"])
    summary = read_summary(home / "summary.json") if home else None
    known = card_figures(summary) if summary else None
    with refuse_unwritable(target):
        card = folder.path / CARD
        judged = calibrated_card(card.read_text("utf-8"), found, labels, thresholds, known) if card.is_file() else ""
        if config.output:
            with replace_folder(target.resolve()) as part:
                copytree(folder.path, part, dirs_exist_ok=True)
                # so that a model that was trained, or calibrated where it was, is never taken for such a copy
                copy = json.dumps({**found, "copy": True}, ensure_ascii=False) + "\n"
                (part / CALIBRATION).write_text(copy, encoding="utf-8")
                if judged:
                    (part / CARD).write_text(judged, encoding="utf-8")
                refuse_occupied(target, CALIBRATED, overwrite=config.overwrite)  # something may have come in between
        else:
            write_atomic(target / CALIBRATION, text)
            if judged:
                write_atomic(card, judged)
    _show(found, target)
    say(*(f"warning: {one}" for one in seen))
    return found


def fit_calibration(method: CalibrationMethod, logits_nC: "Tensor", truth: "Tensor") -> "Calibration":
    """Logits in fp64 to those of calibrated probabilities; `truth` are class ids `(n,)`, or marks `(n, C)`."""
    import torch
    from torch.nn import functional as F

    from manyheads.linear.blend import UNSURE
    from manyheads.linear.calibration import MOST_READ, Calibration

    if method is CalibrationMethod.isotonic:
        return Calibration(method.name, knots=_knots(logits_nC, truth))
    n_rows, n_classes = logits_nC.shape
    multi = truth.ndim == 2
    marks_nC = truth.double() if multi else F.one_hot(truth.long(), n_classes).double()
    # rows all right would be certain, were it not for those that may have any class: see UNSURE
    marks_nC = (marks_nC + UNSURE / n_rows / (2 if multi else n_classes)) / (1 + UNSURE / n_rows)

    def loss_of(mapped_nC: "Tensor") -> "Tensor":
        return (F.binary_cross_entropy_with_logits if multi else F.cross_entropy)(mapped_nC, marks_nC)

    log_scale = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    _minimise(lambda: loss_of(logits_nC * log_scale.exp()), [log_scale])
    scale_C = log_scale.detach().exp().clamp(max=MOST_READ).expand(n_classes)
    shift_C = torch.zeros(n_classes, dtype=torch.float64)
    if method is CalibrationMethod.temperature:
        return Calibration(method.name, scale_C.clone(), shift_C)
    log_C, shift_C = log_scale.detach().expand(n_classes).clone().requires_grad_(), shift_C.requires_grad_()
    start_C = log_C.detach().clone()

    def loss() -> "Tensor":
        pull = PULL * ((log_C - start_C).square().sum() + shift_C.square().sum())
        return loss_of(logits_nC * log_C.exp() + shift_C) + pull

    _minimise(loss, [log_C, shift_C])
    return Calibration(method.name, log_C.detach().exp().clamp(max=MOST_READ), shift_C.detach())


def _minimise(loss: Any, parameters: "list[Tensor]") -> None:
    import torch

    search = torch.optim.LBFGS(parameters, lr=1.0, max_iter=200, line_search_fn="strong_wolfe")

    def step() -> Any:
        search.zero_grad()
        value = loss()
        value.backward()
        return value

    search.step(step)


def _knots(logits_nC: "Tensor", truth: "Tensor") -> "list[tuple[Tensor, Tensor]]":
    import torch
    from sklearn.isotonic import IsotonicRegression

    multi = truth.ndim == 2
    likely_nC = (logits_nC.sigmoid() if multi else logits_nC.softmax(-1)).numpy()
    knots = []
    for at, likely_n in enumerate(likely_nC.T):
        is_so_n = (truth[:, at] if multi else truth == at).double().numpy()
        if not is_so_n.any():  # nothing is known of it, least of all that no text has it
            knots.append((torch.tensor([0.0, 1.0]).double(), torch.tensor([0.0, 1.0]).double()))
            continue
        line = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(likely_n, is_so_n)
        x, y = (torch.tensor(one, dtype=torch.float64) for one in (line.X_thresholds_, line.y_thresholds_))
        x, y = torch.cat([x.new_zeros(1), x, x.new_ones(1)]), torch.cat([y[:1], y, y[-1:]])
        knots.append((x.clamp(0, 1), torch.lerp(y.clamp(0, 1), x.clamp(0, 1), STEADY)))
    return knots


def before_and_after(
    config: CalibrateConfig, logits_nC: "Tensor", truth: "Tensor", labels: list[str], data: EvaluationData
) -> dict[str, Any]:
    """The figures of the rows before calibration and after it, by folds, each with its interval."""
    import torch

    order = torch.randperm(len(logits_nC), generator=torch.Generator().manual_seed(config.seed))
    after_nC = torch.empty_like(logits_nC)
    for fold in range(FOLDS):
        held = torch.zeros(len(order), dtype=torch.bool)
        held[order[fold::FOLDS]] = True
        after_nC[held] = fit_calibration(config.method, logits_nC[~held], truth[~held]).of(
            logits_nC[held], multi=truth.ndim == 2
        )
    return {
        "rows": len(order),
        "of": len(data.rows),
        "source": data.rows.source,
        "before": _scored(logits_nC, truth, labels),
        "after": _scored(after_nC, truth, labels),
    }


def _scored(logits_nC: "Tensor", truth: "Tensor", labels: list[str]) -> dict[str, Any]:
    from manyheads.evaluation.metrics import score, score_labels

    if truth.ndim == 1:
        scores = score(truth.numpy(), logits_nC.softmax(-1).numpy(), labels)
    else:
        scores = score_labels(truth.bool().numpy(), logits_nC.sigmoid().numpy(), labels, [0.5] * len(labels))
    found = {name: asdict(scores.figures[name]) for name in SHOWN if name in scores.figures}
    if truth.ndim == 2:  # thresholds decide it, which are mapped as well
        found.pop("accuracy", None)
    return found


def _show(found: dict[str, Any], folder: Path) -> None:
    of = f" of {found['of']:,}, drawn" if found["rows"] < found["of"] else ""
    by = f"{found['method']} on {found['rows']:,} rows{of}; after: of five folds, each mapped by what the others fitted"
    lines = [by]
    for name, before in found["before"].items():
        after = found["after"][name]
        lines.append(f"  {words_of(name)}: {Interval(**before).words} before, {Interval(**after).words} after")
    say(*lines, folder / CALIBRATION)
