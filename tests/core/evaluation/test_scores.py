"""Scores against scikit-learn, torch and torchmetrics; intervals against their meaning."""

import json
import time
import tracemalloc
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom, binomtest, multinomial, ttest_1samp
from sklearn import metrics
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_calibration_error

from manyheads.evaluation import calibration
from manyheads.evaluation.calibration import binned_error, error_interval
from manyheads.evaluation.intervals import _least_mean, mean_interval, share_interval, shares_interval
from manyheads.evaluation.metrics import change_of_answers, reliability, score, score_answers
from manyheads.runs.summary import Interval

FIGURES = ("accuracy", "macro_f1", "micro_f1", "macro_precision", "macro_recall", "loss", "calibration_error")


def some_rows(n_rows: int, n_classes: int, seed: int = 0, skill: float = 1.0):
    random = np.random.default_rng(seed)
    labels = random.integers(n_classes, size=n_rows)
    logits = random.normal(size=(n_rows, n_classes))
    logits[np.arange(n_rows), labels] += skill
    names = [f"class {at}" for at in range(n_classes)]
    return labels, torch.tensor(logits).softmax(-1).numpy(), names


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 1000))
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_figures_are_those_of_scikit_learn(n_rows: int, n_classes: int, seed: int) -> None:
    labels, probabilities, names = some_rows(n_rows, n_classes, seed)
    answers = probabilities.argmax(1)
    scores = score(labels, probabilities, names)
    assert scores.figures["accuracy"].value == pytest.approx(metrics.accuracy_score(labels, answers))
    for average in ("macro", "micro"):
        expected = metrics.precision_recall_fscore_support(labels, answers, average=average, zero_division=0)
        if average == "macro":
            assert scores.figures["macro_precision"].value == pytest.approx(expected[0])
            assert scores.figures["macro_recall"].value == pytest.approx(expected[1])
            assert scores.figures["macro_f1"].value == pytest.approx(expected[2])
        else:
            assert scores.figures["micro_f1"].value == pytest.approx(expected[2])
    every = list(range(n_classes))
    table = metrics.precision_recall_fscore_support(labels, answers, labels=every, zero_division=0)
    ours = [(one.precision, one.recall, one.f1, one.support) for one in scores.per_class]
    np.testing.assert_allclose(ours, np.stack(table, axis=1), atol=1e-12)
    assert scores.confusion == metrics.confusion_matrix(labels, answers, labels=every).tolist()


def test_loss_is_torchs_cross_entropy() -> None:
    labels, probabilities, names = some_rows(300, 5)
    expected = F.nll_loss(torch.tensor(probabilities).log(), torch.tensor(labels))
    assert score(labels, probabilities, names).figures["loss"].value == pytest.approx(float(expected))


def test_a_certain_mistake_has_a_finite_loss() -> None:
    assert np.isfinite(score([0], [[0.0, 1.0]], ["a", "b"]).figures["loss"].value)


def test_macro_figures_leave_out_classes_that_nobody_mentions() -> None:
    scores = score([0, 1], [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]], ["a", "b", "unused"])
    assert scores.figures["macro_f1"].value == 1
    assert scores.per_class[2].support == 0
    assert scores.per_class[2].f1 == 0


@given(st.integers(1, 2000), st.floats(0, 1))
def test_the_interval_of_a_share_is_wilsons(n_rows: int, part: float) -> None:
    n_some = round(part * n_rows)
    ours, peer = share_interval(n_some, n_rows), binomtest(n_some, n_rows).proportion_ci(method="wilson")
    assert (ours.low, ours.high) == pytest.approx((peer.low, peer.high), abs=1e-6)
    assert 0 <= ours.low <= ours.value == n_some / n_rows <= ours.high <= 1


