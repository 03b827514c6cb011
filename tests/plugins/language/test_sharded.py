"""Weights of models whose answers are texts, and of recurrent ones, held in parts by two processes."""

from pathlib import Path

import pytest

from tests.core.ranks.test_sharded import assert_same_run, job_forms

FORMS = {
    "texts for texts": {"task": "seq2seq"},
    "recurrent": {"model": {"encoder": "gru"}},
    "recurrent texts for texts": {"task": "seq2seq", "model": {"encoder": "lstm"}},
}


def main(job: str, folder: str) -> None:
    job_forms(Path(folder), FORMS)


@pytest.mark.slow
def test_every_form_of_training_is_that_of_the_whole(two):
    folder = two("forms")
    for name in FORMS:
        assert_same_run(folder / name / "fsdp", folder / name / "ddp")
