"""The hub without a network: one sentence at once. The hub's answers, played by a stand-in."""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import datasets
import pytest

from manyheads.config import DataConfig
from manyheads.data.formats import hub
from manyheads.data.sources import read_split, read_splits

FEATURES = datasets.Features({"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
OFFLINE = (
    "data.hub=no/such needs the network, which is off or cannot reach the Hugging Face hub: "
    "connect, or read a local copy by data.path=<file or folder>"
)


def split(n_rows: int, mark: str) -> datasets.Dataset:
    cells = {"sentence": [f"{mark}{i}" for i in range(n_rows)], "label": [i % 2 for i in range(n_rows)]}
    return datasets.Dataset.from_dict(cells, features=FEATURES)


def config(**settings) -> DataConfig:
    return DataConfig(source="hub", hub="no/such", text="sentence", **settings)


@pytest.fixture
def asked(monkeypatch) -> list:
    """What `load_dataset` is asked for; it answers with train, validation and test."""
    calls = []

    def load_dataset(*args, **kwargs) -> datasets.DatasetDict:
        calls.append((args, kwargs))
        return datasets.DatasetDict({"train": split(40, "a"), "validation": split(6, "b"), "test": split(8, "c")})

    monkeypatch.setattr(hub, "can_connect", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_hub_splits_are_read_by_name(asked):
    splits = read_splits(config(hub_config="big", revision="v2"), 0)
    assert asked == [(("no/such", "big"), {"data_dir": None, "revision": "v2"})]
    assert (len(splits.train), len(splits.validation), len(splits.test or [])) == (40, 6, 8)
    assert (splits.labels, splits.train.source, splits.train.numbers[0]) == (["neg", "pos"], "no/such/train", 1)
    assert list(read_split(config(), "test", ["pos", "neg"]).labels) == [1, 0] * 4


@pytest.mark.parametrize("reader", ["hub", "saved", "files"])
def test_splits_that_are_not_read_are_named_whoever_reads_them(reader, asked, monkeypatch, tmp_path):
    names = ["train", "validation_matched", "validation_mismatched", "test_matched"]
    loaded = datasets.DatasetDict({name: split(40, name) for name in names})
    data = DataConfig(source="files", path=str(tmp_path / "mine"), text="sentence")
    if reader == "hub":
        data = config()
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: loaded)
    elif reader == "saved":
        loaded.save_to_disk(data.path)
    else:
        (tmp_path / "mine").mkdir()
        for name in names:
            loaded[name].to_csv(tmp_path / "mine" / f"{name}.csv")
    end = ".csv" if reader == "files" else ""
    names = ["validation_matched", "validation_mismatched", "test_matched"]
    names = sorted(names) if reader == "files" else names
    assert read_splits(data, 0).notes[0] == (
        f"not read, as their names are those of no split: {', '.join(f'{name}{end}' for name in names)}; name them by "
        "data.validation_split=validation_matched data.test_split=test_matched"
    )
    typed = replace(data, validation_split="validation_matched", test_split="test_matched")
    named = read_splits(typed, 0)
    assert [len(part) for part in named.by_name().values()] == [40, 40, 40]
    assert named.notes[0] == f"not read, as its name is that of no split: validation_mismatched{end}"


def test_one_of_two_splits_of_one_role_is_named(asked, monkeypatch):
    loaded = {name: split(40, name) for name in ("train", "validation", "dev", "unsupervised")}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.DatasetDict(loaded))
    notes = [note for note in read_splits(config(), 0).notes if note.startswith("not read")]
    assert notes == [
        "not read, as validation is the validation split: dev",
        "not read, as its name is that of no split: unsupervised",
    ]


def test_a_config_of_a_converted_revision_is_a_folder(asked):
    read_splits(config(hub_config="smsa", revision="refs/convert/parquet"), 0)
    assert asked == [(("no/such", None), {"data_dir": "smsa", "revision": "refs/convert/parquet"})]


@pytest.mark.parametrize("typed", [{"validation_split": ""}, {}])
def test_a_split_can_be_judged_that_another_would_validate_on(typed, asked):
    splits = read_splits(config(test_split="validation", **typed), 0)
    assert splits.test is not None
    assert splits.test.texts[0] == "b0"
    assert (len(splits.train), len(splits.validation)) == (36, 4)


def test_a_missing_split_is_named(asked):
    with pytest.raises(
        ValueError, match=r"^data\.test_split=hidden is not a split of no/such: its splits are train, valid"
    ):
        read_splits(config(test_split="hidden"), 0)


REFUSALS = [
    datasets.exceptions.DatasetNotFoundError("Dataset 'no/such' doesn't exist.\nSee ..."),
    ValueError("BuilderConfig 'x' not found. Available: ['y']"),
    RuntimeError("Dataset scripts are no longer supported, but found such.py"),
]


@pytest.mark.parametrize("problem", REFUSALS)
def test_what_the_hub_refuses_is_one_sentence(monkeypatch, problem):
    def refuse(*args, **kwargs) -> None:
        raise problem

    monkeypatch.setattr(hub, "can_connect", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        read_splits(config(hub_config="x"), 0)
    why = str(problem).splitlines()[0].rstrip(".")
    assert str(caught.value) == (
        f"data.hub=no/such cannot be loaded ({why}): check data.hub, data.hub_config=x and data.revision=, "
        "or read a local copy by data.path=<file or folder>"
    )


def test_without_a_network_it_says_so_at_once(tmp_path):
    code = (
        "from manyheads.config import DataConfig; from manyheads.data.sources import read_splits; import sys\n"
        "try: read_splits(DataConfig(source='hub', hub='no/such'), 0)\n"
        "except ValueError as problem: print(problem, 'datasets' in sys.modules)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.strip() == f"{OFFLINE} False"


@pytest.mark.parametrize("trouble", ["refused", "silent"])
def test_an_unreachable_hub_is_noticed_within_seconds(monkeypatch, tmp_path, trouble):
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(hub, "SECONDS_TO_CONNECT", 0.2)
    asking, over = threading.Event(), threading.Event()

    def silent(*args, **kwargs):
        asking.set()
        over.wait(60)
        asking.clear()
        raise TimeoutError

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        if trouble == "silent":
            monkeypatch.setattr(socket, "create_connection", silent)
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
            read_splits(config(), 0)
        assert asking.is_set() == (trouble == "silent")  # it did not wait for the answer
        over.set()
    assert str(caught.value) == OFFLINE


def test_a_copy_datasets_keeps_is_read_without_a_network(monkeypatch, tmp_path, asked):
    monkeypatch.setattr(hub, "can_connect", lambda: False)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    (tmp_path / "no___such").mkdir()
    assert hub._has_copy("no/such")
    assert os.environ["HF_HUB_OFFLINE"] == "0"  # asking changes nothing
    assert len(read_splits(config(), 0).train) == 40
    assert os.environ["HF_HUB_OFFLINE"] == "1"
