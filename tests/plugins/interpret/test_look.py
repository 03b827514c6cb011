"""The verb `look`: pages for texts, and one sentence for every mistake, before anything is written."""

import io
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch

from manyheads.cli import main as cli
from manyheads.config import (
    Accelerator,
    InferenceHardware,
    ModelConfig,
    PairKind,
    Precision,
    PredictConfig,
)
from manyheads.data.rows import Rows
from manyheads.evaluation.answered import answer_rows
from manyheads.evaluation.evaluation import Setup
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.plugins.interpret.attribution import attribute
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.look import look
from manyheads.plugins.interpret.page import Shown, write_text_page
from manyheads.plugins.interpret.pages import heads_page
from manyheads.plugins.interpret.shown import choose_heads
from tests.conftest import CALIBRATED_TEXTS as TEXTS
from tests.conftest import LABELS


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
    assert said[1].startswith(f"{run}/look/2.html: ")
    assert len(said) == 2


def test_a_file_of_texts_and_of_pairs(run, pair_folder, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("good\n\nbad film\nso\n")
    assert len(look(config(run, input=str(tmp_path / "in.txt")))) == 3
    assert capsys.readouterr().out.startswith("1 row has no page (first: row 2: the text is empty)\n")
    assert len(look(config(run, input=str(tmp_path / "in.txt"), rows=2))) == 2
    (tmp_path / "in.tsv").write_text("a very good film!\tbad\nso\tfilm\n")
    written = look(config(pair_folder, input=str(tmp_path / "in.tsv"), output=str(tmp_path / "pairs")))
    assert [path.name for path in written] == ["1.html", "2.html"]
    (tmp_path / "in.csv").write_text('text,label\n"good, bad",x\n')
    (page,) = look(config(run, input=str(tmp_path / "in.csv")))
    assert "good, bad" in page.read_text()


def shown_in(page):
    """What a page says, and its probabilities in tenths of a percent."""
    (said,) = re.findall(r"The model says <b>(.*?)</b>", page)
    rows = re.findall(r'<th scope="row">([^<]*)</th><td class="long"><svg.*?</svg></td><td>([\d.]+)%</td>', page)
    return said, {name: float(share) for name, share in rows}


SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in ("classes", "no share")]


