"""A model that answers by texts: the same answers in any batch, from a folder that needs nothing else."""

import json
import shutil

import pytest
import torch
from torch.nn import functional as F

import manyheads
from manyheads.config import DataConfig
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.layout import Packed
from manyheads.plugins.language.predictors import Seq2SeqPredictor
from manyheads.plugins.language.spelling import decode
from tests.core.inference.test_classifier import REFUSE

TEXTS = ["a good film", "x", "very very bad", "not so awful the film", "good " * 100, "fine"]
TARGETS = ["good", "a a", "the very bad film", "", "so", "not"]


@pytest.fixture(scope="module", params=["transformer", "gru"])
def translator(request, ship_translator, tmp_path_factory) -> Seq2SeqPredictor:
    return load(ship_translator(tmp_path_factory.mktemp("model") / "model", encoder=request.param), Seq2SeqPredictor)


def logits(translator: Seq2SeqPredictor, text: str, said: list[int]) -> torch.Tensor:
    """Of every next token, one row at a time, without a cache."""
    encoded = translator.tokenizer.encode(text).ids
    if len(encoded) > translator.max_length:
        encoded = [*encoded[: translator.max_length - 1], 3]
    source, target = torch.tensor(encoded), torch.tensor(said)
    layouts = [Packed.of_lengths([len(one)]) for one in (source, target)]
    with torch.inference_mode():
        return translator.network(source, layouts[0], target, layouts[1])


def spelt_out(translator: Seq2SeqPredictor, text: str, most: int) -> str:
    said = [2]
    while len(said) <= most and said[-1] != 3:
        said.append(int(logits(translator, text, said)[-1].argmax()))
    return decode(translator.tokenizer, [said])[0]


@pytest.mark.parametrize("most", [0, 3])
def test_answers_are_those_of_each_text_alone_in_order(translator, most):
    expected = [spelt_out(translator, text, most or translator.max_length) for text in TEXTS]
    assert most or len(set(expected)) > 1
    for tokens in (1, 16, 8192):
        assert translator.generate(TEXTS, tokens=tokens, max_length=most) == expected


def test_targets_are_followed_as_torch_says(translator):
    followed = translator.follow(TEXTS, TARGETS)
    for text, target, one in zip(TEXTS, TARGETS, followed, strict=True):
        said = translator.tokenizer.encode(target).ids
        of_each = logits(translator, text, said)[:-1]
        assert one.n_tokens == len(said) - 1
        assert one.n_right == int((of_each.argmax(-1) == torch.tensor(said[1:])).sum())
        assert one.loss == pytest.approx(float(F.cross_entropy(of_each, torch.tensor(said[1:]))), rel=1e-4)


def test_the_same_model_gives_the_same_bytes_and_answers_by_texts(ship_translator, text_folder, tmp_path):
    again = ship_translator(tmp_path / "model")
    names = sorted(path.name for path in again.iterdir())
    assert names == ["README.md", "config.json", "labels.json", "model.safetensors", "tokenizer.json"]
    for name in names:
        assert (again / name).read_bytes() == (text_folder / "model" / name).read_bytes()
    assert json.loads((again / "labels.json").read_text()) == []
    assert "generate(" in (again / "README.md").read_text()
    assert isinstance(manyheads.load(text_folder), Seq2SeqPredictor)


def test_it_opens_with_torch_safetensors_and_tokenizers_alone(text_folder, tmp_path, python):
    folder = shutil.copytree(text_folder / "model", tmp_path / "model")
    code = f"{REFUSE}\nimport json, manyheads\nprint(json.dumps(manyheads.load(sys.argv[1]).generate(['a good film'])))"
    done = python.run("-W", "ignore", "-c", code, folder, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == load(text_folder).generate(["a good film"])


def test_the_wrong_kind_is_one_sentence(text_folder, model_folder):
    with pytest.raises(ValueError, match="answers by texts, not by classes, but a classifier is needed here"):
        load(text_folder, TextClassifier)
    with pytest.raises(ValueError, match="is a classifier, but a model of task=seq2seq is needed here"):
        load(model_folder, Seq2SeqPredictor)
    assert not isinstance(manyheads.load(model_folder), Seq2SeqPredictor)


def test_mistakes_are_one_sentence(translator):
    with pytest.raises(ValueError, match=r"generate\.max_length=13 is more than the 12 tokens"):
        translator.generate(["a"], max_length=13)
    with pytest.raises(ValueError, match="put it in brackets"):
        translator.generate("a")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n_classes": 3}, "n_classes=3 does not fit task=seq2seq: only a classifier has classes"),
        ({"vocab_size": 14}, "has 15 entries, but the embedding has 14 rows"),
        ({"vocab_size": 10**9}, "holds"),
        ({"task": "classify"}, "n_classes=0 does not fit task=classify"),
    ],
)
def test_a_folder_that_does_not_fit_together_is_one_sentence(changed, sentence, ship_translator, tmp_path):
    folder = ship_translator(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(ValueError, match=sentence):
        manyheads.load(folder)


def test_a_folder_that_names_no_task_is_a_classifier(ship_model, tmp_path):
    folder = ship_model(tmp_path / "model", data=DataConfig(max_length=12))
    config = json.loads((folder / "config.json").read_text())
    del config["task"]
    (folder / "config.json").write_text(json.dumps(config))
    assert manyheads.load(folder).labels == ["bad", "good", "so-so"]  # pyright: ignore[reportAttributeAccessIssue]
