"""`init_from=` of BERT's family: what its folders bring, and that texts are read as transformers reads them."""

import json
import shlex
import shutil

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.config import Long, Pooler
from manyheads.data.prepare_tokens import given_tokenizer
from manyheads.data.tokenizer import load_tokenizer
from manyheads.data.tokens import encode
from tests.conftest import word_tokenizer
from tests.core.training.test_origin import TEXTS, begun, read


def train(folder, *words):
    return compose("train", [f"init_from={folder}", *words])


@pytest.mark.parametrize("kind", ["bert", "distilbert", "deberta-v2"])
def test_a_family_is_read_as_transformers_reads_it(tmp_path, model_folder, kind):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 15, "max_position_embeddings": 16}
    if kind == "bert":
        config = transformers.BertConfig(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, **sizes
        )
        theirs = transformers.BertModel(config).eval()
    elif kind == "deberta-v2":
        config = transformers.DebertaV2Config(
            **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, **sizes},
            **{"relative_attention": True, "pos_att_type": "p2c|c2p", "share_att_key": True, "position_buckets": 8},
        )
        theirs = transformers.DebertaV2Model(config).eval()
    else:
        config = transformers.DistilBertConfig(dim=24, n_layers=2, n_heads=4, hidden_dim=40, **sizes)
        theirs = transformers.DistilBertModel(config).eval()
    theirs.save_pretrained(tmp_path)
    shutil.copy(model_folder / "model" / "tokenizer.json", tmp_path)
    run, network, tokenizer = begun(tmp_path)
    assert run.data.max_length == 16
    tokens = encode(tokenizer, TEXTS[-1:], None, None, 16)
    with torch.no_grad():
        expected = theirs(input_ids=tokens.ids_N.long()[None]).last_hidden_state[0]
    torch.testing.assert_close(read(network, tokenizer, 16)[-len(expected) :], expected, rtol=1e-5, atol=1e-5)


def test_what_an_experiment_sets_stays_where_weights_leave_a_choice(tmp_path):
    """MiniLM is pooled as its folder says, but by the preset that makes a class of transformers of it."""
    transformers = pytest.importorskip("transformers")
    small = transformers.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    folder = tmp_path / "sentences"
    transformers.BertModel(small).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    word_tokenizer().save(str(folder / "tokenizer.json"))
    assert train(folder).model.pooling == "mean"
    run = train(folder, "experiment=minilm")
    facts = (run.model.pooling, run.model.pooler, run.model.matches, run.linear, run.data.long, run.optim.few)
    assert facts == ("first", Pooler.tanh, False, False, Long.cut, compose("train", ["optim=finetune"]).optim.few)
    assert run.model.d_model == 8, "the weights fix the shape"
    assert train(folder, "experiment=minilm", "model.pooling=max").model.pooling == "max"


@pytest.mark.parametrize("kind", ["DebertaV2", "XLMRoberta"])
def test_unigram_tokenizers_of_transformers_give_the_same_ids(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    marks = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] if kind == "DebertaV2" else ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = ["\u2581", "\u2581play", "\u2581the", "ing", *"abcdefghijklmnopqrstuvwxyz:?"]
    vocab = [*((mark, 0.0) for mark in marks), *((piece, -float(at)) for at, piece in enumerate(pieces, 1))]
    if kind == "XLMRoberta":
        vocab.append(("<mask>", 0.0))
    theirs = getattr(transformers, f"{kind}Tokenizer")(vocab=vocab)
    theirs.save_pretrained(tmp_path)
    ours, prefixed = load_tokenizer(tmp_path), load_tokenizer(tmp_path, prefix="query: ")
    for text in ("playing  the\nflute", " \u00e9 \u2603 x ", "the?"):
        assert ours.encode(text).ids == theirs(text)["input_ids"]
        assert prefixed.encode(text).ids == theirs(f"query: {text}")["input_ids"]
    assert ours.encode("play", "the").ids == theirs("play", "the")["input_ids"]


