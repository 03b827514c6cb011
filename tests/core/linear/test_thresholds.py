"""Thresholds of labels against scikit-learn's F1 and a search over all thresholds there are."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from manyheads.linear import thresholds
from manyheads.linear.thresholds import LARGEST, N_STEPS, STEP, add_counts, best_thresholds, zero_counts


def some_rows(n_rows: int = 400, n_labels: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that tell of the first labels more than of the last, which fewer rows have; in steps of the grid."""
    torch.manual_seed(seed)
    shares_C = torch.linspace(0.5, 0.05, n_labels)
    marks_nC = (torch.rand(n_rows, n_labels) < shares_C).long()
    logits_nC = torch.randn(n_rows, n_labels) + torch.linspace(3, 0.5, n_labels) * (marks_nC - 0.5) + shares_C.logit()
    return ((logits_nC / STEP).round() + 0.5) * STEP, marks_nC


def counted(logits_nC: torch.Tensor, marks_nC: torch.Tensor) -> thresholds.ThresholdCounts:
    counts = zero_counts(marks_nC.shape[1])
    for part in range(0, len(marks_nC), 150):
        add_counts(counts, logits_nC[part : part + 150], marks_nC[part : part + 150])
    return counts


def given(logits_nC: torch.Tensor, thresholds_C: torch.Tensor) -> np.ndarray:
    return (logits_nC.double().sigmoid() >= thresholds_C).numpy()


def test_figures_at_the_thresholds_are_those_of_scikit_learn():
    logits_nC, marks_nC = some_rows()
    found = best_thresholds(counted(logits_nC, marks_nC))
    answers = given(logits_nC, found.thresholds_C)
    assert float(found.micro_f1) == pytest.approx(f1_score(marks_nC, answers, average="micro"), abs=1e-6)
    assert float(found.macro_f1) == pytest.approx(f1_score(marks_nC, answers, average="macro"), abs=1e-6)
    assert found.support_C.tolist() == marks_nC.sum(0).tolist()
    assert found.given_C.tolist() == answers.sum(0).tolist()


def test_no_threshold_of_one_label_is_better_than_the_one_it_has(monkeypatch):
    monkeypatch.setattr(thresholds, "NEIGHBOURS", 0)
    logits_nC, marks_nC = some_rows()
    found = best_thresholds(counted(logits_nC, marks_nC))

    def worth(thresholds_C: torch.Tensor) -> float:
        answers = given(logits_nC, thresholds_C)
        return sum(f1_score(marks_nC, answers, average=kind, zero_division=0) for kind in ("micro", "macro"))

    reached = worth(found.thresholds_C)
    for label in range(4):
        for step in range(0, N_STEPS, 20):
            other_C = found.thresholds_C.clone()
            other_C[label] = torch.sigmoid(torch.tensor(step * STEP - LARGEST, dtype=torch.float64))
            assert worth(other_C) <= reached + 1e-9


def test_a_label_that_cannot_be_told_is_not_given_to_everybody():
    logits_nC, marks_nC = some_rows()
    marks_nC = torch.cat([marks_nC, (torch.rand(400, 6) < 0.04).long()], 1)
    logits_nC = torch.cat([logits_nC, torch.randn(400, 6) - 3], 1)  # which say nothing of them
    answers = given(logits_nC, best_thresholds(counted(logits_nC, marks_nC)).thresholds_C)
    assert answers[:, 4:].mean() < 0.2
    thresholds_C = best_thresholds(counted(logits_nC[:, :4], marks_nC[:, :4])).thresholds_C
    alone = f1_score(marks_nC[:, :4], given(logits_nC[:, :4], thresholds_C), average="micro")
    assert f1_score(marks_nC, answers, average="micro") > alone - 0.1


def test_a_label_that_no_row_has_is_given_from_one_half_on_and_costs_nothing():
    logits_nC, marks_nC = some_rows()
    before = best_thresholds(counted(logits_nC, marks_nC))
    after = best_thresholds(
        counted(torch.cat([logits_nC, logits_nC[:, :1] - 20], 1), torch.nn.functional.pad(marks_nC, (0, 1)))
    )
    assert float(after.thresholds_C[4]) == 0.5
    assert torch.equal(after.thresholds_C[:4], before.thresholds_C)
    assert float(after.macro_f1) == pytest.approx(float(before.macro_f1))


def test_logits_beyond_the_grid_and_those_that_are_no_numbers_count_at_its_ends():
    counts = zero_counts(1)
    add_counts(
        counts,
        torch.tensor([[-1e9], [float("nan")], [float("-inf")], [float("inf")]]),
        torch.tensor([[0], [0], [0], [1]]),
    )
    assert counts.all_CT[0].sum() == 4
    assert counts.own_CT[0, -1] == 1
    assert float(best_thresholds(counts).micro_f1) == 1


def test_of_thresholds_that_are_as_good_the_middle_is_taken():
    logits_nC, marks_nC = torch.tensor([[-4.0], [-4.0], [3.0], [3.0]]), torch.tensor([[0], [0], [1], [1]])
    (threshold,) = best_thresholds(counted(logits_nC, marks_nC)).thresholds_C.logit().tolist()
    assert threshold == pytest.approx(-0.5, abs=2 * STEP)


def test_no_rows_have_no_figures():
    found = best_thresholds(zero_counts(3))
    assert found.thresholds_C.tolist() == [0.5] * 3
    assert float(found.micro_f1) == float(found.macro_f1) == 0


@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_what_is_claimed_of_a_threshold_is_what_it_gives_beyond_the_grid_too(spread):
    """Every text has the first label, and logits lie below the lowest step; thresholds are those that are written."""
    torch.manual_seed(0)
    marks_nC = (torch.rand(300, 5) < torch.tensor([0.97, 0.5, 0.3, 0.1, 0.02])).long()
    logits_nC = spread * (torch.randn(300, 5) + marks_nC - 0.5)
    claimed = best_thresholds(counted(logits_nC, marks_nC))
    written = thresholds.thresholds_of(logits_nC, marks_nC)
    answers = given(logits_nC, torch.tensor(written, dtype=torch.float64))
    assert claimed.given_C.tolist() == answers.sum(0).tolist()
    assert claimed.right_C.tolist() == (answers & marks_nC.bool().numpy()).sum(0).tolist()
    assert float(claimed.micro_f1) == pytest.approx(f1_score(marks_nC, answers, average="micro"), abs=1e-6)
    assert written == [round(one, 6) for one in written]