def test_rows_that_are_all_right_leave_a_doubt() -> None:
    scores = score_answers([0, 1] * 10, [0, 1] * 10, 2)
    assert scores["accuracy"] == scores["micro_f1"] == share_interval(20, 20)
    assert scores["accuracy"].low == pytest.approx(0.839, abs=5e-4)
    for macro in (scores["macro_f1"], scores["macro_precision"], scores["macro_recall"]):
        assert (macro.value, macro.low, macro.high) == pytest.approx((1, scores["accuracy"].low, 1))


def test_a_class_of_few_rows_leaves_a_doubt_in_macro_figures() -> None:
    labels = np.repeat([0, 1], [95, 5])
    scores = score_answers(labels, labels, 2)
    assert scores["accuracy"].low > 0.96
    assert scores["macro_f1"].low == pytest.approx((1 + share_interval(5, 5).low) / 2, abs=0.01)


def test_the_intervals_of_macro_f1_hold_the_figure_of_all_texts_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    joint_CC = np.diag([0.57, 0.29, 0.1]) + 0.04 / 9  # of classes and answers
    truth = (2 * joint_CC.diagonal() / (joint_CC.sum(0) + joint_CC.sum(1))).mean()
    for n_rows in (40, 200):
        holds = []
        for _ in range(150):
            labels, answers = np.divmod(random.choice(9, size=n_rows, p=joint_CC.ravel()), 3)
            found = score_answers(labels, answers, 3)["macro_f1"]
            holds.append(found.low <= truth <= found.high)
        assert 0.92 <= np.mean(holds) <= 1  # the percentiles of the bootstrap hold it in 0.66 and 0.88 of the draws


def test_intervals_are_those_of_a_plain_bootstrap() -> None:
    labels, probabilities, names = some_rows(400, 4)
    scores = score(labels, probabilities, names)
    random, answers = np.random.default_rng(9), probabilities.argmax(1)
    draws = [random.integers(400, size=400) for _ in range(250)]
    macro_f1 = [metrics.f1_score(labels[rows], answers[rows], average="macro", zero_division=0) for rows in draws]
    interval = scores.figures["macro_f1"]
    width = interval.high - interval.low
    assert np.allclose((interval.low, interval.high), np.percentile(macro_f1, (2.5, 97.5)), atol=0.15 * width)


def test_the_interval_of_a_loss_is_that_of_a_studentised_bootstrap() -> None:
    labels, probabilities, names = some_rows(400, 4, skill=3.0)
    found = score(labels, probabilities, names).figures["loss"]
    losses = -np.log(probabilities[np.arange(400), labels])
    drawn = losses[np.random.default_rng(9).integers(400, size=(4000, 400))]
    t = (drawn.mean(1) - losses.mean()) / (drawn.std(1) / 20)
    low, high = losses.mean() - np.percentile(t, (97.5, 2.5)) * losses.std() / 20
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_the_interval_of_a_skewed_mean_holds_it_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(0).lognormal(0.0, 1.0, size=(1000, 50))
    true = np.exp(0.5)
    skewed, plain = ([mean_interval(one, skewed=way) for one in drawn] for way in (True, False))
    held, by_student = (np.mean([one.low <= true <= one.high for one in found]) for found in (skewed, plain))
    assert held >= 0.92 > 0.9 > by_student
    assert min(one.low for one in skewed) > 0


@pytest.mark.parametrize("values", [[0.2, 1.5], [0.2, 1.5] * 50, [0.0, 1.0, 2.0]])
def test_a_mean_without_skewness_has_students_interval(values: list[float]) -> None:
    plain, skewed = mean_interval(values), mean_interval(values, skewed=True)
    assert (skewed.low, skewed.high) == pytest.approx((max(0.0, plain.low), plain.high))


def test_the_interval_of_a_calibration_error_holds_it_as_often_as_it_says() -> None:
    random, bins = np.random.default_rng(0), np.arange(10)
    sure = 0.5 + bins / 20
    for right, error in ((sure, 0.0), (sure - 0.1, 0.1)):
        held = []
        for _ in range(200):
            bin_n = random.integers(10, size=200)
            found = binned_error(bin_n, sure[bin_n], random.random(200) < right[bin_n])
            held.append(found.low <= error + 1e-9 and found.high >= error)
        assert 0.92 <= np.mean(held) <= 1