def test_a_prefix_is_that_of_the_folder_unless_another_is_typed(tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    small = transformers.BertConfig(vocab_size=15, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    transformers.BertModel(small).save_pretrained(tmp_path)
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    described = tmp_path / "config_sentence_transformers.json"
    prompts = {"query": "find: ", "Classification": "sort: "}
    for content, prefix in (
        ({}, ""),
        ({"prompts": prompts}, "sort: "),
        ({"prompts": prompts, "default_prompt_name": "query"}, "find: "),
        ({"prompts": {"query": "find: "}, "default_prompt_name": None}, ""),
        ({"prompts": ["find: "], "default_prompt_name": 7}, ""),
    ):
        described.write_text(json.dumps(content))
        assert train(tmp_path).tokenizer.prefix == prefix
        assert train(tmp_path, "tokenizer.prefix=query: ").tokenizer.prefix == "query: "
    described.write_text(json.dumps({"prompts": prompts}))
    (tmp_path / "1_Pooling").mkdir()
    for mode, includes, prefix in (
        ("cls", False, "sort: "),
        ("mean", True, "sort: "),
        ("mean", False, ""),  # ours would be a mean of its tokens, too
    ):
        pooling = {f"pooling_mode_{mode}_token{'s' * (mode == 'mean')}": True, "include_prompt": includes}
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        assert train(tmp_path).tokenizer.prefix == prefix
        assert train(tmp_path, "tokenizer.prefix=query: ").tokenizer.prefix == "query: "
    (tmp_path / "1_Pooling" / "config.json").unlink()
    assert train(tmp_path, "tokenizer.prefix=").tokenizer.prefix == ""
    with pytest.raises(ValueError, match=r"^tokenizer\.prefix='query: ' is for weights that were trained with it"):
        compose("train", ["tokenizer.prefix=query: "])
    load_tokenizer(tmp_path, prefix="sort: ").save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        ValueError, match=r"^tokenizer\.prefix='sort: ', but the tokenizer puts 'sort: ' .*: type tokenizer\.prefix="
    ):
        given_tokenizer(train(tmp_path), pairs=False)
    with pytest.raises(ValueError, match="has 501 letters: use 500 at the most"):
        train(tmp_path, f"tokenizer.prefix={'x' * 501}")


def test_a_folder_of_a_family_may_hold_a_config_yaml_of_its_own(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "config.yaml").write_text("x: 1")
    with pytest.raises(ValueError, match="model_type=gpt2 is none that manyheads reads"):
        train(tmp_path)


def test_how_a_tokenizer_in_older_files_is_made_anew_is_said(tmp_path, python):
    """By the command that the sentence names, run as it is typed."""
    transformers = pytest.importorskip("transformers")
    small = transformers.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    transformers.BertModel(small).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "bad"])
    )
    with pytest.raises(
        ValueError, match=r"has no tokenizer\.json: make one of its vocab\.txt by python -c "
    ) as missing:
        train(tmp_path)
    with pytest.raises(ValueError, match=r"^tokenizer\.path=\S+ has no tokenizer\.json: make one of its vocab\.txt by"):
        load_tokenizer(tmp_path)
    command = shlex.split(str(missing.value).partition(" by ")[2])
    assert command[0] == "python"
    done = python.run(*command[1:])
    assert done.returncode == 0, done.stderr
    assert load_tokenizer(tmp_path).encode("Good film").ids == [2, 5, 6, 3]


def test_in_pairs_tokens_of_both_texts_are_marked_unless_told(model_folder, tmp_path):
    """A stranger's weights read a pair as before, as the marks begin at nothing; a run's have what it trained with."""
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 9}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 9, **sizes}))
    (tmp_path / "tokenizer.json").touch()
    (tmp_path / "model.safetensors").write_bytes(bytes(4096))
    assert train(tmp_path).model.matches
    assert not train(tmp_path, "model.matches=false").model.matches
    assert not train(model_folder).model.matches
