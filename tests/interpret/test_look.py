"""The verb `look`: pages for texts, and one sentence for every mistake, before anything is written."""

import json
import shutil
import subprocess
import sys

import pytest

from manyheads.cli import main as cli
from manyheads.config import Accelerator, EncoderKind, InferenceHardware, LookConfig, ModelConfig, PairKind, Pooling
from manyheads.interpret.look import choose, look


def config(run, **typed):
    return LookConfig(run=str(run), hardware=InferenceHardware(accelerator=Accelerator.cpu), **typed)


@pytest.fixture
def run(model_folder, tmp_path):
    """A run folder of its own, in which pages may be written."""
    shutil.copytree(model_folder, tmp_path / "run")
    return tmp_path / "run"


def test_a_text_from_the_command_line(run, capsys):
    assert cli.main(["look", f"run={run}", "text=good, <b>bad</b>; so-so"]) == 0
    assert (
        cli.main(["look", f"run={run / 'model'}", "text=good", f"output={run / 'look'}", "layers=1,2", "heads=2"]) == 0
    )
    pages = sorted(path.name for path in (run / "look").iterdir())
    assert pages == ["1.html", "2.html"]
    assert "good, &lt;b&gt;bad&lt;/b&gt;; so-so" in (run / "look" / "1.html").read_text()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{run}/look/1.html: ")
    assert said[1].startswith("  largest |map · V - fast path|: layer 1 ")
    assert ", layer 2 " in said[1]


def test_a_file_of_texts_and_of_pairs(run, pair_folder, tmp_path):
    (tmp_path / "in.txt").write_text("good\n\nbad film\n")
    assert len(look(config(run, input=str(tmp_path / "in.txt")))) == 3
    assert len(look(config(run, input=str(tmp_path / "in.txt"), rows=2))) == 2
    (tmp_path / "in.tsv").write_text("a very good film!\tbad\nso\tfilm\n")
    written = look(config(pair_folder, input=str(tmp_path / "in.tsv"), output=str(tmp_path / "pairs")))
    assert [path.name for path in written] == ["1.html", "2.html"]
    (tmp_path / "in.csv").write_text('text,label\n"good, bad",x\n')
    (page,) = look(config(run, input=str(tmp_path / "in.csv")))
    assert "good, bad" in page.read_text()


def test_a_split_is_studied(run, monkeypatch):
    seen = []
    monkeypatch.setattr("manyheads.interpret.look.study", seen.append)
    look(config(run, split="test", rows=3, seed=1))
    assert [(one.split, one.rows) for one in seen] == [("test", 3)]


