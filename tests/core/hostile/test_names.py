"""Names from settings and data cannot lead a file out of its folder, nor break off in a traceback."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manyheads.cli.compose import compose
from manyheads.cli.verbs import VERBS
from manyheads.config import DataConfig
from manyheads.config.data import data_name
from manyheads.runs.folder import refuse_links, within

NAMES = ["../../x", "/x", "..", ".", "~", "~/x", "a\0b", "x" * 300, "a/b", "a\\b", "\n", "-", "", " ", "\u202e",
         "né/标签", "\ud800", "C:\\x", "\u2024\u2024/x", "\uff0e\uff0e\uff0fx"]  # fmt: skip
ANY = st.sampled_from(NAMES) | st.text(max_size=400) | st.text(alphabet="./~\\\0-a", max_size=40)


@given(ANY)
@example("." * 300)
def test_the_name_of_an_evaluation_is_one_short_name(name: str) -> None:
    for data in (
        DataConfig(source="files", path=f"/{name}"),
        DataConfig(source="files", path=f"/no/{name}.csv"),
    ):
        if "\0" in data.path or any(len(part.encode(errors="replace")) > 255 for part in Path(data.path).parts):
            continue  # refused by the settings, or by the disk
        folder = f"{data_name(data)}-validation"
        assert Path(folder).name == folder
        assert folder not in (".", "..")
        assert len(folder.encode(errors="replace")) <= 255
        assert Path("/run/evaluate", folder).resolve().parent == Path("/run/evaluate")


@pytest.mark.parametrize("name", ["output", "data.path", "data.cache", "tokenizer.path", "data.text", "init_from"])
def test_a_nul_is_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^{name}=.*holds a NUL, which no name and no file may: remove it$"):
        compose("train", [f"{name}=a\0b"])


TAKEN = ("output=~nobody-at-all/x data.cache=rows.csv/x", "data.cache=~nobody-at-all/x")  # as a name; or in vain


@pytest.mark.parametrize("word", [
    *(f"{key}={value}" for key in ("output", "data.cache", "data.path", "tokenizer.path")
      for value in ("x" * 300, "rows.csv/x", "~nobody-at-all/x") if not any(f"{key}={value}" in one for one in TAKEN)),
    *TAKEN,
])  # fmt: skip
def test_a_path_no_disk_takes_is_one_sentence(word, victim, finished, tmp_path):
    shutil.copy(finished / "rows.csv", tmp_path)
    words = ["train", "data.path=rows.csv", "debug=fast", "hardware=cpu", "trainer.max_steps=1", "linear=false"]
    answer = victim.attempt([*words, *word.split()], tmp_path)
    assert answer["code"] == (0 if word in TAKEN else 2), answer["err"]
    assert "Traceback" not in answer["err"]
    victim.harmless(answer)


def test_names_in_the_data_make_no_files(victim, finished, tmp_path):
    """Classes, columns and splits may be called anything; a run, its evaluation and its pages have their own names."""
    names = ["../../x", "/etc/x", "a\nb\x1b[31m"]
    lines = [{"../text": f"word {n % 3} {n}", "/label": names[n % 3]} for n in range(60)]
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "..rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = ["data.path=..rows.jsonl", "data.text=../text", "data.label=/label"]
    train = ["train", *common, "output=run", "debug=fast", "hardware=cpu", "trainer.max_steps=1"]
    commands = [
        train,
        ["evaluate", "run=run", "split=validation"],
        ["evaluate", "run=run", *common],
        *([["look", "run=run", "text=../../x"], ["look", "run=run", "split=validation", "rows=3"]] * ("look" in VERBS)),
        ["predict", "run=run", "input=..rows.jsonl", "output=answers.jsonl"],
    ]
    for words in commands:
        answer = victim.attempt(words, inner)
        assert answer["code"] == 0, (words, answer["err"])
        victim.harmless(answer)
        assert "\x1b" not in answer["out"]
    assert {path.name for path in tmp_path.iterdir()} == {"inner"}
    assert {path.name for path in inner.iterdir()} == {"..rows.jsonl", "run", "cache", "answers.jsonl"}
    assert {path.name for path in (inner / "run" / "evaluate").iterdir()} == {"rows-validation", "rows-all"}
    for path in inner.rglob("*"):
        assert not {*path.name} & set("\n\x1b\\")


def test_links_are_found_wherever_they_are(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    refuse_links(tmp_path)
    assert within(tmp_path, "a", "new") == tmp_path / "a" / "new"
    for target in ("/etc", "file", "nowhere", "../.."):
        link = tmp_path / "a" / "b" / "link"
        link.symlink_to(target)
        with pytest.raises(ValueError, match=r"a/b/link is a link, which may lead out of the folder"):
            refuse_links(tmp_path)
        with pytest.raises(ValueError, match=r"a/b/link is a link"):
            within(tmp_path, "a", "b", "link", "file")
        link.unlink()


@pytest.mark.parametrize(("words", "name"), [
    (["evaluate", "run=run"], "evaluate"), (["evaluate", "run=run"], "evaluate/rows-test"),
    pytest.param(["look", "run=run", "text=it purrs"], "look", marks=pytest.mark.verb("look")),
    pytest.param(["look", "run=run", "split=validation"], "look/validation", marks=pytest.mark.verb("look")),
])  # fmt: skip
def test_what_is_found_of_a_run_stays_in_it(words, name, victim, finished, tmp_path):
    inner, outside = tmp_path / "inner", tmp_path / "outside"
    shutil.copytree(finished, inner)
    outside.mkdir()
    shutil.rmtree(inner / "run" / "evaluate")
    (inner / "run" / name).parent.mkdir(exist_ok=True)
    (inner / "run" / name).symlink_to(outside)
    victim.refused(words, inner, f"{inner / 'run' / name} is a link")
    assert list(outside.iterdir()) == []
