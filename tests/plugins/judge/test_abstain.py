"""Promises of `predict`: their bounds against SciPy, and that they hold as often as they say, by simulation."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from manyheads.config import (
    Accelerator,
    DataConfig,
    InferenceHardware,
    PredictConfig,
    RunConfig,
)
from manyheads.data.sources import read_rows
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.plugins.judge.abstain import Rules, least_confidence, likelier, most_wrong, of_label, set_bounds
from manyheads.plugins.judge.calibrate import calibrate
from manyheads.plugins.judge.config import CalibrateConfig
from manyheads.plugins.judge.sections import AbstainConfig, OutliersConfig, SetsConfig
from manyheads.runs.config_file import save_run

CPU = InferenceHardware(accelerator=Accelerator.cpu)
LABELS = ["bad", "good", "so-so"]


@pytest.mark.parametrize(("n_wrong", "n"), [(0, 150), (3, 90), (20, 40)])
def test_the_bound_is_clopper_pearsons(n_wrong: int, n: int) -> None:
    expected = binomtest(n_wrong, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert most_wrong(n_wrong, n, 0.05) == pytest.approx(expected)
    assert most_wrong(n, n, 0.05) == 1


def test_the_promise_of_a_risk_holds_in_95_of_100_draws() -> None:
    random, broken, answered = np.random.default_rng(0), 0, []
    for _ in range(400):
        sure = random.random(800)
        least = least_confidence(sure, random.random(800) < 0.7 + 0.3 * sure, 0.1)  # wrong by 0.3 · (1 - sure)
        true_risk = 0.3 * (1 - (least + 1) / 2) if least <= 1 else 0.0
        broken, answered = broken + (true_risk > 0.1), [*answered, max(0.0, 1 - least)]
    assert broken <= 0.05 * 400 + 9
    assert np.mean(answered) > 0.2  # two thirds could be answered if the risk were known


def test_a_promise_is_said_as_it_was_asked_for() -> None:
    risk, sets = Rules(50, risk=0.0005, coverage=0.995).words()
    assert "at most 0.05% of the answers are wrong" in risk
    assert "the right class of 99.5% by 50 labelled rows" in sets


def test_no_row_is_answered_where_nothing_can_be_promised() -> None:
    assert least_confidence(np.full(20, 0.9), np.ones(20, dtype=bool), 0.02) == 2.0
    assert least_confidence(np.full(2000, 0.9), np.ones(2000, dtype=bool), 0.02) == 0.9


def draw(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too sure, and labels."""
    logits = random.normal(size=(n, 4))
    labels = np.array([random.choice(4, p=one) for one in np.exp(logits) / np.exp(logits).sum(1, keepdims=True)])
    sure = np.exp(3 * logits)
    return sure / sure.sum(1, keepdims=True), labels


