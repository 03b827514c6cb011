"""Lines of fastText are read, those of TREC refused with what to do."""

import gzip
import shutil
import subprocess

import pytest

from manyheads.cli.main import main
from manyheads.config import DataConfig
from manyheads.data.formats.text_lines import TREC
from manyheads.data.opening import read_file
from manyheads.data.sources import read_splits


def test_lines_of_fasttext_have_labels(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "__label__sauce __label__cheese How much, at 5 __label__ ?\n\n__label__food-safety\tWhy\nno label\n"
    )
    table = read_file(path)
    assert table.column("labels") == [["sauce", "cheese"], ["food-safety"], [""]]
    assert table.column("text") == ["How much, at 5 __label__ ?", "Why", "no label"]
    assert (table.broken, list(table.numbers)) == ({2: "has no __label__ at its beginning or end"}, [1, 3, 4])


def test_labels_of_fasttext_may_be_at_the_end_of_a_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "\ufeffHow much, at 5 __label__ ?  __label__sauce __label__cheese \n__label__a\tWhy  so? __label__b\nno\n"
    )
    table = read_file(path)
    assert table.column("text") == ["How much, at 5 __label__ ?", "Why  so?", "no"]
    assert table.column("labels") == [["sauce", "cheese"], ["a", "b"], [""]]
    assert table.broken == {2: "has no __label__ at its beginning or end"}
    path.rename(tmp_path / "a.train")
    with pytest.raises(ValueError, match=r"a\.train is in fastText's format, which is read from a \.txt"):
        read_splits(DataConfig(path=str(tmp_path / "a.train")), 0)


@pytest.mark.parametrize("line", ["__label__{} {}", "{1} __label__{0}"])
def test_one_label_a_line_is_a_class(tmp_path, line):
    path = tmp_path / "a.txt"
    path.write_text("".join(line.format("ab"[at % 2], f"text {at}") + "\n" for at in range(40)))
    splits = read_splits(DataConfig(path=str(path)), 0)
    assert (splits.labels, splits.multi, len(splits.train)) == (["a", "b"], False, 32)


def test_lines_of_trec_are_refused_with_a_remedy_that_works(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_bytes(b"DESC:manner How did it ?\nENTY:cremat What na\xefve: film is it ?\n".replace(b"\xef", b"i"))
    with pytest.raises(ValueError, match=r"is in TREC's format") as caught:
        read_file(path)
    assert str(caught.value) == f"{path} {TREC}"
    if shutil.which("iconv") and shutil.which("sed"):
        command = TREC.split(" as by ")[1].replace("FILE", "questions.txt")
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
        table = read_file(tmp_path / "NEW.tsv")
        assert table.column("label") == ["DESC", "ENTY"]
        assert table.column("text") == ["How did it ?", "What naive: film is it ?"]


@pytest.mark.parametrize("content", [b"one\rtwo\r", b"\xef\xbb\xbfone\r\rtwo"])
def test_lines_of_an_old_mac_are_refused_with_a_remedy_that_works(tmp_path, content, model_folder, capsys):
    path = tmp_path / "old.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"old\.txt ends its lines with carriage returns: convert") as caught:
        read_file(path)
    assert main(["predict", f"run={model_folder}", f"input={path}", "hardware=cpu"]) == 2
    said = capsys.readouterr().err
    assert said == f"{caught.value}\n"
    command = str(caught.value).partition(" by tr ")[2].replace("FILE", "old.txt")
    subprocess.run(["sh", "-c", f"tr {command}"], cwd=tmp_path, check=True)
    (tmp_path / "NEW").rename(tmp_path / "new.txt")
    assert read_file(tmp_path / "new.txt").column("text")[-1] == "two"
    for end in (b"\r\n", b"\n", b"\r"):
        path.write_bytes(b"one" + end)
        assert read_file(path).column("text") == ["one"]


def test_the_first_line_of_a_packed_file_may_be_long(tmp_path, model_folder, capsys):
    """Longer than what gzip shows at once. What is no gzip is said in a sentence."""
    path = tmp_path / "rows.txt.gz"
    path.write_bytes(gzip.compress(b"good film\r" * 2000 + b"\nbad film\n"))
    assert main(["predict", f"run={model_folder}", f"input={path}", "hardware=cpu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    path.write_bytes(b"no gzip")
    assert main(["predict", f"run={model_folder}", f"input={path}", "hardware=cpu"]) == 2
    assert capsys.readouterr().err.startswith(f"{path} cannot be decompressed (")
