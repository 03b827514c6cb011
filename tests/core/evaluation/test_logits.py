"""Arrays that are kept: memory, full disks, and what a later process takes over."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from manyheads.errors import UserError
from manyheads.evaluation import logits as module
from manyheads.evaluation.logits import join_chunks, kept_logits, new_array

OF = {"the input": "a", "the model": "b"}
SHAPE = (6, 2, 3)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)


def interrupted(part: Path, of: dict[str, str] | None = OF, error: type[BaseException] = KeyboardInterrupt) -> None:
    def answer() -> None:
        with kept_logits(part, SHAPE, of) as kept:
            kept.add(np.ones((4, 2, 3), dtype=np.float32))
            raise error

    with pytest.raises(error):
        answer()


def test_a_large_array_is_a_file_that_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(new_array((4, 5)), np.memmap)
    monkeypatch.setattr(module, "IN_MEMORY", 10)
    array = new_array((4, 5), np.int32)
    assert isinstance(array, np.memmap)
    assert (array.shape, array.dtype, array.sum()) == ((4, 5), np.int32, 0)
    ids, marks = np.arange(9, dtype=np.int32), np.random.default_rng(0).random((9, 3)) < 0.5
    found = join_chunks(9, ((ids[at : at + 4], marks[at : at + 4]) for at in range(0, 9, 4)))
    np.testing.assert_array_equal(found[0], ids)
    np.testing.assert_array_equal(found[1], marks)


def test_what_was_interrupted_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = tmp_path / "part"
    interrupted(part)
    with kept_logits(part, SHAPE, OF) as kept:
        assert "resuming after 4 of 6 rows" in capsys.readouterr().err
        assert kept.n_done == 4
        kept.add(np.full((2, 2, 3), 2, dtype=np.float32))
        assert kept.array[:, 0, 0].tolist() == [1, 1, 1, 1, 2, 2]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("shape", "of"), [((6, 2, 4), OF), ((5, 2, 3), OF), (SHAPE, OF | {"the model": "c"}), (SHAPE, None)]
)
def test_what_follows_from_anything_else_begins_anew(tmp_path: Path, shape, of) -> None:
    interrupted(tmp_path / "part")
    with kept_logits(tmp_path / "part", shape, of) as kept:
        assert kept.n_done == 0
        assert not (tmp_path / "part.json").exists()


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"of": 1, "shape": [6, 2, 3], "rows": 4}', "\x00"])
def test_a_record_that_is_broken_begins_anew(tmp_path: Path, record: str) -> None:
    interrupted(tmp_path / "part")
    (tmp_path / "part.json").write_text(record)
    with kept_logits(tmp_path / "part", SHAPE, OF) as kept:
        assert kept.n_done == 0


@pytest.mark.parametrize(("of", "error"), [(OF, UserError), (None, KeyboardInterrupt)])
def test_a_mistake_and_what_cannot_be_resumed_leave_nothing(tmp_path: Path, of, error) -> None:
    interrupted(tmp_path / "part", of, error)
    assert not [*tmp_path.iterdir()]


def test_blocks_are_written_where_they_cannot_be_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: all of the file is there, and what an earlier process wrote stays."""
    monkeypatch.delattr(os, "posix_fallocate")
    monkeypatch.setattr(module, "ZEROS", 50)
    interrupted(tmp_path / "part")
    assert (tmp_path / "part").stat().st_size == 6 * 2 * 3 * 4
    with kept_logits(tmp_path / "part", SHAPE, OF) as kept:
        assert kept.array[:, 0, 0].tolist() == [1, 1, 1, 1, 0, 0]
    monkeypatch.setattr(module, "IN_MEMORY", 10)
    assert new_array((4, 5)).sum() == 0


def test_a_full_disk_is_a_sentence_before_anything_is_answered(tmp_path: Path, monkeypatch) -> None:
    def full(*of_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    sentence = r"has no room for the 144 bytes .*name another folder by output"
    with pytest.raises(ValueError, match=sentence), kept_logits(tmp_path / "part", SHAPE, OF):
        pass
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr(module, "IN_MEMORY", 10)
    with pytest.raises(ValueError, match="TMPDIR"):
        new_array((4, 5))


def test_two_processes_do_not_write_the_same(tmp_path: Path) -> None:
    first, second = (kept_logits(tmp_path / "part", SHAPE, OF) for _ in range(2))
    with first, pytest.raises(ValueError, match="another process"), second:
        pass
