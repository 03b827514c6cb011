"""What is learned of texts that are answered by texts does not depend on the number of processes."""

import pytest

from manyheads.config import BatchConfig
from tests.core.ranks import test_same_batch
from tests.core.ranks.test_same_batch import N_RANKS, assert_same

CASES = {"texts answered by texts": (BatchConfig(tokens=90, rows=4, accumulate=3), "seq2seq", "sgd")}


def main(folder: str) -> None:
    test_same_batch.main(folder, CASES)


@pytest.mark.slow  # tests/core/ranks/test_same_batch.py does so for classes
@pytest.mark.parametrize("n_ranks", N_RANKS)
def test_losses_and_weights_do_not_depend_on_the_number_of_processes(n_ranks, folders, start):
    assert_same(__file__, CASES, n_ranks, folders, start)
