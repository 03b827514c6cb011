"""The cache gives back what was put in, is keyed by all it depends on, and survives damage and company."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
import torch
from safetensors import SafetensorError

from manyheads.config import DataConfig, RunConfig, TokenizerConfig
from manyheads.config.facts import replace_settings
from manyheads.data import token_cache
from manyheads.data.disk_cache import cache_folder
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.rows import Rows
from manyheads.data.sources import read_splits
from manyheads.data.token_cache import cached_tokenizer, cached_tokens


def rows_of(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(texts, pairs, [i % 2 for i in range(len(texts))], "test", range(1, len(texts) + 1))


ROWS = rows_of([f"check number {i} at the station" for i in range(50)])
PAIRS = rows_of(ROWS.texts, ROWS.texts[::-1])


@pytest.fixture
def tokenizer(tmp_path):
    return cached_tokenizer(ROWS, TokenizerConfig(vocab_size=300), tmp_path / "tokenizers")


def assert_same(one, other) -> None:
    assert torch.equal(one.ids_N, other.ids_N)
    assert torch.equal(one.offsets, other.offsets)
    assert torch.equal(one.labels, other.labels)
    assert one.n_truncated == other.n_truncated
    assert (one.segments_N is None) == (other.segments_N is None)
    assert one.segments_N is None or torch.equal(one.segments_N, other.segments_N)


@pytest.mark.parametrize("rows", [ROWS, PAIRS], ids=["texts", "pairs"])
def test_the_second_start_encodes_nothing(tmp_path, tokenizer, monkeypatch, rows):
    first = cached_tokens(rows, tokenizer, 9, tmp_path)
    monkeypatch.setattr(token_cache, "encode", None)
    again = cached_tokens(rows, tokenizer, 9, tmp_path)
    assert first.n_truncated == again.n_truncated == (0 if rows.pairs is None else 50)
    assert_same(first, again)


def test_the_tokenizer_is_trained_once(tmp_path, monkeypatch):
    first = cached_tokenizer(ROWS, TokenizerConfig(), tmp_path)
    monkeypatch.setattr(token_cache, "train_tokenizer", None)
    assert cached_tokenizer(ROWS, TokenizerConfig(), tmp_path).to_str() == first.to_str()


def test_labels_are_those_of_the_rows_not_of_the_cache(tmp_path, tokenizer):
    cached_tokens(ROWS, tokenizer, 64, tmp_path)
    relabelled = Rows(ROWS.texts, None, [1] * 50, "test", ROWS.numbers)
    assert cached_tokens(relabelled, tokenizer, 64, tmp_path).labels.tolist() == [1] * 50


def test_everything_the_tokens_depend_on_is_in_the_key(tmp_path, tokenizer):
    other = cached_tokenizer(ROWS, TokenizerConfig(vocab_size=100), tmp_path / "tokenizers")
    cached_tokens(ROWS, tokenizer, 64, tmp_path)
    cached_tokens(ROWS, tokenizer, 65, tmp_path)
    cached_tokens(ROWS, other, 64, tmp_path)
    cached_tokens(PAIRS, tokenizer, 64, tmp_path)
    cached_tokens(rows_of(ROWS.texts[1:]), tokenizer, 64, tmp_path)
    cached_tokens(rows_of(["ab", "c"]), tokenizer, 64, tmp_path)
    cached_tokens(rows_of(["a", "bc"]), tokenizer, 64, tmp_path)
    assert len(list(tmp_path.glob("tokens-*.safetensors"))) == 7
    for config in (TokenizerConfig(), TokenizerConfig(lowercase=False), TokenizerConfig(vocab_size=99)):
        cached_tokenizer(ROWS, config, tmp_path / "three")
    assert len(list((tmp_path / "three").iterdir())) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_damaged_tokens_are_made_again(tmp_path, tokenizer, damage, warned):
    first = cached_tokens(ROWS, tokenizer, 64, tmp_path)
    (path,) = tmp_path.glob("tokens-*.safetensors")
    raw = bytearray(path.read_bytes())
    raw[-9] ^= 1
    path.write_bytes({"cut": bytes(raw[:-40]), "flipped": bytes(raw), "empty": b"", "other": b"{}" * 40}[damage])
    assert_same(cached_tokens(ROWS, tokenizer, 64, tmp_path), first)
    assert warned == [f"{path} is damaged and is made again"]
    warned.clear()
    assert_same(cached_tokens(ROWS, tokenizer, 64, tmp_path), first)
    assert warned == []


@pytest.mark.parametrize("change", ["offsets", "place", "ids"])
def test_tokens_that_cannot_be_of_these_rows_are_made_again(tmp_path, tokenizer, change, monkeypatch, warned):
    first = cached_tokens(ROWS, tokenizer, 64, tmp_path)
    (path,) = tmp_path.glob("tokens-*.safetensors")
    wrong = cached_tokens(ROWS, tokenizer, 64, tmp_path)
    if change != "place":
        (wrong.offsets if change == "offsets" else wrong.ids_N)[3] += 10**9
        token_cache._put(path, lambda part: token_cache._write(part, iter([wrong])))
    else:  # one byte of more than is checked at once
        monkeypatch.setattr(token_cache, "AT_ONCE", 64)
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
    assert_same(cached_tokens(ROWS, tokenizer, 64, tmp_path), first)
    assert warned == [f"{path} is damaged and is made again"]


def test_many_tokens_are_checked_whole_once_for_each_change(tmp_path, tokenizer, monkeypatch, warned):
    monkeypatch.setattr(token_cache, "AT_ONCE", 64)
    first = cached_tokens(ROWS, tokenizer, 64, tmp_path)
    (path,) = tmp_path.glob("tokens-*.safetensors")
    summed = []
    monkeypatch.setattr(
        token_cache, "_checksum", lambda *given, real=token_cache._checksum: summed.append(1) or real(*given)
    )
    for changed in (False, False, True):
        if changed:
            os.utime(path, ns=(0, 1))
        assert_same(cached_tokens(ROWS, tokenizer, 64, tmp_path), first)
        assert len(summed) == 1 + changed
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert_same(cached_tokens(ROWS, tokenizer, 64, tmp_path), first)
    assert warned == [f"{path} is damaged and is made again"]


def test_tokens_of_texts_whose_marks_are_read_are_others(tmp_path):
    rows = rows_of(["a [SEP] b"])
    tokenizer = cached_tokenizer(ROWS, TokenizerConfig(), tmp_path)
    assert cached_tokens(rows, tokenizer, 64, tmp_path).ids_N.tolist().count(3) == 1
    tokenizer.encode_special_tokens = False
    assert cached_tokens(rows, tokenizer, 64, tmp_path).ids_N.tolist().count(3) == 2
    again = cached_tokenizer(ROWS, TokenizerConfig(), tmp_path)
    assert cached_tokens(rows, again, 64, tmp_path).ids_N.tolist().count(3) == 1


def test_a_damaged_tokenizer_is_made_again(tmp_path):
    first = cached_tokenizer(ROWS, TokenizerConfig(), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text()[:100])
    assert cached_tokenizer(ROWS, TokenizerConfig(), tmp_path).to_str() == first.to_str()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path, tokenizer, warned):
    (tmp_path / "file").write_text("")
    assert len(cached_tokens(ROWS, tokenizer, 64, tmp_path / "file")) == 50
    assert len(cached_tokens(ROWS.pick([3]), tokenizer, 64, tmp_path / "file")) == 1
    assert len(warned) == 1, "once for a process"
    assert warned[0].endswith("choose another folder by data.cache")


def test_the_library_failing_to_write_costs_time_alone(tmp_path, tokenizer, warned, monkeypatch):
    def full(*args, **kwargs) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(token_cache.safetensors, "safe_open", full)
    assert len(cached_tokens(ROWS, tokenizer, 64, tmp_path / "new")) == 50
    assert warned == [
        f"the cache {tmp_path / 'new'} cannot be written (No space left on device): choose another folder by data.cache"
    ]
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.slow  # of two that start together: below
def test_two_runs_that_start_together_agree(tmp_path):
    code = f"""
