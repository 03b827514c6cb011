"""Texts to pages and pictures: numbers that go on, both texts of a pair, maps that are the model's."""

import json
import re
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from manyheads.config import ModelConfig, PairKind
from manyheads.inference.folder import load
from manyheads.interpret.look import Chosen
from manyheads.interpret.maps import answer, layer_maps, read_words
from manyheads.interpret.page import look_at

ALL = Chosen([0, 1], [0, 1])


def told(page):
    return json.loads(re.search(r'<script type="application/json" id="page">(.*?)</script>', page.read_text())[1])


def cells(page, block, head):
    packed = re.search(rf'id="map-{block}-{head}">(.*?)</script>', page.read_text())[1]
    planes = np.frombuffer(zlib.decompress(b64decode(packed)), np.uint8).reshape(2, -1).astype(int)
    return (256 * planes[0] + planes[1]) / 65535


def test_a_page_holds_the_maps_of_its_text(model_folder, tmp_path):
    import torch

    deliverable = load(model_folder)
    looked = look_at(deliverable, "a Good film", None, ALL, folder=tmp_path / "look", source="run")
    (expected,) = deliverable.predict(["a Good film"])
    assert looked.label == expected.label
    assert looked.probability == pytest.approx(expected.probabilities[expected.label], abs=1e-6)
    assert list(looked.errors) == ["Layer 1", "Layer 2"]
    assert max(looked.errors.values()) < 1e-5
    (page,) = looked.files
    assert page == tmp_path / "look" / "1.html"
    said = told(page)
    assert [one["text"] for one in said["tokens"]] == ["[CLS]", "a", "Good", "film", "[SEP]"]
    ids = torch.tensor(read_words(deliverable.tokenizer, "a Good film", None, 12).ids)
    _, calls = answer(deliverable.network, ids, None, None)
    for block, call in enumerate(calls):
        assert said["blocks"][block]["queries"] == said["blocks"][block]["keys"] == [0, 5]
        for head, weights_LM in enumerate(layer_maps(call).weights_HLM):
            np.testing.assert_allclose(cells(page, block, head), weights_LM.flatten(), atol=1e-5)
            assert said["blocks"][block]["heads"][head]["most"] == pytest.approx(weights_LM.max().item())


def test_numbers_go_on_and_nothing_is_overwritten(model_folder, tmp_path):
    deliverable = load(model_folder)
    (tmp_path / "7.html").write_text("precious")
    (tmp_path / "9-layer-1-head-1.png").write_text("precious")
    (tmp_path / "notes.html").write_text("precious")
    for expected in ("10.html", "11.html"):
        (page,) = look_at(deliverable, "good", None, ALL, folder=tmp_path, source="run").files
        assert page.name == expected
    assert (tmp_path / "7.html").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_that_cannot_be_made_is_one_sentence(model_folder):
    with pytest.raises(ValueError, match=r"^/proc/x cannot be written to \(.*\): name another folder by output="):
        look_at(load(model_folder), "good", None, ALL, folder=Path("/proc/x"), source="run")


def test_a_failure_leaves_no_page(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("manyheads.interpret.page.layer_maps", lambda *words: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        look_at(load(model_folder), "good", None, ALL, folder=tmp_path, source="run")
    assert list(tmp_path.iterdir()) == []


def test_pictures_of_the_chosen_maps(model_folder, tmp_path):
    chosen = Chosen([1], [0, 1])
    looked = look_at(load(model_folder), "a $good^ film", None, chosen, folder=tmp_path, source="run", png=True)
    assert [one.name for one in looked.files] == ["1.html", "1-layer-2-head-1.png", "1-layer-2-head-2.png"]
    assert all(one.read_bytes().startswith(b"\x89PNG") for one in looked.files[1:])
    (block,) = told(looked.files[0])["blocks"]
    assert (block["name"], [one["head"] for one in block["heads"]]) == ("Layer 2", [1, 2])


def test_a_joined_pair_is_told_apart(pair_folder, tmp_path):
    looked = look_at(load(pair_folder), "good film", "bad", ALL, folder=tmp_path, source="run")
    said = told(looked.files[0])
    assert [(one["text"], one["part"]) for one in said["tokens"]] == [
        ("[CLS]", 0), ("good", 0), ("film", 0), ("[SEP]", 0), ("bad", 1), ("[SEP]", 1)
    ]  # fmt: skip
    assert said["blocks"][0]["queries"] == [0, 6]


def test_a_pair_read_apart_has_maps_of_each_text_and_across(ship_model, tmp_path):
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=PairKind.cross)
    deliverable = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    chosen = Chosen(list(range(1 + shape.n_cross_layers)), [0, 1])
    looked = look_at(deliverable, "good film", "bad", chosen, folder=tmp_path / "look", source="run")
    said = told(looked.files[0])
    assert [one["text"] for one in said["tokens"]] == ["[CLS]", "good", "film", "[SEP]", "[CLS]", "bad", "[SEP]"]
    first, second = [0, 4], [4, 7]
    assert [(one["short"], one["queries"], one["keys"]) for one in said["blocks"]][:4] == [
        ("1 A", first, first), ("1 B", second, second), ("2 A→B", first, second), ("2 B→A", second, first)
    ]  # fmt: skip
    assert cells(looked.files[0], 2, 0).size == 4 * 3
    assert max(looked.errors.values()) < 1e-5
    (expected,) = deliverable.predict(["good film"], ["bad"])
    assert looked.label == expected.label


def test_a_long_text_says_what_was_cut(model_folder, tmp_path):
    looked = look_at(load(model_folder), "good " * 30, None, ALL, folder=tmp_path, source="run")
    assert "20 tokens at the end were cut off: the model reads 12." in looked.files[0].read_text()
    assert len(told(looked.files[0])["tokens"]) == 12