@pytest.mark.parametrize("confidence", [1.0, 0.9999])
def test_sure_answers_that_are_all_right_leave_a_doubt_of_calibration(confidence) -> None:
    found = error_interval([20], [20], [20 * confidence])
    assert found.value == pytest.approx(1 - confidence)
    assert found.low == 0
    assert found.high == pytest.approx(1 - share_interval(20, 20).low, abs=0.02)


@given(st.integers(1, 60), st.integers(0, 1000), st.integers(0, 1000))
def test_the_mean_gap_of_binomial_draws_is_that_of_all_outcomes(n: int, sure: float, true: float) -> None:
    sure, true = sure / 1000, true / 1000
    mean, variance = calibration._gap_moments(np.array([float(n)]), np.array([n * sure]))(np.array([true]))
    gaps, chances = np.abs(np.arange(n + 1) - n * sure), binom(n, true).pmf(np.arange(n + 1))
    assert mean[0] == pytest.approx(chances @ gaps, abs=1e-9)
    assert variance[0] == pytest.approx(chances @ gaps**2 - (chances @ gaps) ** 2, abs=1e-7)


@given(st.integers(1, 40), st.integers(2, 5), st.integers(0, 99))
def test_every_interval_holds_its_figure(n_rows: int, n_classes: int, seed: int) -> None:
    scores = score(*some_rows(n_rows, n_classes, seed))
    for name in FIGURES:
        figure: Interval = scores.figures[name]
        assert figure.low <= figure.value <= figure.high, name


def test_answers_have_the_intervals_of_their_probabilities() -> None:
    labels, probabilities, names = some_rows(150, 3)
    whole = score(labels, probabilities, names)
    answers = score_answers(labels, probabilities.argmax(1), 3)
    for name, one in answers.items():
        of_all = whole.figures[name]
        assert (one.value, one.low, one.high) == pytest.approx((of_all.value, of_all.low, of_all.high), abs=1e-12)


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=1, max_size=5), st.floats(0.3, 3))
def test_an_end_of_a_mean_of_shares_is_as_far_as_the_likeliest_shares_of_it_say(some, scale: float) -> None:
    n_C = np.array([float(n) for n, _ in some])
    share_C = np.array([round(n * part) / n for n, part in some])
    for end in (_least_mean(share_C, n_C, scale), 1 - _least_mean(1 - share_C, n_C, scale)):
        if 1e-6 < end < 1 - 1e-6:  # the likeliest shares of this mean, by a general optimiser
            likeliest = minimize(
                lambda p_C: -float((n_C * (share_C * np.log(p_C) + (1 - share_C) * np.log(1 - p_C))).sum()),
                np.full(len(n_C), end),
                bounds=[(1e-9, 1 - 1e-9)] * len(n_C),
                constraints={"type": "eq", "fun": lambda p_C, end=end: float(p_C.mean()) - end},
                options={"ftol": 1e-12, "maxiter": 500},
            )
            assume(likeliest.success)  # it gives up now and then, far from the best
            likeliest_C = likeliest.x
            shrunk_C = (n_C * likeliest_C + likeliest_C.mean()) / (n_C + 1)
            spread = np.sqrt(scale * (shrunk_C * (1 - shrunk_C) / n_C).sum()) / len(n_C)
            assert abs(share_C.mean() - end) / spread == pytest.approx(1.96, abs=0.03)


def test_equal_shares_have_the_interval_of_all_their_rows() -> None:
    for right, n in ((7, 10), (10, 10), (1, 40)):
        found, whole = (
            shares_interval(np.full(at, right / n), np.full(at, float(of))) for at, of in ((5, n), (1, 5 * n))
        )
        wilson = share_interval(5 * right, 5 * n)
        assert (found.low, found.high) == pytest.approx((whole.low, whole.high)) == (wilson.low, wilson.high)