import torch
from manyheads.config import DataConfig, RunConfig
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.sources import read_splits
run = RunConfig(data=DataConfig(cache={str(tmp_path)!r}, rows=800))
tokenizer, tokens = prepare_tokens(read_splits(run.data, 0), run)
print(tokenizer.get_vocab_size(), [int((one.ids_N * torch.arange(len(one.ids_N))).sum()) for one in tokens.values()])
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [run.communicate() for run in runs]
    assert said[0][0] == said[1][0] != ""
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["tokenizer", "tokens", "tokens", "tokens"]


def test_a_run_gets_its_tokenizer_and_tokens(tmp_path):
    run = RunConfig(data=DataConfig(cache=str(tmp_path), rows=200, max_length=12))
    splits = read_splits(run.data, 0)
    tokenizer, tokens = prepare_tokens(splits, run)
    assert list(tokens) == ["train", "validation", "test"]
    assert [len(one) for one in tokens.values()] == [200, 200, 200]
    assert splits.notes[-1].startswith("test: ")
    assert splits.notes[-1].endswith("are cut to data.max_length=12 tokens")
    tokenizer.save(str(tmp_path / "mine.json"))
    run = replace_settings(run, {"tokenizer.path": str(tmp_path / "mine.json")})
    loaded, again = prepare_tokens(splits, run)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert_same(again["train"], tokens["train"])


