"""Several processes answer texts by texts as one does."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.inference.test_shares import ROWS, check_answers, check_files, check_rows, n_ranks, shared  # noqa: F401

pytestmark = pytest.mark.slow  # tests/core/inference/test_shares.py has it of classes


@pytest.fixture(scope="module")
def done(n_ranks: int, python: Any, tmp_path_factory: pytest.TempPathFactory, text_folder: Path) -> Path:  # noqa: F811
    return shared(
        python, Path(__file__).with_name("sharing.py"), tmp_path_factory.mktemp("sharing"), n_ranks, text_folder
    )


def test_every_row_is_answered_once(done: Path, n_ranks: int) -> None:  # noqa: F811
    check_rows(done, n_ranks, {"texts": 2})


def test_answers_are_those_of_one_process(done: Path, n_ranks: int) -> None:  # noqa: F811
    assert [len(one[0]) for one in check_answers(done, n_ranks, "texts")] == list(ROWS)


def test_files_are_those_of_one_process(done: Path, n_ranks: int) -> None:  # noqa: F811
    """Answers, figures, pictures, pages."""
    names = check_files(done, n_ranks, {"few.txt", "rows.csv"})
    assert {"texts.jsonl", "texts/metrics.json", "texts/report.html"} <= names