@pytest.mark.parametrize(
    ("n_classes", "n_rows"),
    [(20, 200), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((77, 770), (300, 450)))],
)
def test_macro_f1_of_many_classes_of_few_rows_is_held_as_often_as_it_says(n_classes: int, n_rows: int) -> None:
    random, held = np.random.default_rng(0), []
    for _ in range(150):
        labels = random.integers(n_classes, size=n_rows)
        strays = (labels + random.integers(1, n_classes, size=n_rows)) % n_classes
        answers = np.where(random.random(n_rows) < 0.7, labels, strays)
        found = score_answers(labels, answers, n_classes)["macro_f1"]
        held.append(found.low <= 0.7 <= found.high)
    assert 0.9 <= np.mean(held) <= 0.99


def test_a_class_without_answers_has_any_precision() -> None:
    found = score_answers([0] * 50 + [1] * 50, [0] * 100, 2)["macro_precision"]
    alone = score_answers([0] * 50 + [1] * 50, [0] * 100, 2)["accuracy"]  # of class 0, of which all answers are
    assert (found.value, found.low, found.high) == pytest.approx((0.25, alone.low / 2, (alone.high + 1) / 2))


@given(st.integers(1, 60), st.integers(2, 5), st.integers(0, 999))
def test_a_change_is_the_mirror_of_the_change_back(n_rows: int, n_classes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    labels, before, after = random.integers(n_classes, size=(3, n_rows))
    (there,), (back,) = (change_of_answers(labels, one, [other], n_classes) for one, other in
                         ((before, after), (after, before)))  # fmt: skip
    for name, one in there.items():
        assert -1 <= one.low <= one.value <= one.high <= 1
        assert (back[name].value, back[name].low, back[name].high) == pytest.approx((-one.value, -one.high, -one.low))


def test_a_change_of_answers_is_a_paired_bootstrap() -> None:
    labels, probabilities, _ = some_rows(800, 4)
    before = probabilities.argmax(1)
    after = np.where(np.random.default_rng(1).random(800) < 0.1, 0, before)
    (ours,) = change_of_answers(labels, before, [after], 4)
    random = np.random.default_rng(2)

    def figures(rows: np.ndarray) -> np.ndarray:
        found = []
        for one in (before, after):
            table = np.bincount(labels[rows] * 4 + one[rows], minlength=16).reshape(4, 4)
            right, given, had = table.diagonal(), table.sum(0), table.sum(1)
            shares = (2 * right / (given + had), right / given, right / had)
            found.append([*(of.mean() for of in shares), right.sum() / len(rows)])
        return np.array(found[1]) - found[0]

    whole = figures(np.arange(800))
    drawn = np.array([figures(random.integers(800, size=800)) for _ in range(2000)])
    for at, name in enumerate(("macro_f1", "macro_precision", "macro_recall", "accuracy")):
        assert ours[name].value == pytest.approx(whole[at])
        half = 1.96 * drawn[:, at].std()
        ends = whole[at] - half, whole[at] + half
        assert (ours[name].low, ours[name].high) == pytest.approx(ends, abs=0.12 * half)
    apart = score_answers(labels, before, 4)["accuracy"]
    assert ours["accuracy"].high - ours["accuracy"].low < apart.high - apart.low  # pairing is what makes it narrow


@pytest.mark.parametrize("truth", [(0.9, 0.05, 0.05), (0.6, 0.1, 0.3)])
def test_the_interval_of_a_change_of_accuracy_holds_it_as_often_as_it_says(truth: tuple[float, float, float]) -> None:
    n, held = 12, 0.0  # every outcome, with its chance
    chances = multinomial(n, [*truth, 1 - sum(truth)])
    for both, lost in product(range(n + 1), repeat=2):
        for won in range(n + 1 - both - lost):
            chance = chances.pmf([both, lost, won, n - both - lost - won])
            if chance > 1e-5:
                before, after = (np.repeat([0, *right, 1], [both, lost, won, n - both - lost - won]) for right in
                                 ((0, 1), (1, 0)))  # fmt: skip
                (change,) = change_of_answers(np.zeros(n, dtype=int), before, [after], 2)
                held += chance * (change["accuracy"].low <= truth[2] - truth[1] <= change["accuracy"].high)
    assert 0.93 <= held < 0.999


def test_equal_answers_are_not_known_to_be_equally_good() -> None:
    labels, probabilities, _ = some_rows(80, 3)
    answers = probabilities.argmax(1)
    for change in change_of_answers(labels, answers, [answers, answers], 3):
        one = change["accuracy"]
        assert one.value == change["macro_f1"].value == 0
        assert (
            one.high == pytest.approx(-one.low) == pytest.approx(1.96 / 80, rel=0.1)
        )  # as of one row that one alone has right
        assert change["macro_f1"].low < 0 < change["macro_f1"].high
    assert change_of_answers(labels, answers, [], 3) == []
    (five,) = change_of_answers([0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [[0, 0, 0, 0, 1]], 2)
    assert five["accuracy"].high == pytest.approx(1 - share_interval(5, 5).low)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, size=10)
    interval, peer = mean_interval(values), ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.value, interval.high) == pytest.approx((peer.low, values.mean(), peer.high))
    assert mean_interval([4.0]) == mean_interval([4.0, 4.0], skewed=True) == Interval(4.0, 4.0, 4.0)


