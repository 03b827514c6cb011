"""A finished model: the same logits anywhere, the same bytes again, and no trust in what it finds."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import manyheads
from manyheads import plugin
from manyheads.config import DataConfig, ModelConfig, PairKind, PredictConfig, Segments
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.layout import Packed, Padded

TEXTS = ["a good film", "", "very very bad", "not so awful, the film", "good " * 100]


@pytest.fixture(scope="module")
def model(model_folder: Path) -> TextClassifier:
    return load(model_folder)


@pytest.fixture(scope="module")
def pair_model(pair_folder: Path) -> TextClassifier:
    return load(pair_folder)


def alone(model: TextClassifier, text: str, pair: str | None = None) -> torch.Tensor:
    """Logits by the longest way: one text, padded layout, ids from the tokenizer itself."""
    tokenizer = model.tokenizer
    tokenizer.enable_truncation(model.max_length)
    encoded = tokenizer.encode(text) if pair is None else tokenizer.encode(text, pair)
    tokenizer.no_truncation()
    ids, segments = torch.tensor([encoded.ids]), torch.tensor([encoded.type_ids])
    with torch.inference_mode():
        return model.network(ids, Padded(torch.ones_like(ids, dtype=torch.bool)), segments if model.pairs else None)[0]


def test_marks_in_texts_are_text_but_to_models_that_were_trained_before(ship_model, tmp_path):
    """Text that reads as a mark is as unknown as any other; a folder without the key reads marks, as it did."""
    path = ship_model(tmp_path / "model")
    model = load(path)
    torch.testing.assert_close(model.logits(["good [SEP] film"]), model.logits(["good (six) film"]))
    config = json.loads((path / "config.json").read_text())
    assert config.pop("reads_marks") is False
    (path / "config.json").write_text(json.dumps(config))
    before = load(path)
    assert before.settings.reads_marks
    ids = before.tokenizer.encode("good [SEP] film").ids
    assert ids.count(before.tokenizer.token_to_id("[SEP]")) == 2
    with torch.no_grad():
        expected = before.network(torch.tensor(ids), Packed.of_lengths([len(ids)]))
    torch.testing.assert_close(before.logits(["good [SEP] film"]), expected)


def test_logits_are_those_of_each_text_alone_in_order(model: TextClassifier) -> None:
    expected = torch.stack([alone(model, text) for text in TEXTS])
    for tokens in (1, 16, 8192):
        logits = model.logits(TEXTS, tokens=tokens)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@given(st.lists(st.text(max_size=40) | st.sampled_from(TEXTS), max_size=12))
def test_any_texts_have_finite_logits(model_folder: Path, texts: list[str]) -> None:
    logits = load(model_folder).logits(texts, tokens=20)
    assert logits.shape == (len(texts), 3)
    assert logits.isfinite().all()


def test_pairs_see_both_texts_and_their_order(pair_model: TextClassifier) -> None:
    firsts, seconds = ["good film", "bad", "good film"], ["bad", "good film", ""]
    expected = torch.stack([alone(pair_model, *row) for row in zip(firsts, seconds, strict=True)])
    logits = pair_model.logits(firsts, seconds)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_predictions_are_named_and_add_up(model: TextClassifier) -> None:
    texts = [text for text in TEXTS if text]
    for text, prediction in zip(texts, model.predict(texts), strict=True):
        assert list(prediction.probabilities) == ["bad", "good", "so-so"]
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert prediction.label == max(prediction.probabilities, key=lambda name: prediction.probabilities[name])
        assert prediction.label == model.labels[int(alone(model, text).argmax())]
    assert model.predict([]) == []


def test_probabilities_are_as_exact_as_those_of_evaluate(model: TextClassifier, monkeypatch) -> None:
    logits = torch.tensor([[20.0, 0.0, 1.0], [0.1, 0.2, 0.3]])  # in single precision the first class has all
    monkeypatch.setattr(TextClassifier, "logits", lambda *_, **__: logits)
    found = [[*one.probabilities.values()] for one in model.predict(["a", "b"])]
    assert found == logits.double().softmax(-1).tolist()
    assert found[0][0] < 1


def test_wrong_arguments_are_one_sentence(model: TextClassifier, pair_model: TextClassifier) -> None:
    with pytest.raises(ValueError, match="texts is a single str, but a list of texts is needed: put it in brackets"):
        model.predict("a text")  # pyright: ignore[reportArgumentType]
    for none in (None, 5, pandas.DataFrame({"text": ["a"]})):  # a table would give the names of its columns
        with pytest.raises(UserError, match=f"texts is a single {type(none).__name__}, but a list of texts is needed"):
            model.predict(none)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="the model was trained on single texts, but pairs are given"):
        model.predict(["a"], ["b"])
    with pytest.raises(ValueError, match="the model was trained on pairs of texts, but second texts are missing"):
        pair_model.predict(["a"])
    with pytest.raises(ValueError, match="there are 2 texts but 1 second texts"):
        pair_model.predict(["a", "b"], ["c"])
    with pytest.raises(UserError, match="member=both is not a choice: choose network or linear"):
        model.alone("both")


def test_manyheads_load_opens_both_folders(model_folder: Path, model: TextClassifier) -> None:
    for folder in (model_folder, str(model_folder / "model")):
        assert torch.equal(manyheads.load(folder, precision="fp32").logits(TEXTS), model.logits(TEXTS))
    assert not model.network.training
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = manyheads.lod  # pyright: ignore[reportAttributeAccessIssue]


REFUSE = """
import importlib.machinery, sys
class Refuse:  # as where they are not installed: asking finds nothing, importing fails
    names = {"lightning", "hydra", "omegaconf", "datasets", "numpy", "sklearn", "matplotlib", "torchmetrics", "rich",
             "pyarrow", "pandas", "yaml", "scipy", "jinja2", "markupsafe", "filelock",
             "transformers", "tensorboard", "wandb"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.names:
            return importlib.machinery.PathFinder.find_spec(name, path, target)
sys.meta_path = [one for one in sys.meta_path if one is not importlib.machinery.PathFinder] + [Refuse()]
for name in [*sys.modules]:  # in a process that is forked where they have been imported
    if name.partition(".")[0] in Refuse.names | {"manyheads"}:
        del sys.modules[name]
for name in ("numpy", "rich", "lightning"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{name} can be imported")
"""
BLOCK = (
    REFUSE
    + """
import json, manyheads
for folder, pairs in zip(sys.argv[4:], (None, ["bad", ""])):
    texts = ["a good film", ""] if pairs else json.loads(sys.argv[1])
    print(json.dumps(manyheads.load(folder, precision="fp32").logits(texts, pairs).tolist()))
from manyheads.config import PredictConfig
from manyheads.inference.predict import predict
predict(PredictConfig(run=sys.argv[2]))
exec(sys.argv[3])
print(*{"torch._dynamo"} & set(sys.modules), file=sys.stderr)
"""
)


def test_it_opens_with_torch_safetensors_and_tokenizers_alone(
    model_folder: Path,
    pair_folder: Path,
    model: TextClassifier,
    pair_model: TextClassifier,
    tmp_path: Path,
) -> None:
    """In Python, by `predict`, and by what its card says to type; of what is installed with it nothing else."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    others = {re.split(r"[><=;\[ ]", one)[0] for one in project["dependencies"]} - {
        "torch",
        "safetensors",
        "tokenizers",
    }
    imported = {"scikit-learn": "sklearn", "hydra-core": "hydra"}
    assert [one for one in others if f'"{imported.get(one, one)}"' not in REFUSE] == []
    folders = [str(shutil.copytree(folder / "model", tmp_path / folder.name)) for folder in (model_folder, pair_folder)]
    card = Path(folders[0], "README.md").read_text(encoding="utf-8")
    assert "It opens with manyheads, for which torch, safetensors and tokenizers have to be installed." in card
    assert "`manyheads export format=onnx` writes of it opens without manyheads." in card
    typed = card.partition("```python\n")[2].partition("```")[0].replace("this folder", folders[0])
    command = [sys.executable, "-W", "ignore", "-c", BLOCK, json.dumps(TEXTS), folders[0], typed, *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, input="good\nbad\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""
    *said, card_said = done.stdout.splitlines()
    assert card_said.startswith("[Prediction(")
    single, pair, *answered = map(json.loads, said)
    assert [one["text"] for one in answered] == ["good", "bad"], "predict writes JSON alone"
    single, pair = torch.tensor(single), torch.tensor(pair)
    # to the last rounding: at another address products may be summed in another order
    torch.testing.assert_close(single, model.logits(TEXTS))
    torch.testing.assert_close(pair, pair_model.logits(["a good film", ""], ["bad", ""]))


def test_the_same_model_gives_the_same_bytes(model_folder: Path, tmp_path: Path, ship_model: Any) -> None:
    again = ship_model(tmp_path / "elsewhere")
    files = sorted(one.name for one in again.iterdir())
    assert files == ["README.md", "config.json", "labels.json", "model.safetensors", "tokenizer.json"]
    for name in files:
        content = (again / name).read_bytes()
        assert content == (model_folder / "model" / name).read_bytes(), name
        assert os.fsencode(tmp_path) not in content


@pytest.mark.parametrize("positions", plugin.names("positions"))
def test_every_kind_of_positions_comes_back(tmp_path: Path, ship_model: Any, positions: str) -> None:
    shape = ModelConfig(n_layers=1, n_heads=2, n_kv_heads=1, d_model=8, d_k=4, d_v=3, d_ff=8, positions=positions)
    opened = load(ship_model(tmp_path / "model", shape=shape))
    assert opened.model == shape
    torch.testing.assert_close(opened.logits(TEXTS[:1])[0], alone(opened, TEXTS[0]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", plugin.names("pooling"))
def test_a_model_that_reads_two_texts_apart_comes_back(tmp_path: Path, ship_model: Any, pooling: str) -> None:
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_k": 4, "d_v": 3, "d_ff": 8}
    shape = ModelConfig(**sizes, pair=PairKind.cross, pooling=pooling, segments=Segments.always)
    opened = load(ship_model(tmp_path / "model", shape=shape, pairs=True))
    assert opened.model == shape
    firsts, seconds = ["good film", "bad", "", "a"], ["bad", "", "good film", "a"]
    expected = torch.stack([alone(opened, *row) for row in zip(firsts, seconds, strict=True)])
    torch.testing.assert_close(opened.logits(firsts, seconds), expected, atol=1e-5, rtol=1e-5)


def test_padding_and_truncation_do_not_travel(tmp_path: Path, ship_model: Any, model: TextClassifier) -> None:
    folder = ship_model(tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    assert tokenizer["padding"] is None
    assert tokenizer["truncation"] is None
    tokenizer["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert torch.equal(load(folder).logits(TEXTS), model.logits(TEXTS))


def test_columns_travel(tmp_path: Path, ship_model: Any) -> None:
    data = DataConfig(source="hub", hub="glue", text="sentence", label="class", max_length=9)
    opened = load(ship_model(tmp_path / "model", data=data))
    assert (opened.settings.columns.text, opened.settings.columns.label, opened.settings.columns.preset) == (
        "sentence",
        "class",
        True,
    )
    assert opened.max_length == 9


NO_TOKENIZER = r"tokenizer.json is not a whole tokenizer that puts marks such as \[CLS\] and \[SEP\] around any text"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tokenizer: "{", NO_TOKENIZER),
        (lambda tokenizer: "[]", NO_TOKENIZER),
        (lambda tokenizer: tokenizer | {"model": {"type": "Pickle"}}, NO_TOKENIZER),
        (lambda tokenizer: tokenizer | {"post_processor": None}, NO_TOKENIZER),
        (lambda tokenizer: tokenizer["model"].update(unk_token="gone") or tokenizer, NO_TOKENIZER),
        (  # the library panics
            lambda tokenizer: (
                tokenizer["post_processor"]["single"][0]["SpecialToken"].update(id="no such") or tokenizer
            ),
            NO_TOKENIZER,
        ),
        (
            lambda tokenizer: tokenizer["model"]["vocab"].update(extra=15) or tokenizer,
            r"has 16 entries, but the embedding has 15 rows: it is not the tokenizer this model was trained with",
        ),
        (
            lambda tokenizer: tokenizer["post_processor"]["special_tokens"]["[CLS]"].update(ids=[999]) or tokenizer,
            "has 1000 entries, but the embedding has 15 rows",
        ),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_one_sentence(
    model_folder: Path, tmp_path: Path, change: Any, words: str
) -> None:
    folder = shutil.copytree(model_folder / "model", tmp_path / "model")
    changed = change(json.loads((folder / "tokenizer.json").read_text()))
    (folder / "tokenizer.json").write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(ValueError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_segments_beyond_the_embedding_are_refused(pair_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder / "model", tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"]["pair"][3]["Sequence"]["type_id"] = 7
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match="marks texts by segment 7, but a pair has segments 0 and 1"):
        load(folder)


def test_what_is_no_text_is_named(model):
    for texts, what in (
        (["a", None], r"texts\[1\] is of type NoneType"),
        ([("a", "b")], r"texts\[0\] is of type tuple"),
    ):
        with pytest.raises(ValueError, match=rf"^{what}, but each text is a str: leave it out, or convert it$"):
            model.predict(texts)


def test_a_text_passes_at_most_15_functions_from_the_verb_to_the_network(model_folder: Path, capsys: Any) -> None:
    """Counted are the functions of the package that run between `predict(config)` and the network for one text. Left
    out are those that only open or check something: the model, the input and its chunks, the output, the processes;
    properties and comprehensions, too. CONTRIBUTING.md lists the rest."""
    package = Path(manyheads.__file__).parent
    opening = (
        "n_to_start",
        "this_process",
        "check_predict",
        "open_predictor",
        "fit_rules",
        "opened_answers",
        "row_counter",
        "field_mark",
    )
    steps: list[str] = []
    within: list[str] = []  # functions of the package that are running, from the first that only opens on
    asked = PredictConfig(run=str(model_folder), text="a good film")
    is_done = False

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal is_done
        code = frame.f_code
        if is_done or not code.co_filename.startswith(f"{package}{os.sep}"):
            return
        file = Path(code.co_filename)
        name = code.co_qualname.rpartition(".")[2]
        if event == "return" and within:
            within.pop()
        elif event == "call" and (within or name in opening or file.name in ("reading.py", "chunks.py")):
            within.append(name)
        elif event == "call" and file.parent.name == "nn":
            is_done = True
        elif event == "call" and name not in steps and not name.startswith(("<", "__")):
            steps.append(name)

    predict(asked)
    sys.setprofile(note)
    try:
        predict(asked)
    finally:
        sys.setprofile(None)
    assert is_done
    properties = {
        name for kind in TextClassifier.__mro__ for name, it in vars(kind).items() if isinstance(it, property)
    }
    listed = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text().partition("From a text to its logits")[2]
    listed = listed.partition("|---|---|")[2].partition("\n\n")[0]
    named = [name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", listed)]
    assert [name for name in steps if name not in properties] == named
    assert len(named) <= 15
