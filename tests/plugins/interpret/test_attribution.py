"""Integrated gradients against closed forms, and their completeness on real, if small, models."""

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from manyheads.config import Accelerator, InferenceHardware, ModelConfig, PairKind, Placement
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.plugins.interpret.attribution import (
    Attribution,
    attribute,
    integrated_gradients,
    show_attribution,
    write_attribution,
)
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.look import look
from manyheads.plugins.interpret.page import Shown, write_text_page
from manyheads.plugins.interpret.shown import NO_CAPTUM

pytest.importorskip("captum")


@pytest.fixture
def model(model_folder: Path) -> TextClassifier:
    return load(model_folder)


def test_a_linear_model_is_attributed_exactly(model: TextClassifier) -> None:
    """Without layers and norms a logit is the mean over tokens of w · (√d e + position), plus b."""
    classifier = model.network
    for layer in classifier.encoder.layers:  # blocks that add nothing
        for block in (layer.attention.block.output, layer.feed_forward.block.narrow):
            nn.init.zeros_(block.weight)
            nn.init.zeros_(block.bias)
    classifier.encoder.norm = nn.Identity()
    ids = torch.tensor(model.tokenizer.encode("a very good film").ids)
    words_LD = classifier.embeddings.words.weight[ids].detach()
    found = attribute(model, "a very good film", label="good")
    expected = (words_LD * 16**0.5) @ classifier.head.weight[1].detach() / len(ids)
    assert found.tokens == ["[CLS]", "a", "very", "good", "film", "[SEP]"]
    assert found.added == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.steps == 32
    assert found.off < 1e-4


def test_a_quadratic_function_is_attributed_exactly() -> None:
    """Of f(x) = Σ_i a_i x_i² the line from zero gives a_i x_i²; of x_1 x_2 half of it to each."""
    words_LD = torch.tensor([[1.0, -2.0], [3.0, 0.5]])

    def function(words_BLD: torch.Tensor) -> torch.Tensor:
        squares = (words_BLD.square() * torch.tensor([[1.0, 2.0], [-1.0, 4.0]])).sum((1, 2))
        return torch.stack([squares, words_BLD[:, 0, 0] * words_BLD[:, 1, 0]], -1)

    nothing_LD = torch.zeros_like(words_LD)
    added, _ = integrated_gradients(function, words_LD, nothing_LD, 0, 1.0, most=7)
    torch.testing.assert_close(added, torch.tensor([9.0, -8.0]))
    added, steps = integrated_gradients(function, words_LD, nothing_LD, 1, 3.0, most=100)
    torch.testing.assert_close(added, torch.tensor([1.5, 1.5]))
    assert steps == 32


@pytest.mark.parametrize("text", ["a good film", "!", "not so awful the film", "good " * 40])
def test_attributions_are_complete(model: TextClassifier, text: str) -> None:
    found = attribute(model, text)
    logits = model.logits([text])[0]
    assert found.label == model.labels[int(logits.argmax())]
    assert found.logit == pytest.approx(float(logits.max()), abs=1e-5)
    silent = load_silent(model)
    assert found.baseline == pytest.approx(float(silent.logits([text])[0, logits.argmax()]), abs=1e-5)
    assert sum(found.added) == pytest.approx(found.logit - found.baseline + found.error, abs=1e-4)
    assert found.off < 0.01
    assert sum(found.attention) == pytest.approx(1, abs=1e-5)
    assert len(found.tokens) == len(found.added) == len(found.attention)


def load_silent(model: TextClassifier) -> TextClassifier:
    """The same model, in which every word vector is zero from now on."""
    with torch.no_grad():
        model.network.embeddings.words.weight.zero_()
    return model


@pytest.mark.parametrize("tokens", [30, 100])
def test_neither_batches_nor_the_class_asked_for_matter_to_another(model: TextClassifier, tokens: int) -> None:
    whole = attribute(model, "a good film", label="bad")
    assert whole.label == "bad"
    assert attribute(model, "a good film", label="bad", tokens=tokens).added == pytest.approx(whole.added, abs=1e-5)