def test_the_cache_folder_is_typed_or_from_the_environment_or_at_home(monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", "/somewhere")
    assert cache_folder(DataConfig(cache="~/mine")) == Path.home() / "mine"
    assert cache_folder(DataConfig()) == Path("/somewhere")
    monkeypatch.delenv("MANYHEADS_CACHE")
    assert cache_folder(DataConfig()) == Path.home() / ".cache" / "manyheads"


COMPANY = """
import sys, time
from pathlib import Path
from manyheads.config import TokenizerConfig
from manyheads.data import token_cache
from test_cache import ROWS
Path(sys.argv[1], "ready-" + sys.argv[2]).touch()
while not Path(sys.argv[1], "go").exists():
    time.sleep(0.01)
folder, work = Path(sys.argv[1], "cache"), {name: getattr(token_cache, name) for name in ("train_tokenizer", "encode")}
for name in work:
    def counted(*words, name=name, **settings):
        with Path(sys.argv[1], name).open("a") as file:
            file.write(sys.argv[2])
        time.sleep(1)
        return work[name](*words, **settings)
    setattr(token_cache, name, counted)
tokenizer = token_cache.cached_tokenizer(ROWS, TokenizerConfig(), folder)
print(token_cache.cached_tokens(ROWS, tokenizer, 64, folder).ids_N.sum().item())
"""


@pytest.mark.slow
def test_of_two_that_start_together_one_does_the_work(ranks_run):
    folder = ranks_run.folder
    words = [sys.executable, "-c", COMPANY, str(folder)]
    two = [ranks_run.start([*words, str(rank)], PYTHONPATH=str(Path(__file__).parent)) for rank in range(2)]
    for job in two:
        job.until(lambda: len(list(folder.glob("ready-*"))) == 2)
    (folder / "go").touch()
    assert [job.code() for job in two] == [0, 0], two[0].err + two[1].err
    assert two[0].out == two[1].out != ""
    assert len((folder / "train_tokenizer").read_text()) == 1
    assert len((folder / "encode").read_text()) == 1
    assert {path.suffix for path in (folder / "cache").iterdir()} == {".json", ".safetensors"}, "no lock is left"


HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def held(ranks_run, tokenizer, tmp_path):
    """Somebody who holds the lock of the tokens of ROWS, and the file they will be in."""
    cached_tokens(ROWS, tokenizer, 64, tmp_path / "held")
    (file,) = (tmp_path / "held").iterdir()
    file.unlink()
    job = ranks_run.start([sys.executable, "-S", "-c", HOLDER, str(file.with_suffix(".lock"))])
    job.until(lambda: job.out)
    return job, file


def test_who_is_killed_leaves_no_lock_behind(held, tokenizer):
    job, file = held
    Timer(0.5, job.process.kill).start()
    assert len(cached_tokens(ROWS, tokenizer, 64, file.parent, patience=60.0)) == 50
    assert job.code() == -9, "it was waited for"
    assert file.is_file()


def test_patience_ends(held, tokenizer):
    job, file = held
    assert len(cached_tokens(ROWS, tokenizer, 64, file.parent, patience=0.2)) == 50
    assert job.process.poll() is None
    assert file.is_file()


def test_a_disk_without_locks_is_a_cache_all_the_same(tmp_path, tokenizer, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = cached_tokens(ROWS, tokenizer, 64, tmp_path / "new")
    monkeypatch.setattr(token_cache, "encode", None)
    assert_same(cached_tokens(ROWS, tokenizer, 64, tmp_path / "new"), first)


def test_a_broken_tokenizer_is_named_as_it_was_typed(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text('{"a": 1}')
    splits = read_splits(DataConfig(), 0)
    run = RunConfig(init_from="their/weights", tokenizer=TokenizerConfig(path=str(path)))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        prepare_tokens(splits, run)
    assert str(caught.value) == (
        f"init_from=their/weights comes with a tokenizer, {path}, that is not a tokenizer.json: "
        "begin with other weights"
    )
    with pytest.raises(ValueError, match=rf"^tokenizer\.path={path} is not a tokenizer\.json: name one"):
        prepare_tokens(splits, replace(run, init_from=""))


SHARE = """
import sys, time
from pathlib import Path
from manyheads.data import token_cache
from manyheads.data.tokenizer import load_tokenizer
from tests.core.data.test_cache import ROWS
folder, name, made = Path(sys.argv[1]), sys.argv[2], []
token_cache.PART, encode = 5, token_cache.encode
Path(folder, "ready-" + name).touch()
while not Path(folder, "go").exists():
    time.sleep(0.01)
def slow(*words):
    made.append(len(words[1]))
    print(len(made), flush=True)
    time.sleep(600 if name == "victim" and len(made) == 2 else 0.1)
    return encode(*words)
token_cache.encode = slow
tokens = token_cache.cached_tokens(ROWS, load_tokenizer(folder / "tokenizer.json"), 64, folder / "cache")
print("sum", tokens.ids_N.sum().item(), "of", len(tokens))
"""


def wait_for(condition, seconds=120.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


def test_processes_share_the_parts_and_take_over_those_of_one_that_is_killed(python, tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    said = {name: tmp_path / name for name in ("victim", "other")}
    processes = {}
    for name, file in said.items():
        with file.open("w") as out, file.open("a") as err, open(os.devnull) as nothing:
            words = ("-c", SHARE, tmp_path, name)
            processes[name] = python.start(*words, stdin=nothing, stdout=out, stderr=err)
    wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    (tmp_path / "go").touch()
    wait_for(lambda: "2" in said["victim"].read_text())
    wait_for(lambda: len(list(tmp_path.glob("cache/*/*.safetensors"))) == 9)
    os.kill(processes["victim"].pid, signal.SIGKILL)
    codes = [process.wait(60) for process in processes.values()]
    assert codes == [-signal.SIGKILL, 0], said["other"].read_text()
    expected = cached_tokens(ROWS, tokenizer, 64, tmp_path / "alone")
    *counts, last = said["other"].read_text().splitlines()
    assert last == f"sum {expected.ids_N.sum().item()} of 50"
    assert len(counts) == 9, "nine parts of ten: one was made by the other before it was killed"
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".safetensors"], "no part is left"
