"""The page as a file: nothing in a text becomes markup, nothing is fetched, maps come back as they were."""

import io
import json
import re
import zlib
from base64 import b64decode
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from manyheads.interpret.maps import LayerMaps, Word
from manyheads.interpret.page import SMALL, STEPS, Block, Shown, pack, shrink, write_page

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
        yield Block(f"Layer {layer + 1}", str(layer + 1), span, span), LayerMaps(layer, [0, 2], weights, 1e-7 * layer)


def content(text="good", **more):
    words = [Word(text, text, "", 0, False) for _ in range(4)]
    more = {"label": "bad", "probabilities": {"bad": 0.7, "good": 0.3}} | more
    return Shown(source="run", texts=[text], words=words, **more)


def written(**more):
    file = io.StringIO()
    write_page(file, content(**more), layers())
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
    errors = write_page(file, content(), layers(seen=seen, file=file, n_tokens=64))
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
