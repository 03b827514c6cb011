"""Static vectors: the files they come from, what is distilled of an encoder, and the network without layers."""

import gzip
import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from manyheads import TextData, plugin
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config import ModelConfig, PairKind, Segments
from manyheads.data.prepare_tokens import given_tokenizer
from manyheads.data.tokenizer import load_tokenizer
from manyheads.inference.folder import load
from manyheads.inference.origin import find_origin
from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.plugins.static import distil, origins, vectors
from manyheads.plugins.static.network import direction
from manyheads.training.weights import WORDS
from tests.conftest import SPECIAL, write_films
from tests.conftest import WORDS as KNOWN

LENGTHS = [3, 1, 0, 5]
TEXTS = ["a good film", "so very bad", "the film", "good"]
LINES = ["good 1 0 2", "bad -1 0 .5", "film 0 3e-1 1", "the 0.5 0.5 0.5", "so 0 0 1"]
TINY = ["trainer.max_epochs=2", "batch.rows=8", "hardware=cpu", "hardware.precision=fp32", "optim.average=0"]


@pytest.fixture
def text_file(tmp_path):
    """`text_file(lines, name)`: a file of these lines."""

    def write(lines, name="words.txt"):
        path, content = tmp_path / name, "\n".join(lines).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def model2vec(tmp_path):
    """`model2vec(**tensors)`: a folder as model2vec writes it, of six words."""

    def write(**tensors):
        folder = tmp_path / "model2vec"
        folder.mkdir(exist_ok=True)
        tokenizer = Tokenizer(models.WordLevel({w: at for at, w in enumerate(["[UNK]", *KNOWN[:5]])}, "[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(str(folder / "tokenizer.json"))
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
        return folder

    return write


def train(path, *words):
    return compose("train", [f"init_from={path}", *words])


def table_of(path, encoder="static", **shape):
    """The table of words that a network begins with, as it is read: times √D."""
    origin = find_origin(str(path), encoder)
    width = shape.get("width", origin.model.get("d_model", 0))
    wanted = {WORDS: [origin.vocab_size, width]}
    return plugin.make("weights", origin.kind)(origin, wanted)[WORDS] * width**0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_direction_in_half_precision_of_a_document_without_a_known_word_and_of_a_long_one(dtype):
    x_ND = torch.cat([torch.zeros(2, 6), torch.full((3000, 6), 0.5)]).to(dtype)
    found_BD = direction(x_ND, Packed.of_lengths([2, 0, 3000]))
    assert found_BD.dtype == dtype
    assert found_BD[:2].float().abs().max() == 0
    np.testing.assert_allclose(found_BD[2].float().numpy(), 1, rtol=1e-2)


def test_the_direction_of_a_document_is_that_of_the_sum_of_its_tokens():
    x_ND = torch.randn(sum(LENGTHS), 6)
    layout = Packed.of_lengths(LENGTHS)
    found_BD = direction(x_ND, layout)
    for x_LD, found_D in zip(x_ND.split(LENGTHS), found_BD, strict=True):
        sum_D = x_LD.numpy().astype(np.float64).sum(0)
        expected = sum_D / max(np.linalg.norm(sum_D), 1e-9) * 6**0.5
        np.testing.assert_allclose(found_D.numpy(), expected, rtol=1e-5, atol=1e-6)
    keep_BL = torch.arange(8) < torch.tensor(LENGTHS)[:, None]
    x_BLD = torch.full((4, 8, 6), torch.nan)
    x_BLD[keep_BL] = x_ND
    torch.testing.assert_close(direction(x_BLD, Padded(keep_BL)), found_BD)


@pytest.mark.parametrize(
    ("header", "name"), [([], "glove.txt"), (["5 3"], "word2vec.vec"), (["5 3"], "fast.vec.gz"), ([], "a.txt.gz")]
)
def test_words_and_vectors_are_read_from_text(text_file, header, name):
    path = text_file([*header, *LINES], name)
    words, vectors_nD = vectors.read_text(path)
    assert words == ["good", "bad", "film", "the", "so"]
    expected = np.array([[float(one) for one in line.split()[1:]] for line in LINES], dtype=np.float32)
    np.testing.assert_array_equal(vectors_nD, expected)
    origin = find_origin(str(path))
    assert (origin.model["d_model"], origin.files, origin.tokenizer) == (3, (path,), str(path))
    tokenizer = load_tokenizer(path)
    assert tokenizer.encode("Good, the\nunknown FILM").tokens == [
        "[CLS]",
        "good",
        "[UNK]",
        "the",
        "[UNK]",
        "film",
        "[SEP]",
    ]
    table_VD = table_of(path)
    assert table_VD[:4].abs().sum() == 0
    factor = table_VD[4, 0] / 1.0
    np.testing.assert_allclose(table_VD[4:9].numpy(), expected * factor.item(), rtol=1e-5)
    assert table_VD[4:9].square().mean() == pytest.approx(1, rel=1e-5)


def test_words_with_spaces_repeated_words_and_other_ends_of_lines(text_file):
    path = text_file(["good 1 2\r", ". . . 3 4\r", "good 5 6\r", "Film 7 8\r", "\u0085 1 1\r"])
    words, vectors_nD = vectors.read_text(path)
    assert words == ["good", ". . .", "Film", "\u0085"]
    assert vectors_nD.tolist() == [[1, 2], [3, 4], [7, 8], [1, 1]]
    assert load_tokenizer(path).encode("film Film").ids[1:-1] == [1, 6], "words with capitals are read as they are"


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["only words here"], "line 1: only words here is not a word and its vector"),
        ([""], "line 1: an empty line is not a word and its vector"),
        ([*LINES, " ", "a 1 2 3"], "line 6: an empty line is no word with 3 finite numbers"),
        (["5 3", "good 1 2"], "line 2: good 1 2 is not a word and its vector"),
        ([*LINES, "odd 1 2 3 4"], "line 6: odd 1 2 3 4 is no word with 3 finite numbers"),
        ([*LINES, "late 1 2"], "line 6: late 1 2 is no word with 3 finite numbers"),
        (["5 3", *LINES[:2], "odd 1 x 3", *LINES[2:]], "line 4: odd 1 x 3 is no word with 3 finite numbers"),
        ([*LINES, "far 1 nan 3"], "line 6: far 1 nan 3 is no word"),
        ([*LINES, "big 1 1e99 3"], "line 6: big 1 1e99 3 is no word"),
    ],
)
def test_a_broken_line_is_named(text_file, lines, sentence):
    path = text_file(lines)
    with pytest.raises(ValueError, match=sentence) as caught:
        vectors.read_text(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("header", [[], ["3 2"]])
def test_marks_at_the_beginning_of_a_file_and_odd_spaces_do_not_change_its_width(text_file, header):
    path = text_file(["\ufeff" + line if at == 0 else line for at, line in enumerate([*header, "a 1 2", "b 3 4"])])
    assert vectors.read_text(path).words == ["a", "b"]
    path = text_file([*header, "\u00a0 1_0 2", "b 3 4"])
    words, vectors_nD = vectors.read_text(path)
    assert words == ["\u00a0", "b"]
    assert vectors_nD.tolist() == [[10, 2], [3, 4]]


def test_what_is_wrong_with_a_file_is_said_as_it_is(words, text_file, capsys):
    path = text_file([*LINES, "late 1 2"])
    assert main(["train", f"init_from={path}", *words]) == 2
    assert f"{path}, line 6: late 1 2 is no word with 3 finite numbers" in capsys.readouterr().err


def test_texts_of_which_the_file_knows_few_words_are_noted(words, text_file):
    notes = TextData.from_run(train(text_file(["film 1 2", "autre 3 4"]), *words)).splits.notes
    assert any(re.search(r"train: (\d+) of (\d+) tokens are unknown to the given tokenizer", note) for note in notes)
    notes = TextData.from_run(train(text_file([*LINES, "is 1 2 3"]), *words)).splits.notes
    assert not any("unknown" in note for note in notes)


def test_a_packed_file_that_is_cut_off_is_refused(text_file):
    path = text_file(LINES * 50, "words.vec.gz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"words\.vec\.gz cannot be read"):
        vectors.read_text(path)


def test_of_a_large_file_the_first_words_are_read(text_file, monkeypatch):
    monkeypatch.setattr(origins, "MOST_WORDS", 3)
    path = text_file(["5 3", *LINES], "large.txt")
    assert vectors.read_text(path).words == ["good", "bad", "film"]
    assert table_of(path).shape == (7, 3)


@pytest.mark.parametrize("more", [(), ("weights",), ("weights", "mapping")])
def test_a_folder_of_model2vec_gives_the_texts_that_model2vec_gives_them(model2vec, more):
    held = {"embeddings": torch.randn(6, 4).half()}
    if "mapping" in more:
        held["mapping"] = torch.tensor([0, 2, 2, 1, 5, 3])
    if "weights" in more:
        held["weights"] = torch.rand(6)
    path = model2vec(**held)
    table_VD = table_of(path)
    tokenizer = load_tokenizer(path)
    for text in TEXTS:
        theirs = np.zeros(4)
        for word in text.split():
            at = KNOWN[:5].index(word) + 1 if word in KNOWN[:5] else 0
            if at:  # which model2vec leaves out
                vector = held["embeddings"][held["mapping"][at] if "mapping" in more else at].double().numpy()
                theirs += vector * (held["weights"][at].item() if "weights" in more else 1)
        ours_1D = direction(
            table_VD[tokenizer.encode(text).ids][None], Padded(torch.ones(1, len(tokenizer.encode(text).ids)).bool())
        )
        np.testing.assert_allclose(
            ours_1D[0].numpy(), theirs / max(np.linalg.norm(theirs), 1e-9) * 2, rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"other": torch.zeros(6, 4)}, "has no table of vectors named embeddings"),
        ({"embeddings": torch.zeros(6)}, "has no table of vectors named embeddings"),
        ({"embeddings": torch.zeros(6, 4), "mapping": torch.full((6,), 6)}, "mapping names rows"),
        ({"embeddings": torch.zeros(6, 4), "mapping": torch.tensor(3)}, "mapping names rows"),
        ({"embeddings": torch.zeros(6, 4), "weights": torch.ones(5)}, "weights has another length"),
        ({"embeddings": torch.full((6, 4), torch.inf)}, "not finite numbers"),
    ],
)
def test_a_folder_that_is_no_such_model_is_refused(model2vec, tensors, sentence):
    with pytest.raises(ValueError, match=sentence):
        table_of(model2vec(**tensors))