@pytest.mark.parametrize("calibrated", ["labels", "pairs", *SLOW], indirect=True)
def test_all_doors_give_one_answer(calibrated, tmp_path):
    """load, predict, look, the view and evaluate; the right values are made of both members by hand."""
    folder, seconds = calibrated
    model = load(folder)
    network, linear = (model.member_logits(TEXTS, seconds)[name].double() for name in ("network", "linear"))
    squash = torch.sigmoid if model.multi else lambda logits: logits.softmax(-1)
    raw = load(folder.parent / "plain").logits(TEXTS, seconds).double()
    both = 0.55 * squash(raw / 1.7) + 0.45 * squash(linear) if model.share else squash(raw)
    assert model.share == 0 or torch.allclose(network, raw, atol=1e-5)
    scale, shift = torch.tensor([0.4, 2.0, 0.7]).double(), torch.tensor([1.5, -1.0, 0.5]).double()
    of_both = raw if not model.share else both.logit() if model.multi else both.log()
    expected = squash(of_both * scale + shift)
    given = both >= torch.tensor([0.5, 0.35, 0.6]) if model.multi else expected == expected.max(1, keepdim=True).values
    assert (given.int().argmax(1) != raw.argmax(1)).any()  # it is the calibration that decides
    labels = [[LABELS[at] for at in one.nonzero().flatten()] for one in given]

    hardware = InferenceHardware(accelerator=Accelerator.cpu, precision=Precision.fp32)
    lines = [text if seconds is None else f"{text}\t{pair}" for text, pair in zip(TEXTS, seconds or TEXTS, strict=True)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    asked = {"run": str(folder), "input": str(tmp_path / "in.txt"), "hardware": hardware}
    assert predict(PredictConfig(**asked, output=str(tmp_path / "out.jsonl"))) == len(TEXTS)
    predicted = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    pages = [shown_in(page.read_text()) for page in look(LookConfig(**asked))]
    answers = model.predict(TEXTS, seconds)
    sets = [tuple(sorted(map(LABELS.index, one))) for one in labels] if model.multi else None
    rows = Rows(TEXTS, seconds, [LABELS.index(one[0]) if one else 3 for one in labels], "x.csv", range(7), sets=sets)
    judged = next(answer_rows(model, rows, Setup()).answers())
    assert judged.right_n.all()
    for at, (text, pair) in enumerate(zip(TEXTS, seconds or [None] * 7, strict=True)):
        wanted = dict(zip(LABELS, expected[at].tolist(), strict=True))
        shown = heads_page(model, text, pair, answer=answers[at], source="run", layers="1", heads="1")
        assert predicted[at]["probabilities"] == pytest.approx(wanted, abs=1e-5)
        assert sorted(predicted[at].get("labels", [predicted[at].get("label")])) == sorted(labels[at])
        assert judged.probabilities_nC[at] == pytest.approx(expected[at].numpy(), abs=1e-5)
        for name, shares in (pages[at], shown_in(shown)):
            assert name.startswith("no label") if not labels[at] else sorted(name.split(", ")) == sorted(labels[at])
            assert shares == pytest.approx({one: 100 * share for one, share in wanted.items()}, abs=0.06)


@pytest.mark.parametrize("calibrated", ["labels", "pairs", *SLOW], indirect=True)
def test_what_is_explained_is_the_class_that_is_answered(calibrated, tmp_path):
    pytest.importorskip("captum")
    folder, seconds = calibrated
    model = load(folder)
    for text, pair in zip(TEXTS, seconds or [None] * 7, strict=True):
        (answer,) = model.predict([text], pair and [pair])
        typed = text if pair is None else f"{text}\t{pair}"
        page, record = look(config(folder, text=typed, attribution=True, layers="1", heads="1"))
        likeliest = max(answer.probabilities, key=answer.probabilities.get)
        assert json.loads(record.read_text())["label"] == likeliest == attribute(model, text, pair).label
        assert shown_in(page.read_text())[0] in (likeliest, *(", ".join(getattr(answer, "labels", [])),
                                                 f"no label, {likeliest} the likeliest"))  # fmt: skip


def test_probabilities_of_labels_are_not_added_up(ship_model, tmp_path):
    more = [f"label {at}" for at in range(9)]
    for multi in (False, True):
        shown = Shown(
            source="run", texts=["a"], words=[], label="x", probabilities=dict.fromkeys(more, 0.7), multi=multi
        )
        write_text_page(file := io.StringIO(), shown, [])
        line = re.findall(r"<th>4 more</th><td></td><td>(.*?)</td>", file.getvalue())
        assert line == ["" if multi else "280.0%"]


def test_a_split_is_studied(run, monkeypatch):
    seen = []
    monkeypatch.setattr("manyheads.plugins.interpret.look.study", seen.append)
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
        ({"text": "good", "output": str(there)}, r"output=\S+: \S+in\.txt is a file: name another place by output="),
        ({"text": "b\udce9d"}, "text is not UTF-8"),
        ({"input": str(tmp_path / "none.txt")}, r"input=\S+none.txt does not exist: name a file of one text a line"),
        ({"input": str(tmp_path / "empty.txt")}, r"input=\S+empty.txt holds no texts: give one a line"),
        ({"input": str(tmp_path / "broken.txt")}, r"broken.txt, row 2: byte 0x"),
    ):
        with pytest.raises(ValueError, match=words):
            look(config(run, **typed))
        assert not (run / "look").exists(), typed
    with pytest.raises(ValueError, match=r"run=\S+ is not a run folder"):
        look(config(tmp_path, text="good"))
    with pytest.raises(ValueError, match=r"run=\S+model is a model without its run folder, which would hold"):
        look(config(run / "model", text="good"))


def test_kinds_of_files_that_are_not_read_are_refused(run, tmp_path):
    (tmp_path / "in.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"is an archive: unpack it"):
        look(config(run, input=str(tmp_path / "in.zip")))


def test_texts_and_pairs_are_told_apart(run, pair_folder):
    with pytest.raises(ValueError, match=r"^text has 0 tabs, but the model takes pairs of texts"):
        look(config(pair_folder, text="good"))


def test_at_the_door(capsys):
    for words, sentence in (
        (["text=good"], "run is empty: name the run to look into, for example run=outputs/my-run"),
        (["run=x", "layer=1"], "layer=1 is not a setting: did you mean layers?"),
    ):
        assert cli.main(["look", *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1


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
    assert choose_heads(FOUR_HEADS, "", typed).heads == chosen
    assert choose_heads(FOUR_HEADS, "2", typed).layers == [1]


def test_cross_layers_count_on():
    shape = ModelConfig(n_layers=2, pair=PairKind.cross)
    assert choose_heads(shape, "", "").layers == list(range(2 + shape.n_cross_layers))


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
        choose_heads(FOUR_HEADS, layers, heads)
    assert str(caught.value) == sentence
    with pytest.raises(ValueError, match=r"^layers=2 is out of range: the model has layer 1 alone$"):
        choose_heads(ModelConfig(n_layers=1), "2", "")
