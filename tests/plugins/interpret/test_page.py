"""The page as a file: nothing in a text becomes markup, nothing is fetched, maps come back as they were. Texts to pages
and pictures: numbers that go on, both texts of a pair, maps that are the model's."""

import io
import json
import re
import zlib
from base64 import b64decode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from manyheads.config import ModelConfig, PairKind
from manyheads.inference.folder import load
from manyheads.plugins.interpret.maps import LayerMaps, Word, answer_batch, layer_maps, only_batch, record_attention
from manyheads.plugins.interpret.page import SMALL, STEPS, MapBlock, Shown, look_at, pack, shrink, write_text_page
from manyheads.plugins.interpret.shown import Chosen

NASTY = "</script><script>alert(1)</script> \"double\" 'single' & <img src=x onerror=alert(2)> {{maps}}"
NASTY += " a\u2028b\u2029c \x00\x1b"


class Reader(HTMLParser):
    """Elements, and what stands in scripts and elsewhere."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.text, self.script = [], [], "", None

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.script = dict(attrs) if tag == "script" else self.script

    def handle_endtag(self, tag):
        self.script = None if tag == "script" else self.script

    def handle_data(self, data):
        if self.script is None:
            self.text += data
        else:
            self.scripts.append((self.script, data))


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def layers(*, seen=None, file=None, n_tokens=4):
    """Two layers of two heads; `seen` hears how much had been written when each was asked for."""
    torch.manual_seed(0)
    for layer in range(2):
        if seen is not None:
            seen.append(file.tell())
        weights = torch.rand(2, n_tokens, n_tokens).softmax(-1)
        span = (0, n_tokens)
        yield (
            MapBlock(f"Layer {layer + 1}", str(layer + 1), span, span),
            LayerMaps(layer, [0, 2], weights, 1e-7 * layer),
        )


def content(text="good", **more):
    words = [Word(text, text, "", 0, False) for _ in range(4)]
    more = {"label": "bad", "probabilities": {"bad": 0.7, "good": 0.3}} | more
    return Shown(source="run", texts=[text], words=words, **more)


def written(**more):
    file = io.StringIO()
    write_text_page(file, content(**more), layers())
    return file.getvalue()


def test_nothing_in_a_text_becomes_markup():
    plain = read(written())
    nasty = read(written(text=NASTY, label=NASTY, probabilities={NASTY: 0.7, "good": 0.3}, note=NASTY))
    assert [(tag, sorted(given)) for tag, given in nasty.tags] == [
        (tag, sorted(given)) for tag, given in read(written(note="x")).tags
    ]
    assert [given for given, _ in nasty.scripts] == [given for given, _ in plain.scripts]
    assert nasty.scripts[-1] == plain.scripts[-1]
    assert "<script>alert(1)</script>" in nasty.text  # shown, in plain characters
    assert "{{maps}}" in nasty.text
    assert "\x00" not in nasty.text
    (told,) = [json.loads(data) for given, data in nasty.scripts if given.get("id") == "page"]
    assert [one["text"] for one in told["tokens"]] == [NASTY] * 4
    assert not {"\u2028", "\u2029"} & set(written(text=NASTY).partition('id="page"')[2])


def test_plain_characters_stay_plain():
    page = written(text="naïve 爱 🙂 films")
    assert page.count("naïve 爱 🙂 films") >= 5  # the heading, and each token


def test_only_our_script_may_run_and_nothing_is_fetched():
    page = written()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    reader = read(page)
    (script,) = [data for given, data in reader.scripts if not given]
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.keys() == {"default-src", "style-src", "script-src"}
    assert rules["default-src"] == "'none'"
    for rule, text in (("script-src", script), ("style-src", style)):
        assert rules[rule].startswith("'sha256-")
        assert b64decode(rules[rule].strip("'").removeprefix("sha256-")) == sha256(text.encode()).digest()
    assert not re.search(r"https?:|src=|href=|@import|url\(", page)
    assert not any(name.startswith("on") or name == "style" for _, given in reader.tags for name in given)


def test_a_layer_is_asked_for_once_those_before_are_written():
    file, seen = io.StringIO(), []
    errors = write_text_page(file, content(), layers(seen=seen, file=file, n_tokens=64))
    assert errors == {"Layer 1": 0.0, "Layer 2": 1e-7}
    assert 'id="map-0-1"' in file.getvalue()[: seen[1]]
    assert 'id="map-1-0"' not in file.getvalue()[: seen[1]]
    assert "1.0e-07" in read(file.getvalue()).text


def test_maps_come_back():
    given = [(name, data) for (name, data) in read(written()).scripts if name.get("id", "").startswith("map-")]
    assert [name["id"] for name, _ in given] == ["map-0-0", "map-0-1", "map-1-0", "map-1-1"]
    expected = [weights for _, maps in layers() for weights in maps.weights_HLM]
    for (_, data), weights_LM in zip(given, expected, strict=True):
        planes = np.frombuffer(zlib.decompress(b64decode(data)), np.uint8).reshape(2, 4, 4).astype(np.int64)
        np.testing.assert_allclose((256 * planes[0] + planes[1]) / STEPS, weights_LM, atol=0.51 / STEPS)


def test_only_zero_becomes_zero():
    planes = np.frombuffer(zlib.decompress(pack(torch.tensor([[0.0, 1.0, 1e-9]]))), np.uint8)
    assert planes.tolist() == [0, 255, 0, 0, 255, 1]


@pytest.mark.parametrize("shape", [(3, 5), (48, 48), (512, 300)])
def test_small_maps_keep_the_largest_weights(shape):
    weights_LM = torch.zeros(shape)
    weights_LM[1, 2], weights_LM[-1, -1] = 0.5, 0.25
    small = shrink(weights_LM)
    assert small.shape == tuple(min(size, SMALL) for size in shape)
    assert small.max() == 255
    assert small[-1, -1] == 128
    assert not shrink(torch.zeros(shape)).any()


def test_many_classes_are_summed_up():
    probabilities = {f"class {at}": 0.1 for at in range(10)}
    text = read(written(probabilities=probabilities, label="class 0")).text
    assert "5 more50.0%" in text
    assert "class 5" not in text


ALL = Chosen([0, 1], [0, 1])


def told(page):
    return json.loads(re.search(r'<script type="application/json" id="page">(.*?)</script>', page.read_text())[1])


def cells(page, block, head):
    packed = re.search(rf'id="map-{block}-{head}">(.*?)</script>', page.read_text())[1]
    planes = np.frombuffer(zlib.decompress(b64decode(packed)), np.uint8).reshape(2, -1).astype(int)
    return (256 * planes[0] + planes[1]) / 65535


def test_a_page_holds_the_maps_of_its_text(model_folder, tmp_path):
    predictor = load(model_folder)
    looked = look_at(predictor, "a Good film", None, ALL, folder=tmp_path / "look", source="run")
    (expected,) = predictor.predict(["a Good film"])
    assert looked.label == expected.label
    assert looked.probability == pytest.approx(expected.probabilities[expected.label], abs=1e-6)
    assert list(looked.errors) == ["Layer 1", "Layer 2"]
    assert max(looked.errors.values()) < 1e-5
    page = looked.page
    assert page == tmp_path / "look" / "1.html"
    said = told(page)
    assert [one["text"] for one in said["tokens"]] == ["[CLS]", "a", "Good", "film", "[SEP]"]
    with torch.no_grad(), record_attention(predictor.network) as calls:
        answer_batch(predictor, only_batch(predictor, "a Good film", None))
    for block, call in enumerate(calls):
        assert said["blocks"][block]["queries"] == said["blocks"][block]["keys"] == [0, 5]
        for head, weights_LM in enumerate(layer_maps(call).weights_HLM):
            np.testing.assert_allclose(cells(page, block, head), weights_LM.flatten(), atol=1e-5)
            assert said["blocks"][block]["heads"][head]["most"] == pytest.approx(weights_LM.max().item())


def test_numbers_go_on_and_nothing_is_overwritten(model_folder, tmp_path):
    predictor = load(model_folder)
    (tmp_path / "7.html").write_text("precious")
    (tmp_path / "9-layer-1-head-1.png").write_text("precious")
    (tmp_path / "notes.html").write_text("precious")
    for expected in ("10.html", "11.html"):
        page = look_at(predictor, "good", None, ALL, folder=tmp_path, source="run").page
        assert page.name == expected
    assert (tmp_path / "7.html").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_that_cannot_be_made_is_one_sentence(model_folder):
    with pytest.raises(ValueError, match=r"^/proc/x cannot be written to \(.*\): name another folder by output="):
        look_at(load(model_folder), "good", None, ALL, folder=Path("/proc/x"), source="run")


def test_a_failure_leaves_no_page(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("manyheads.plugins.interpret.page.layer_maps", lambda *words: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        look_at(load(model_folder), "good", None, ALL, folder=tmp_path, source="run")
    assert list(tmp_path.iterdir()) == []


def test_the_chosen_maps_alone_are_shown(model_folder, tmp_path):
    chosen = Chosen([1], [0, 1])
    looked = look_at(load(model_folder), "a $good^ film", None, chosen, folder=tmp_path, source="run")
    (block,) = told(looked.page)["blocks"]
    assert (block["name"], [one["head"] for one in block["heads"]]) == ("Layer 2", [1, 2])


def test_a_joined_pair_is_told_apart(pair_folder, tmp_path):
    looked = look_at(load(pair_folder), "good film", "bad", ALL, folder=tmp_path, source="run")
    said = told(looked.page)
    assert [(one["text"], one["part"]) for one in said["tokens"]] == [
        ("[CLS]", 0), ("good", 0), ("film", 0), ("[SEP]", 0), ("bad", 1), ("[SEP]", 1)
    ]  # fmt: skip
    assert said["blocks"][0]["queries"] == [0, 6]


def test_a_pair_read_apart_has_maps_of_each_text_and_across(ship_model, tmp_path):
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=PairKind.cross)
    predictor = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    chosen = Chosen(list(range(1 + shape.n_cross_layers)), [0, 1])
    looked = look_at(predictor, "good film", "bad", chosen, folder=tmp_path / "look", source="run")
    said = told(looked.page)
    assert [one["text"] for one in said["tokens"]] == ["[CLS]", "good", "film", "[SEP]", "[CLS]", "bad", "[SEP]"]
    first, second = [0, 4], [4, 7]
    assert [(one["short"], one["queries"], one["keys"]) for one in said["blocks"]][:4] == [
        ("1 A", first, first), ("1 B", second, second), ("2 A→B", first, second), ("2 B→A", second, first)
    ]  # fmt: skip
    assert cells(looked.page, 2, 0).size == 4 * 3
    assert max(looked.errors.values()) < 1e-5
    (expected,) = predictor.predict(["good film"], ["bad"])
    assert looked.label == expected.label


def test_a_long_text_says_what_was_cut(model_folder, tmp_path):
    looked = look_at(load(model_folder), "good " * 30, None, ALL, folder=tmp_path, source="run")
    assert "20 tokens at the end were cut off: the model reads 12." in looked.page.read_text()
    assert len(told(looked.page)["tokens"]) == 12
