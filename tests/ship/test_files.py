"""Finding a model, and replacing folders and files whole or not at all."""

from contextlib import suppress
from pathlib import Path

import pytest

from manyheads.ship.files import FILES, find_model
from manyheads.whole import replace_file, replace_folder


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("{}")
    return folder


def test_a_run_folder_and_its_model_folder_are_found(tmp_path: Path) -> None:
    model = fill(tmp_path / "run" / "model")
    assert find_model(tmp_path / "run") == find_model(model) == model


def test_what_is_no_run_folder_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^run=\S+nowhere is not a run folder: there is no such folder; name the"):
        find_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^run=\S+file is not a run folder: it is a file; name the"):
        find_model(tmp_path / "file")
    with pytest.raises(ValueError, match=r"is not a run folder: there is no model/config.json in it; name the"):
        find_model(tmp_path)
    (tmp_path / "config.yaml").write_text("seed: 0")
    with pytest.raises(ValueError, match="is not a run folder to use: its training has not written model/ yet"):
        find_model(tmp_path)
    (fill(tmp_path / "run" / "model") / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"is not a run folder: \S+model has no tokenizer.json; name the"):
        find_model(tmp_path / "run")


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "model"
    for content in ("first", "second"):
        with replace_folder(folder) as part:
            (part / "file").write_text(content)
        assert (folder / "file").read_text() == content
    assert [one.name for one in folder.parent.iterdir()] == ["model"]


def test_after_an_error_nothing_has_changed(tmp_path: Path) -> None:
    folder, file = tmp_path / "model", tmp_path / "file"
    with replace_folder(folder) as part:
        (part / "file").write_text("old")
    file.write_text("old")
    for replace, inside, target in ((replace_folder, "file", folder), (replace_file, "", file)):
        with suppress(KeyboardInterrupt), replace(target) as part:
            (part / inside).write_text("half")
            raise KeyboardInterrupt
    assert (folder / "file").read_text() == file.read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "model"]
