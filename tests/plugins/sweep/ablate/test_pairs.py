"""The exact tests against every toss counted one by one, SciPy's, and the binomial of the sign test."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, permutation_test

from manyheads.evaluation.statistics import holm
from manyheads.plugins.sweep.tables import rows_differ, runs_differ, sign_flip

FEW = st.lists(st.integers(-9, 9), min_size=1, max_size=9)


@given(FEW)
def test_as_often_as_all_tosses_counted_one_by_one(differences):
    tosses = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(differences))]
    expected = np.mean([sum_ >= abs(sum(differences)) for sum_ in tosses])
    assert sign_flip(differences) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_as_scipys_exact_permutation_test(seed):
    differences = np.random.default_rng(seed).integers(-5, 8, size=8)
    expected = permutation_test(
        (differences, np.zeros(8)), lambda x, y, axis: (x - y).sum(axis), permutation_type="samples", vectorized=True
    )
    assert sign_flip(differences) == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize(("better", "worse"), [(9, 1), (7, 3), (40, 25), (5, 5), (600, 700)])
def test_one_seed_gives_the_exact_sign_test(better, worse):
    first = np.array([[False] * better + [True] * worse + [True] * 20])
    other = np.array([[True] * better + [False] * worse + [True] * 20])
    assert rows_differ(other, first) == pytest.approx(binomtest(better, better + worse).pvalue, rel=1e-9)


def test_a_row_counts_once_however_many_seeds_answer_it():
    first = np.zeros((1, 6), dtype=bool)
    other = np.array([[True] * 6])
    assert rows_differ(other, first) == rows_differ(other.repeat(3, 0), first.repeat(3, 0)) == 2 / 2**6


def test_runs_that_all_agree_reach_the_least_p_there_is():
    assert runs_differ([0.9, 0.8, 0.7], [0.8, 0.7, 0.1]) == 2 / 2**3
    assert runs_differ([0.9, 0.8], [0.9, 0.8]) == 1.0
    assert runs_differ([0.5, 0.7], [0.7, 0.5]) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_smallest_level_at_which_the_steps_reject(p_values):
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        assert adjusted >= p
        for level in (adjusted, adjusted - 1e-9):
            rejected, left = set(), len(p_values)
            for at in sorted(range(len(p_values)), key=lambda at: p_values[at]):
                if p_values[at] * left > level and level < 1:
                    break
                rejected.add(p_values[at])
                left -= 1
            assert (p in rejected) == (level >= adjusted) or adjusted <= 1e-9
