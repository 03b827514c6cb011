"""Datasets that `datasets` streams: the rows are those of the stored ones, tokens are kept, texts are not."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.config import DataConfig, OnBadRow, RunConfig
from manyheads.data import column, token_cache
from manyheads.data.formats import dataset
from manyheads.data.formats import hub as hub_format
from manyheads.data.hashes import count_shared
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.rows import Rows, comparable_hashes
from manyheads.data.sources import read_splits
from manyheads.data.tokens import encode
from manyheads.evaluation.further_rows import not_judged
from manyheads.linear.fit import fit_linear
from manyheads.training_run import train

FEATURES = datasets.Features(
    {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes", "so"])}
)


def rows_of(n_rows: int, mark: str = "") -> datasets.Dataset:
    """Some texts repeat, in another class."""
    texts = [f"{mark}text {at % 70 if at % 9 == 0 else at} of {at % 7}" for at in range(n_rows)]
    return datasets.Dataset.from_dict({"text": texts, "label": [at % 3 for at in range(n_rows)]}, features=FEATURES)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Writes splits of the dataset `mine`, which `datasets` takes from this folder as it would from the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub_format, "can_connect", lambda: True)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()

    def write(**splits: datasets.Dataset) -> DataConfig:
        for name, split in splits.items():
            for shard in range(3):
                part = split.shard(3, shard, contiguous=True)
                part.to_parquet(tmp_path / "mine" / f"{name}-0000{shard}-of-00003.parquet")
        return DataConfig(source="hub", hub="mine", streaming=True, on_bad_row=OnBadRow.drop)

    (tmp_path / "mine").mkdir()
    return write


def told(data: DataConfig) -> Any:
    splits = read_splits(data, 3)
    found = {name: (list(rows.texts), list(rows.labels), list(rows.numbers)) for name, rows in splits.by_name().items()}
    return found, splits.labels, [note.replace("mine/", "").replace("saved/", "") for note in splits.notes]


def stored(tmp_path: Path) -> DataConfig:
    loaded = datasets.load_dataset(
        "parquet", data_files={"train": [str(one) for one in sorted(Path("mine").iterdir())]}
    )
    loaded.save_to_disk(str(tmp_path / "saved"))
    return DataConfig(path=str(tmp_path / "saved"), on_bad_row=OnBadRow.drop)


@pytest.mark.parametrize("at_once", [7, 1000])
def test_few_rows_are_those_of_the_stored_dataset(at_once, hub, tmp_path, monkeypatch):
    whole = rows_of(200).to_dict()
    whole["text"][50] = "  "
    data = hub(train=datasets.Dataset.from_dict(whole, features=FEATURES))
    monkeypatch.setattr(dataset, "AT_ONCE", at_once)
    expected = told(stored(tmp_path))
    found = told(data)
    assert found == expected
    assert told(DataConfig(path=str(tmp_path / "saved"), on_bad_row=OnBadRow.drop, streaming=True)) == expected


@pytest.fixture
def sampled(hub, monkeypatch):
    """300 rows of which the texts of 100 are kept, in small blocks."""
    data = hub(train=rows_of(300), test=rows_of(150, "t"))
    for module, name, value in ((dataset, "SAMPLE", 100), (dataset, "AT_ONCE", 16), (column, "KEPT", 2000)):
        monkeypatch.setattr(module, name, value)
    return data


def test_of_more_rows_a_sample_is_kept_and_judged_on(sampled, monkeypatch):
    splits = read_splits(sampled, 3)
    train_, judged = splits.train, [splits.validation, splits.test]
    assert 90 <= len(train_.readable()) + len(splits.validation) <= 100
    assert len(train_) + len(splits.validation) == 300
    assert [list(rows.texts) == list(rows.readable().texts) for rows in judged if rows] == [True, True]
    assert not {*train_.texts} & {*splits.validation.texts}, "equal texts are on one side"
    every = rows_of(300)
    assert [*train_.texts] == [every["text"][number - 1] for number in train_.numbers]
    assert [*train_.labels] == [every["label"][number - 1] for number in train_.numbers]
    notes = "\n".join(splits.notes)
    assert "mine/train: 300 rows are streamed; the texts of " in notes
    assert "of 150 rows of mine/test are judged on, those whose texts are kept (data.streaming=true)" in notes
    digest, linear = train_.digest(splits.labels), fit_linear(train_, 3, None, splits.validation)
    assert linear is not None
    monkeypatch.setattr(dataset.Stream, "blocks", None)
    again = read_splits(sampled, 3)
    assert (again.notes, again.train.digest(splits.labels)) == (splits.notes, digest), "a second start streams nothing"


def test_further_texts_that_are_judged_are_found_in_a_stream(sampled):
    splits = read_splits(sampled, 3)
    train_, judged = splits.train, [*splits.validation.texts, *splits.test.texts]
    more = Rows([*judged, "new"], None, [], "more.csv", range(1, len(judged) + 2))
    assert not_judged(RunConfig(data=sampled), splits, more).tolist() == [len(judged)]
    learnt = Rows([*train_.texts], None, [], "more.csv", range(1, len(train_) + 1))
    assert count_shared(*comparable_hashes(learnt, train_)) == (len(train_), 0, 0)
    assert count_shared(*comparable_hashes(train_, learnt)) == (len(train_), 0, 0)


def test_tokens_are_made_of_all_rows_in_one_pass(sampled, monkeypatch):
    passes, blocks = [], dataset.Stream.blocks
    monkeypatch.setattr(dataset.Stream, "blocks", lambda self, at: passes.append(at) or blocks(self, at))
    run, splits = RunConfig(data=sampled), read_splits(sampled, 3)
    monkeypatch.setattr(token_cache, "PART", 40)
    tokenizer, tokens = prepare_tokens(splits, run)
    assert passes == [0, 0, 0], "of train and of test to read them, of train once more for its tokens"
    texts = [rows_of(300)["text"][number - 1] for number in splits.train.numbers]
    expected = encode(tokenizer, texts, None, None, 512)
    assert torch.equal(tokens["train"].ids_N, expected.ids_N)
    assert np.array_equal(tokens["train"].labels, splits.train.labels)


def test_a_run_of_a_stream_says_what_it_learns_from(sampled, tmp_path, capsys):
    words = ["data=hub", "data.hub=mine", "data.streaming=true", "data.text=text", "model=tiny", "trainer.max_steps=2"]
    assert train(compose("train", [*words, f"output={tmp_path / 'run'}", "dry=true"])) is None
    assert "300 rows are streamed" in capsys.readouterr().out
    summary = train(compose("train", [*words, f"output={tmp_path / 'run'}", "hardware=cpu"]))
    assert summary is not None
    assert (tmp_path / "run" / "report.html").is_file()


def test_texts_of_a_stream_that_are_numbers_are_told_as_those_of_a_table(tmp_path):
    datasets.Dataset.from_dict({"text": [*range(9)], "label": [*"aab"] * 3}).save_to_disk(str(tmp_path / "saved"))
    for streaming in (False, True):
        with pytest.raises(ValueError, match="row 1: the text is not a string but a number"):
            read_splits(DataConfig(path=str(tmp_path / "saved"), streaming=streaming, cache=str(tmp_path)), 0)


def test_a_stream_that_ends_too_early_is_one_sentence(tmp_path):
    def rows():
        yield {"text": "a", "label": "x"}
        raise ConnectionError("the peer is gone")

    stream = dataset.Stream(datasets.IterableDataset.from_generator(rows))
    with pytest.raises(ValueError, match=r"ends too early \(.*the peer is gone.*\): start again") as caught:
        list(stream.blocks(0))
    assert "\n" not in str(caught.value)


def test_a_stream_goes_forwards_in_one_pass(monkeypatch):
    monkeypatch.setattr(dataset, "AT_ONCE", 4)
    read = []

    def rows():
        for at in range(30):
            read.append(at)
            yield {"text": str(at)}

    stream = dataset.Stream(datasets.IterableDataset.from_generator(rows))
    assert [stream.cells(at, "text") for at in (1, 5, 7)] == [
        ["4", "5", "6", "7"], ["20", "21", "22", "23"], ["28", "29"],
    ]  # fmt: skip
    assert read.count(29) == 1
    assert read.count(0) <= 2, "of which one may be a look at the columns"
    assert stream.cells(0, "text") == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {},
            "data.streaming=true streams datasets of the Hub and of save_to_disk: name one by data.hub= or data.path=",
        ),
        (
            {"source": "files", "path": "a.csv"},
            "data.streaming=true streams datasets of the Hub and of save_to_disk, but data.path=a.csv is neither: "
            "remove it, as large files are read where they are",
        ),
    ],
)
def test_what_is_no_stream_is_refused(settings, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        read_splits(DataConfig(streaming=True, **settings), 0)
    assert str(caught.value) == sentence