def test_vectors_are_distilled_from_each_token_read_alone(model_folder, monkeypatch):
    """Compared with NumPy: the mean over [CLS] token [SEP] and the word's own vector, their principal components, and
    rare words weighing more."""
    monkeypatch.setattr(distil, "cpu_multiplies_bf16", lambda: False)
    network = load(model_folder).network.eval()
    with torch.no_grad():
        x_VLD = torch.stack(
            [network.encode(torch.tensor([[2, at, 3]]), Padded(torch.ones(1, 3).bool()))[0] for at in range(15)]
        )
    both = [x_VLD.mean(1).double().numpy(), network.words.weight.detach().double().numpy()]
    centred_VD = np.concatenate([(one - one.mean(0)) / one.std(ddof=1) for one in both], axis=1)
    rotated_VD = centred_VD @ np.linalg.svd(centred_VD)[2].T[:, :8]
    share_V = (1 / np.arange(2, 17)) / (1 / np.arange(2, 17)).sum()
    expected_VD = rotated_VD * (1e-4 / (1e-4 + share_V))[:, None]
    expected_VD[: len(SPECIAL)] = 0
    found_VD = table_of(model_folder, width=8).double().numpy()
    signs_D = np.sign((found_VD * expected_VD).sum(0))
    expected_VD *= np.sqrt(8 * 10 / (expected_VD**2).sum())
    np.testing.assert_allclose(found_VD, expected_VD * signs_D, rtol=1e-3, atol=1e-4)