@pytest.mark.parametrize("pair", [PairKind.joint, PairKind.cross, PairKind.compare])
def test_pairs(ship_model: Callable[..., Path], tmp_path: Path, pair: PairKind) -> None:
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=pair)
    model = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    found = attribute(model, "a good film", "very bad")
    assert found.tokens == ["[CLS]", "a", "good", "film", "[SEP]", "very", "bad", "[SEP]"]
    assert found.logit == pytest.approx(float(model.logits(["a good film"], ["very bad"]).max()), abs=1e-5)
    assert found.off < 0.01


@pytest.mark.parametrize("placement", [Placement.pre, Placement.post])
def test_a_model_that_adds_nothing_to_words_starts_from_their_mean(
    ship_model: Callable[..., Path], tmp_path: Path, placement: Placement
) -> None:
    """From zeros, at which its first norm jumps, the sum would miss the difference by more than all of it."""
    shape = ModelConfig(
        n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, positions="rotary", placement=placement
    )  # fmt: skip
    model = load(ship_model(tmp_path / "model", shape=shape))
    found = attribute(model, "a good film")
    assert found.off < 0.01
    with torch.no_grad():
        words = model.network.embeddings.words.weight
        words.copy_(words.mean(0).expand_as(words))
    assert found.baseline == pytest.approx(
        float(model.logits(["a good film"])[0, model.labels.index(found.label)]), abs=1e-5
    )


def section_of(found: Attribution) -> str:
    """As it stands in the page of a text."""
    file = io.StringIO()
    content = Shown(source="run", texts=["x"], words=[], label="a", probabilities={"a": 1.0}, attribution=found)
    write_text_page(file, content, [])
    return file.getvalue().partition('<section class="adds">')[2].partition("</section>")[0]


def test_what_is_found_is_written_and_said(
    model: TextClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = attribute(model, "a good film")
    record = write_attribution(tmp_path / "3.html", found)
    assert record.name == "3-attribution.json"
    assert Attribution(**json.loads(record.read_text())) == found
    section = section_of(found)
    assert section.count("<tr>") == 1 + len(found.tokens)
    assert all(f"<td>{value:+.3f}</td>" in section for value in found.added)
    assert section.count('class="less"') == sum(value < 0 for value in found.added)
    assert section.count('width="100.00%"') == 1
    show_attribution(found)
    printed = capsys.readouterr().out
    assert f"the words add {sum(found.added):+.3f} to the logit of {found.label}, exact to {found.off:.2%}" in printed
    assert "film" in printed


def test_the_section_holds_any_token_and_no_markup_of_theirs() -> None:
    tokens = ["<b>", "a", "b"]
    section = section_of(Attribution("<i>", tokens, [0.0, 0.0, 0.0], [0.1, 0.2, 0.3], 1.0, 1.0, 0.0, 32))
    assert "&lt;b&gt;" in section
    assert "adds to &lt;i&gt;" in section
    assert "<b>" not in section


def test_mistakes_are_one_sentence(model: TextClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="great is not a class of the model: choose one of bad, good, so-so"):
        attribute(model, "a film", label="great")
    with pytest.raises(ValueError, match="the model was trained on single texts"):
        attribute(model, "a film", "another")
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(ValueError, match="attribution=true needs a package") as caught:
        attribute(model, "a film")
    assert str(caught.value) == NO_CAPTUM


def test_the_verb_attributes_in_and_beside_its_page(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model_folder / "model", tmp_path / "model")
    hardware = InferenceHardware(accelerator=Accelerator.cpu)
    config = LookConfig(
        run=str(tmp_path), text="a good film", attribution=True, output=str(tmp_path / "out"), hardware=hardware
    )
    written = look(config)
    assert [one.name for one in written] == ["1.html", "1-attribution.json"]
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == sorted(one.name for one in written)
    assert "What does each token add to the answer?" in written[0].read_text(encoding="utf-8")
    assert re.search(r"\n  the words add -\d\.\d{3} to the logit of bad, exact to [\d.]+%\n", capsys.readouterr().out)
    with pytest.raises(ValueError, match="attribution=true does nothing with split=test"):
        look(LookConfig(run=str(tmp_path), split="test", attribution=True, hardware=hardware))


def test_a_missing_package_is_said_before_anything_is_read(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.plugins.interpret.look.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="attribution=true needs a package that is not installed"):
        look(LookConfig(run=str(model_folder), text="good", attribution=True, output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