@pytest.mark.parametrize("by_class", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sets_hold_the_right_class_as_often_as_they_say(by_class: bool) -> None:
    random, held = np.random.default_rng(1), []
    for _ in range(60):
        likely, labels = draw(300, random)
        bounds = set_bounds(of_label(likelier(likely), labels), labels, 4, 0.9, by_class=by_class)
        likely, labels = draw(500, random)
        is_in = likelier(likely)[np.arange(500), labels] <= bounds[labels]
        held.append(np.bincount(labels, is_in, 4) / np.bincount(labels, minlength=4) if by_class else is_in.mean())
    assert np.all(np.mean(held, axis=0) > 0.885)
    assert np.mean(held) < 0.95


def test_a_class_of_few_rows_is_in_every_set() -> None:
    likely, labels = np.tile([[0.9, 0.06, 0.04]], (50, 1)), np.array([0] * 49 + [1])
    bounds = set_bounds(of_label(likelier(likely), labels), labels, 3, 0.9, by_class=True)
    assert bounds.tolist() == [0.0, np.inf, np.inf]
    np.testing.assert_allclose(likelier(likely)[0], [0.0, 0.9, 0.96])


@pytest.fixture
def labelled(model_folder: Path, tmp_path: Path) -> Path:
    """Rows that are labelled as the model answers them, but for some of the least sure."""
    texts = [f"{'good ' * (at % 4)}{'bad ' * (at % 3)}film {'so ' * (at % 5)}{at}" for at in range(300)]
    said = load(model_folder).predict(texts)
    by_confidence = sorted(range(300), key=lambda at: max(said[at].probabilities.values()))
    labels = [one.label for one in said]
    for at in by_confidence[:60]:
        labels[at] = LABELS[(LABELS.index(labels[at]) + 1) % 3]
    with (tmp_path / "labelled.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return tmp_path / "labelled.csv"


def test_predict_leaves_texts_unanswered_and_gives_sets(model_folder, labelled, tmp_path, capsys) -> None:
    output = tmp_path / "out.jsonl"
    config = PredictConfig(
        run=str(model_folder), input=str(labelled), output=str(output), hardware=CPU, labelled=str(labelled),
        abstain=AbstainConfig(risk=0.1), sets=SetsConfig(coverage=0.8),
    )  # fmt: skip
    assert predict(config) == 300
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    with labelled.open(newline="") as file:
        labels = [one["label"] for one in csv.DictReader(file)]
    given = [(one["label"], label) for one, label in zip(answers, labels, strict=True) if one["label"] is not None]
    assert 0 < len(given) < 300
    assert sum(one != label for one, label in given) <= 0.1 * len(given)
    least = min(max(one["probabilities"].values()) for one in answers if one["label"] is not None)
    assert all(max(one["probabilities"].values()) < least for one in answers if one["label"] is None)
    held = np.mean([label in one["set"] for one, label in zip(answers, labels, strict=True)])
    assert 0.8 <= held < 1
    for one in answers:
        assert one["set"] == sorted(one["set"], key=lambda name: -one["probabilities"][name])
        assert max(one["probabilities"], key=one["probabilities"].__getitem__) == one["set"][0]
    said = capsys.readouterr().err
    assert "with 95 % confidence at most 10% of the answers are wrong" in said
    assert "sets are to hold the right class of 80% by 300 labelled rows" in said
    predict(PredictConfig(**{name: getattr(config, name) for name in ("run", "input", "hardware", "labelled", "abstain", "sets")}, output=str(tmp_path / "out.csv")))  # fmt: skip # noqa: E501
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [one["set"].split("|") for one in csv.DictReader(file)] == [one["set"] for one in answers]


def test_rows_of_data_that_has_changed_promise_nothing(model_folder, labelled, tmp_path) -> None:
    shutil.copytree(model_folder, tmp_path / "run")
    run = RunConfig(data=DataConfig(path=str(labelled)))  # whose validation rows are drawn
    save_run(run, tmp_path / "run" / "config.yaml")
    splits = read_rows(run, with_test=False)
    digests = {name: rows.digest(splits.labels) for name, rows in splits.by_name().items()}
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"digests": digests}))
    config = PredictConfig(
        run=str(tmp_path / "run"), text="a film", output=str(tmp_path / "a.jsonl"), hardware=CPU,
        sets=SetsConfig(coverage=0.5),
    )  # fmt: skip
    assert predict(config) == 1
    learnt = {*splits.train.texts}
    with labelled.open("a") as file:
        file.writelines(f"another film {at},good\n" for at in range(30))
    assert learnt & {*read_rows(run, with_test=False).validation.texts}
    with pytest.raises(
        ValueError, match=r"labelled\.csv has changed since training: .* or name rows by labelled=<file>"
    ):
        predict(replace(config, output=str(tmp_path / "b.jsonl")))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"sets": SetsConfig(coverage=0.5)},
            "abstain.risk and sets.coverage cannot be set, .*: name rows by labelled=",
        ),
        ({"outliers": OutliersConfig(false_alarms=0.5)}, "outliers.false_alarms cannot be set, .*: remove it"),
    ],
)
def test_training_rows_that_were_those_of_validation_promise_nothing(
    model_folder, labelled, tmp_path, asked, said
) -> None:
    shutil.copytree(model_folder, tmp_path / "run")
    save_run(RunConfig(data=DataConfig(path=str(labelled), validation_split="train")), tmp_path / "run" / "config.yaml")
    (tmp_path / "run" / "model" / "outliers.safetensors").unlink(missing_ok=True)
    config = PredictConfig(
        run=str(tmp_path / "run"), text="a film", output=str(tmp_path / "a.jsonl"), hardware=CPU, **asked
    )
    with pytest.raises(ValueError, match=said):
        predict(config)
    with pytest.raises(ValueError, match=r"labelled\.csv holds rows that the model learnt from"):
        calibrate(CalibrateConfig(run=str(tmp_path / "run"), split="validation", hardware=CPU))


def test_rows_that_were_learnt_from_promise_nothing(model_folder, labelled, tmp_path, capsys) -> None:
    shutil.copytree(model_folder, tmp_path / "run")
    run = RunConfig(data=DataConfig(path=str(labelled)))
    save_run(run, tmp_path / "run" / "config.yaml")
    config = PredictConfig(
        run=str(tmp_path / "run"), text="a film", output=str(tmp_path / "a.jsonl"), hardware=CPU,
        sets=SetsConfig(coverage=0.5), labelled=str(labelled),
    )  # fmt: skip
    learnt = read_rows(run, with_test=False).train
    with pytest.raises(ValueError, match=rf"^{len(learnt)} of 300 texts of labelled\.csv are also in what the model"):
        predict(config)
    lines = labelled.read_text().splitlines()
    others = [f"another film {at},good" for at in range(80)]
    (tmp_path / "others.csv").write_text("\n".join([lines[0], *others, *lines[-20:]]) + "\n")
    n = len({one.split(",")[0] for one in lines[-20:]} & {*learnt.texts})
    assert predict(replace(config, labelled=str(tmp_path / "others.csv"))) == 1
    assert f"{n} of 100 texts of others.csv are also in what the model learnt from" in capsys.readouterr().err


def test_promises_that_cannot_be_made_are_one_sentence(model_folder, label_folder, labelled) -> None:
    for run, typed, said in (
        (label_folder, {"abstain": AbstainConfig(risk=0.1)}, "abstain.risk=0.1 is a promise of one class a text"),
        (model_folder, {"sets": SetsConfig(coverage=0.9)}, "is a model without its run folder"),
        (model_folder, {"labelled": str(labelled)}, "does nothing without abstain.risk or sets.coverage"),
        (model_folder, {"sets": SetsConfig(by_class=True)}, "sets.by_class=true does nothing without sets.coverage"),
    ):
        with pytest.raises(ValueError, match=said):
            predict(PredictConfig(run=str(run), text="a film", hardware=CPU, **typed))