def test_what_is_typed_with_vectors(text_file, model_folder):
    path = text_file(LINES)
    alone = train(path)
    assert (alone.model.encoder, alone.model.d_model, alone.model.pooling) == ("static", 3, "direction")
    assert alone.optim == compose("train", ["optim=static"]).optim
    assert (alone.tokenizer.path, alone.init_from) == (str(path), str(path))
    embedded = train(path, "model=tiny")
    assert (embedded.model.encoder, embedded.model.d_model, embedded.model.d_embedding) == ("transformer", 128, 3)
    assert embedded.optim == compose("train").optim
    distilled = train(model_folder, "model=static")
    assert (distilled.model.encoder, distilled.model.d_model) == ("static", 16)
    assert distilled.tokenizer.path == str(model_folder / "model" / "tokenizer.json")
    assert train(model_folder, "model=static", "model.d_model=8").model.d_model == 8
    assert train(model_folder).model.encoder == "transformer"
    with pytest.raises(ValueError, match=r"model\.d_model=8, but the weights of init_from=\S+ have 3"):
        train(path, "model.d_model=8")
    with pytest.raises(ValueError, match="model=mini is a shape of its own"):
        train(model_folder, "model=mini")


def test_two_texts_are_compared_by_the_directions_of_both():
    model = ModelConfig(
        **origins.OF_STATIC | {"segments": Segments.never, "d_model": 6, "pooling": "direction", "pair": PairKind.cross}
    )
    network = assemble(model, vocab_size=20, n_classes=3, max_length=16, n_segments=2).eval()
    texts, n_first = [[2, 7, 8, 3, 9, 3], [2, 3, 5, 6, 3], [2, 11, 3, 11, 3]], [4, 2, 3]
    ids = torch.tensor([id for text in texts for id in text])
    second = [int(at >= n) for text, n in zip(texts, n_first, strict=True) for at in range(len(text))]
    together = network(ids, Packed.of_lengths([*map(len, texts)]), torch.tensor(second))
    for text, n, logits_C in zip(texts, n_first, together, strict=True):
        sums = [network.words.weight[part].sum(0) for part in (text[:n], [text[0], *text[n:]])]
        a, b = (one / one.norm() * 6**0.5 for one in sums)
        expected_C = network.head(torch.cat([a, b, (a - b).abs(), a * b]))
        torch.testing.assert_close(logits_C, expected_C, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("typed", ["model.n_layers=2", "model.n_heads=2"])
def test_what_a_model_without_layers_does_not_read_is_refused(typed):
    with pytest.raises(ValueError, match=rf"^{typed} does nothing with model.encoder=static: remove it"):
        compose("train", ["model=static", typed])


def test_a_run_says_which_line_is_broken(text_file):
    run = train(text_file([*LINES, "late 1 2"]))
    with pytest.raises(ValueError, match=r"^/\S+/words\.txt, line 6: late 1 2 is no word with 3 finite numbers"):
        given_tokenizer(run, pairs=False)


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    return [f"data.path={write_films(tmp_path)}", *TINY]


@pytest.mark.slow
def test_a_static_model_is_trained_and_answers(words, text_file, tmp_path):
    run = tmp_path / "run"
    assert main(["train", f"init_from={text_file(LINES)}", f"output={run}", *words]) == 0
    model = load(run)
    assert model.predict(["a good film", "so bad"])[0].label == "up"
    together = model.logits([*TEXTS, ""])
    alone = torch.cat([model.logits([text]) for text in [*TEXTS, ""]])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    again = train(run, "model=static")
    assert (again.model.encoder, again.model.d_model) == ("static", 3)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["distilled", "embedded", "scratch"])
def test_other_ways_to_begin(words, text_file, model_folder, tmp_path, how):
    begin = {
        "distilled": ["model=static", f"init_from={model_folder}"],
        "embedded": ["model=tiny", f"init_from={text_file(LINES)}"],
        "scratch": ["model=static"],
    }[how]
    assert main(["train", *begin, f"output={tmp_path / 'run'}", *words]) == 0
    assert load(tmp_path / "run").predict(["a good film"])[0].label == "up"
    assert main(["evaluate", f"run={tmp_path / 'run'}", "hardware.accelerator=cpu"]) == 0