def test_mistakes_are_one_sentence_each_and_write_nothing(run, tmp_path):
    there = tmp_path / "in.txt"
    there.write_text("good\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "broken.txt").write_bytes(b"good\nb\xe9d\n")
    for typed, words in (
        ({}, r'there is nothing to look at: give text="\.\.\.", input=FILE or split=validation'),
        ({"text": "good", "input": str(there)}, r"text and input are given together: give one of "),
        ({"text": "good", "split": "test"}, r"text and split are given together"),
        ({"split": "train"}, r"split=train is not a split to look at: choose validation or test"),
        ({"text": "good", "rows": 3}, r"rows=3 does nothing with text, which is one: remove it"),
        (
            {"split": "test", "attribution": True},
            r"attribution=true does nothing with split=test, of which all heads are measured",
        ),
        ({"split": "test", "heads": "1"}, r"heads=1 does nothing with split=test"),
        ({"text": "good", "layers": "9"}, r"layers=9 is out of range: the model has layers 1 to 2"),
        ({"text": "good", "heads": "3"}, r"heads=3 is out of range: the model has heads 1 to 2"),
        ({"text": "good", "output": str(there)}, r"output=\S+in\.txt is a file: name a folder"),
        ({"text": "b\udce9d"}, "text is not UTF-8"),
        ({"input": str(tmp_path / "none.txt")}, r"input=\S+none.txt does not exist: name a file of one text a line"),
        ({"input": str(tmp_path / "empty.txt")}, r"input=\S+empty.txt holds no texts: give one a line"),
        ({"input": str(tmp_path / "broken.txt")}, r"broken.txt, line 2 is not UTF-8"),
    ):
        with pytest.raises(ValueError, match=words):
            look(config(run, **typed))
        assert not (run / "look").exists(), typed
    with pytest.raises(ValueError, match=r"run=\S+ is not a run folder"):
        look(config(tmp_path, text="good"))
    with pytest.raises(ValueError, match=r"run=\S+model is a model without its run folder, which would hold"):
        look(config(run / "model", text="good"))


def test_kinds_of_files_that_are_not_read_are_refused(run, tmp_path):
    (tmp_path / "in.json").write_bytes(b"[]")
    with pytest.raises(ValueError, match=r"is JSON as a whole, but look reads rows: write one object a line, as"):
        look(config(run, input=str(tmp_path / "in.json")))


def test_texts_and_pairs_are_told_apart(run, pair_folder):
    with pytest.raises(ValueError, match=r"^text has 0 tabs, but the model takes pairs of texts"):
        look(config(pair_folder, text="good"))


def test_at_the_door(capsys):
    for words, sentence in (
        (["text=good"], "run is empty: name the run to look into, for example run=outputs/my-run"),
        (["run=x", "text="], "text= is empty: write text=VALUE, or remove it"),
        (["run=nowhere", "text=good"], "is not a run folder: there is no such folder"),
        (["run=x", "layer=1"], "layer=1 is not a setting: did you mean layers?"),
    ):
        assert cli.main(["look", *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1


def test_recurrent_models_are_refused(ship_model, tmp_path):
    shape = ModelConfig(encoder=EncoderKind.lstm, pooling=Pooling.attention, n_layers=1, d_model=16)
    ship_model(tmp_path / "model", shape=shape)
    with pytest.raises(ValueError, match=r"^look shows heads of self-attention, .* model\.encoder=lstm"):
        look(config(tmp_path, text="good"))
    assert not (tmp_path / "look").exists()


def test_models_that_answer_by_texts_are_refused(run):
    path = run / "model" / "config.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"task": "seq2seq", "n_classes": 0}))
    with pytest.raises(ValueError, match=r"has task=seq2seq, .* name a run with task=classify$"):
        look(config(run, text="good"))


PROGRAM = """
import sys
from manyheads.cli import main as cli
code = cli.main(["look", "run=" + sys.argv[1], "text=good", "layers=7"])
print(code, *sorted({"torch", "numpy", "lightning", "matplotlib"} & set(sys.modules)))
"""


def test_mistakes_are_found_before_torch(model_folder):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(model_folder)], capture_output=True, text=True)
    assert done.stdout.split() == ["2"], done.stderr


FOUR_HEADS = ModelConfig(n_layers=2, n_heads=4)


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [("", [0, 1, 2, 3]), ("2", [1]), ("4,1", [0, 3]), ("2-3", [1, 2]), (" 1 , 3-4 ", [0, 2, 3]), ("[1,2]", [0, 1])],
)
def test_numbers(typed, chosen):
    assert choose(FOUR_HEADS, "", typed).heads == chosen
    assert choose(FOUR_HEADS, "2", typed).layers == [1]


def test_cross_layers_count_on():
    shape = ModelConfig(n_layers=2, pair=PairKind.cross)
    assert choose(shape, "", "").layers == list(range(2 + shape.n_cross_layers))


@pytest.mark.parametrize(
    ("layers", "heads", "sentence"),
    [
        ("9", "", "layers=9 is out of range: the model has layers 1 to 2"),
        ("0", "", "layers=0 is out of range: the model has layers 1 to 2"),
        ("2-1", "", "layers=2-1 is out of range: the model has layers 1 to 2"),
        ("", "5", "heads=5 is out of range: the model has heads 1 to 4"),
        ("", "2-9", "heads=2-9 is out of range: the model has heads 1 to 4"),
        ("", "all", "heads=all is not understood: count from 1, such as heads=2 or heads=1,3-4"),
        ("1,", "", "layers=1, is not understood: count from 1, such as layers=2 or layers=1,3-4"),
    ],
)
def test_mistakes(layers, heads, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        choose(FOUR_HEADS, layers, heads)
    assert str(caught.value) == sentence
    with pytest.raises(ValueError, match=r"^layers=2 is out of range: the model has layer 1 alone$"):
        choose(ModelConfig(n_layers=1), "2", "")
