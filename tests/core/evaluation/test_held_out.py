"""Which rows a run learnt from, against the texts of its files."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import DataConfig, RunConfig
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows
from manyheads.evaluation.held_out import learnt_texts
from manyheads.runs.config_file import save_run

LABELS = ["bad", "good"]


def write(path: Path, kind: str, n: int = 40) -> set[str]:
    texts = [f"{kind} film {at}" for at in range(n)]
    lines = [f"{text},{LABELS[at % 2]}" for at, text in enumerate(texts)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return {*texts}


def save(home: Path, file: Path, init_from: str = "", **data: Any) -> dict[str, Rows]:
    """Save a run in the folder `home` that learnt from `file`, as training would; returns the rows of its splits."""
    run = RunConfig(data=DataConfig(source="files", path=str(file), **data), init_from=init_from)
    home.mkdir(exist_ok=True)
    save_run(run, home / "config.yaml")
    splits = read_rows(run, with_test=True)
    (home / "summary.json").write_text(json.dumps({"digests": splits.digests()}))
    return splits.by_name()


@pytest.fixture
def learnt(tmp_path: Path):
    """Saves a run that learnt from films.csv."""
    return partial(save, tmp_path, tmp_path / "films.csv")


def test_no_row_of_its_own_test_and_validation_splits(tmp_path, learnt):
    write(tmp_path / "films.csv", "old")
    splits = learnt()
    assert [learnt_texts(tmp_path / "model", splits[name], LABELS)[0] for name in ("test", "validation")] == [0, 0]
    assert learnt_texts(tmp_path / "model", splits["train"], LABELS)[0] == len(splits["train"])


def test_all_validation_rows_where_they_are_those_of_training(tmp_path, learnt):
    write(tmp_path / "films.csv", "old")
    splits = learnt(validation_split="train")
    assert learnt_texts(tmp_path / "model", splits["validation"], LABELS)[0] == len(splits["train"]) > 0


def test_none_of_a_file_that_has_been_replaced_since(tmp_path, learnt):
    old = write(tmp_path / "films.csv", "old")
    learnt()
    new = write(tmp_path / "films.csv", "new")
    assert not old & new
    rows = read_rows(RunConfig(data=DataConfig(source="files", path=str(tmp_path / "films.csv"))), with_test=True).train
    n, sentence = learnt_texts(tmp_path / "model", rows, LABELS, who="a")
    assert n == 0
    assert sentence.startswith("films.csv has changed since a was trained")


def test_nothing_is_said_of_rows_that_are_all_new(tmp_path, learnt):
    write(tmp_path / "films.csv", "old")
    learnt()
    write(tmp_path / "new.csv", "new")
    rows = read_rows(RunConfig(data=DataConfig(source="files", path=str(tmp_path / "new.csv"))), with_test=True).train
    assert learnt_texts(tmp_path / "model", rows, LABELS) == (0, "")


def test_runs_that_a_run_began_from_learnt_from_rows_too(tmp_path):
    write(tmp_path / "films.csv", "old")
    write(tmp_path / "others.csv", "new")
    rows = save(tmp_path / "one", tmp_path / "films.csv")["train"]
    (tmp_path / "one" / "model").mkdir()
    save(tmp_path / "two", tmp_path / "others.csv", init_from=str(tmp_path / "one"))
    save(tmp_path / "three", tmp_path / "others.csv", init_from=str(tmp_path / "two" / "model"))
    n, sentence = learnt_texts(tmp_path / "three" / "model", rows, LABELS)
    assert n == len(rows)
    assert f"also in what {tmp_path / 'one'}, from which {tmp_path / 'two'}, from which the model began," in sentence
    held_out = read_rows(RunConfig(data=DataConfig(source="files", path=str(tmp_path / "films.csv"))), with_test=True)
    assert learnt_texts(tmp_path / "three" / "model", held_out.test, LABELS) == (0, "")


def test_runs_that_name_each_other_are_read_once(tmp_path):
    write(tmp_path / "films.csv", "old")
    write(tmp_path / "new.csv", "new")
    save(tmp_path / "one", tmp_path / "films.csv", init_from=str(tmp_path / "two"))
    save(tmp_path / "two", tmp_path / "films.csv", init_from=str(tmp_path / "one"))
    rows = read_rows(RunConfig(data=DataConfig(source="files", path=str(tmp_path / "new.csv"))), with_test=True).train
    assert learnt_texts(tmp_path / "two" / "model", rows, LABELS) == (0, "")