def test_json_is_plain_and_whole() -> None:
    scores = score(*some_rows(50, 3))
    read = json.loads(json.dumps(scores.as_json(), allow_nan=False))
    assert set(read["accuracy"]) == {"value", "low", "high"}
    assert read["n_rows"] == sum(map(sum, read["confusion"])) == sum(one["n_rows"] for one in read["reliability"])


def test_no_rows_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="there are no rows to judge"):
        score([], np.empty((0, 2)), ["a", "b"])


@pytest.mark.parametrize(("n_rows", "n_classes"), [(25_000, 2), (3_080, 77)])
def test_all_intervals_take_a_moment(n_rows: int, n_classes: int) -> None:
    rows = some_rows(n_rows, n_classes)
    started = time.process_time()
    score(*rows)
    assert time.process_time() - started < 10  # 0.3 s on an idle machine


def test_thousands_of_classes_need_no_matrix_of_them() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(5000, size=3000)
    answers = np.where(random.random(3000) < 0.5, labels, random.integers(5000, size=3000))
    tracemalloc.start()
    found = score_answers(labels.tolist(), answers.tolist(), 5000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["macro_f1"].value == pytest.approx(metrics.f1_score(labels, answers, average="macro"))
    assert peak < 50e6


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(2, 6), st.integers(0, 999))
def test_the_calibration_error_is_torchmetrics(n_rows: int, n_classes: int, seed: int) -> None:
    labels, probabilities, names = some_rows(n_rows, n_classes, seed)
    expected = multiclass_calibration_error(torch.tensor(probabilities), torch.tensor(labels), n_classes, n_bins=15)
    assert score(labels, probabilities, names).figures["calibration_error"].value == pytest.approx(
        float(expected), abs=1e-6
    )


def test_the_calibration_error_is_the_weighted_gap_of_the_bins() -> None:
    random = np.random.default_rng(0)
    labels, confidence = random.integers(2, size=500), random.uniform(0.5, 1.0, 500)
    scores = score(labels, np.stack([confidence, 1 - confidence], 1), ["a", "b"])
    bins = scores.reliability
    assert sum(one.n_rows for one in bins) == 500
    gap = sum(one.n_rows * abs(one.confidence - one.accuracy) for one in bins) / 500
    assert gap == pytest.approx(scores.figures["calibration_error"].value)
    assert all(one.low <= one.confidence <= one.high for one in bins)


def test_certainty_falls_into_the_last_bin() -> None:
    (only,) = reliability(np.ones(4), np.array([True, True, True, False]))
    assert (only.high, only.n_rows, only.accuracy) == (1.0, 4, 0.75)
