"""What `manyheads export` writes, opened by transformers: the same logits, ids and names of classes."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from manyheads.cli.main import main
from manyheads.config import DataConfig, Long, ModelConfig, Placement, Pooler, Segments
from manyheads.data.tokenizer import load_tokenizer
from manyheads.inference.folder import load, save
from manyheads.linear.blend import Blend
from manyheads.nn import assemble
from manyheads.plugins.hub.config import ExportConfig
from manyheads.plugins.hub.export import export
from manyheads.plugins.hub.families import MarkIds
from manyheads.plugins.hub.graph_folder import plain_tokenizer
from manyheads.plugins.hub.sentence_folder import modules_of, write_sentence_folder
from manyheads.plugins.hub.shapes import describe_as_family, read_shape
from manyheads.plugins.hub.transformers_folder import described_as, family_tensors, write_family
from manyheads.plugins.hub.weights import read_family
from tests.core.data.test_tokens import TOKENIZERS, TYPED

transformers = pytest.importorskip("transformers")

TEXTS = ["good film", "a very bad film", "not so awful a film, the film is fine", "so", "unknown words here"]
SECONDS = ["bad", "the film", "a fine film", "good good", "a"]
BERT = ModelConfig(
    n_layers=2, n_heads=2, d_model=16, d_k=8, d_v=8, d_ff=24, positions="learned", segments=Segments.always,
    placement=Placement.post, norm_eps=1e-12, pooling="first", pooler=Pooler.tanh,
)  # fmt: skip
MODERN = ModelConfig(
    n_layers=4, n_heads=2, d_model=16, d_k=8, d_v=8, d_ff=24, positions="rotary", rotary_base=5_000.0,
    rotary_base_window=100.0, windows=[0, 2], segments=Segments.never, activation="geglu", norm_bias=False,
    norm_embedding=True, bias=False, pooling="mean", pooler=Pooler.gelu_norm,
)  # fmt: skip
DEBERTA = replace(
    BERT, encoder="deberta", positions="none", segments=Segments.never, norm_eps=1e-7, pooler=Pooler.gelu,
    encoder_options={"buckets": 6, "max_distance": 12},
)  # fmt: skip
SHAPES = {  # ours, to the class of transformers that opens them
    "bert": (BERT, "BertForSequenceClassification"),
    "bert of sines": (replace(BERT, positions="sinusoidal"), "BertForSequenceClassification"),
    "bert without order": (replace(BERT, positions="none"), "BertForSequenceClassification"),
    "bert of pairs alone": (replace(BERT, segments=Segments.pairs), "BertForSequenceClassification"),
    "bert of relu": (replace(BERT, activation="relu", norm_eps=None), "BertForSequenceClassification"),
    "roberta": (replace(BERT, segments=Segments.never), "RobertaForSequenceClassification"),
    "electra": (replace(BERT, pooler=Pooler.gelu, d_embedding=6), "ElectraForSequenceClassification"),
    "distilbert": (
        replace(BERT, segments=Segments.never, pooler=Pooler.relu),
        "DistilBertForSequenceClassification",
    ),
    "modernbert": (MODERN, "ModernBertForSequenceClassification"),
    "modernbert with biases": (
        replace(MODERN, bias=True, norm_bias=True, windows=[], pooling="first"),
        "ModernBertForSequenceClassification",
    ),
    "deberta": (DEBERTA, "DebertaV2ForSequenceClassification"),
    "deberta of positions and segments": (
        replace(DEBERTA, positions="learned", segments=Segments.always, pooler=Pooler.tanh),
        "DebertaV2ForSequenceClassification",
    ),
    "deberta with matrices of its own": (
        replace(DEBERTA, encoder_options={"share": False, "norm": False, "buckets": 0, "convolution": 3}),
        "DebertaV2ForSequenceClassification",
    ),
}


def opened(folder: Path) -> tuple[Any, Any]:
    """As a user of transformers opens the folder, all of whose weights must have been in it."""
    model, said = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(said.values()), said
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def answered(folder: Path, texts: list[str], pairs: list[str] | None) -> torch.Tensor:
    model, tokenizer = opened(folder)
    with torch.no_grad():
        return model(**tokenizer(texts, pairs, padding=True, truncation=True, return_tensors="pt")).logits


def in_turn(names: Iterable[str]) -> list[Any]:
    """Of these names the first takes texts, the next pairs and so on; the others of both are slow."""
    every = product(enumerate(names), (False, True))
    return [pytest.param(one, pairs, marks=[pytest.mark.slow] * (at % 2 != pairs)) for (at, one), pairs in every]


@pytest.mark.parametrize(("name", "pairs"), in_turn(SHAPES))
def test_transformers_answers_as_we_do(name, pairs, drawn, tmp_path):
    shape, kind = SHAPES[name]
    model = drawn(shape, pairs=pairs)
    write_family(tmp_path / "theirs", model, described_as(model))
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["architectures"] == [kind]
    seconds = SECONDS if pairs else None
    logits = model.logits(TEXTS, seconds)
    torch.testing.assert_close(answered(tmp_path / "theirs", TEXTS, seconds), logits, rtol=0, atol=1e-5)
    assert float(logits.std()) > 0.1


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "xlm-roberta", "electra", "distilbert", "modernbert", "deberta-v2"]
)
def test_there_and_back_it_is_the_same_model(kind, theirs, read, tmp_path):
    """A folder of theirs, read by us and written again. RoBERTa's only segment comes back within its positions."""
    before = theirs(kind)
    before.save_pretrained(tmp_path / "before")
    network, shape = read(tmp_path / "before")
    described = describe_as_family(
        shape.config(),
        vocab_size=shape.vocab_size,
        max_length=shape.max_length,
        has_segments=network.embeddings.segments is not None,
        marks=MarkIds({"pad": 1}, is_unigram=kind == "xlm-roberta"),
    )
    assert (described.kind, described.shape.first_position) == (kind, shape.first_position)
    after = type(before)(type(before.config)(**described.config, num_labels=3)).eval()
    after.load_state_dict(family_tensors(network, described))
    ids = torch.tensor([[2, 5, 9, 3], [2, 11, 3, 1]])
    keep = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        one, other = (model(input_ids=ids, attention_mask=keep).logits for model in (before, after))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-5)
    if "roberta" not in kind:
        for name, tensor in before.state_dict().items():
            torch.testing.assert_close(after.state_dict()[name], tensor, rtol=0, atol=1e-6)


def test_a_tokenizer_comes_along_with_the_same_ids(drawn, tmp_path):
    model = drawn(BERT, pairs=True)
    write_family(tmp_path / "theirs", model, described_as(model))
    _, tokenizer = opened(tmp_path / "theirs")
    for pair in zip(TEXTS, SECONDS, strict=True):
        ours, its = model.tokenizer.encode(*pair), tokenizer(*pair)
        assert (its["input_ids"], its["token_type_ids"]) == (ours.ids, ours.type_ids)
    assert tokenizer.model_max_length == 16
    assert (tokenizer.pad_token, tokenizer.mask_token) == ("[PAD]", "[MASK]")


def shipped(family: str, folder: Path, shape: ModelConfig, *, pairs: bool = False) -> Any:
    """A model with the tokenizer of a family, its weights drawn at random."""
    TOKENIZERS[family]().save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(folder)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_length": 48, "n_segments": 2 if pairs else 0}
    torch.manual_seed(0)
    network = assemble(shape, **sizes, n_classes=2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    data, labels = DataConfig(max_length=48), ["a", "b"]
    save(folder / "model", network, model=shape, data=data, tokenizer=tokenizer, pairs=pairs, labels=labels)
    return load(folder / "model")


@pytest.mark.parametrize(("family", "pairs"), in_turn(TOKENIZERS))
def test_marks_that_are_typed_in_a_text_are_text_to_transformers_too(family, pairs, tmp_path):
    model = shipped(family, tmp_path, replace(BERT, segments=Segments.never), pairs=pairs)
    export(ExportConfig(run=str(tmp_path / "model"), output=str(tmp_path / "theirs")))
    seconds = TYPED[::-1] if pairs else None
    torch.testing.assert_close(
        answered(tmp_path / "theirs", TYPED, seconds), model.logits(TYPED, seconds), rtol=0, atol=5e-5
    )
    assert "such as [SEP] or </s> that is typed in a text is text.\ntransformers reads it so by `split_special" in (
        (tmp_path / "theirs" / "README.md").read_text()
    )


@pytest.mark.parametrize("family", TOKENIZERS)
def test_marks_are_text_to_whatever_opens_the_file_of_a_graph_but_where_ids_would_move_up(family, tmp_path):
    TOKENIZERS[family]().save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    written, is_plain = plain_tokenizer(ours)
    assert is_plain is (family != "modernbert")
    read = Tokenizer.from_str(written.to_str())
    read.encode_special_tokens = not is_plain
    for text in (*TEXTS, *TYPED, "[unused0]"):
        assert read.encode(text, text).ids == ours.encode(text, text).ids


def test_a_model_that_was_trained_to_read_marks_is_exported_so(drawn, tmp_path):
    drawn(BERT)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"reads_marks": True}))
    export(ExportConfig(run=str(tmp_path / "model"), output=str(tmp_path / "theirs")))
    _, tokenizer = opened(tmp_path / "theirs")
    assert tokenizer("good [SEP]")["input_ids"].count(tokenizer.sep_token_id) == 2
    assert "typed in a text is that mark, as it was in training." in (tmp_path / "theirs" / "README.md").read_text()


def test_what_was_written_is_read_again_by_init_from(drawn, tmp_path):
    model = drawn(BERT)
    write_family(tmp_path / "theirs", model, described_as(model))
    shape = read_shape(tmp_path / "theirs")
    wanted = {name: list(one.shape) for name, one in model.network.state_dict().items()}
    found = read_family(tmp_path / "theirs", shape, wanted)
    for name, tensor in model.network.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)


def test_classes_go_by_their_names_and_any_number_of_them_by_thresholds(drawn, tmp_path):
    model = drawn(BERT)
    write_family(tmp_path / "one", model, described_as(model))
    config = transformers.AutoConfig.from_pretrained(tmp_path / "one")
    assert [config.id2label[at] for at in range(3)] == model.labels
    assert (config.problem_type, config.num_labels) == ("single_label_classification", 3)
    write_family(tmp_path / "any", replace(model, thresholds=[0.5, 0.3, 0.4]), described_as(model))
    assert transformers.AutoConfig.from_pretrained(tmp_path / "any").problem_type == "multi_label_classification"
    assert json.loads((tmp_path / "any" / "thresholds.json").read_text()) == [0.5, 0.3, 0.4]
    classify = transformers.pipeline("text-classification", str(tmp_path / "one"))
    assert [one["label"] for one in classify(TEXTS)] == [one.label for one in model.predict(TEXTS)]


def test_the_same_run_gives_the_same_bytes(drawn, tmp_path):
    model = drawn(BERT)
    for name in ("one", "other"):
        write_family(tmp_path / name, model, described_as(model))
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "other" / file.name).read_bytes()


FOREIGN = [
    (
        {"placement": Placement.pre, "pooling": "mean", "pooler": Pooler.none},
        "has a shape of its own, which no family of transformers has; nearest to it is Bert, which has "
        "model.placement=post: train with these settings or by init_from=<such a model>, or use format=transformers",
    ),
    ({"d_k": 6}, "has model.n_heads=2 with model.d_k=6 and model.d_v=8, which do not share out model.d_model=16"),
    ({"qk_norm": True}, "which has model.qk_norm=false: train with"),
    ({"norm_bias": False}, "nearest to it is Bert, which has model.norm_bias=true"),
    ({"windows": [2]}, "nearest to it is Bert, which has model.windows=[0,0]"),
]


@pytest.mark.parametrize(("changed", "sentence"), FOREIGN)
def test_an_encoder_of_no_family_is_refused_by_what_differs(changed, sentence, ship_model, tmp_path, capsys):
    ship_model(tmp_path / "run" / "model", data=DataConfig(max_length=12), shape=replace(BERT, **changed))
    assert main(["export", f"run={tmp_path / 'run'}", "format=sentence_transformers"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"run={tmp_path / 'run'} has ")
    assert sentence in said
    assert said.count("\n") == 1
    assert [one.name for one in (tmp_path / "run").iterdir()] == ["model"]


def test_the_verb_writes_beside_the_model_and_never_over_anything(ship_model, tmp_path, capsys):
    ship_model(tmp_path / "run" / "model", data=DataConfig(max_length=12), shape=BERT)
    (tmp_path / "run" / "config.yaml").touch()
    assert main(["export", f"run={tmp_path / 'run'}"]) == 0
    said, bars = capsys.readouterr()
    assert not bars, "transformers draws bars while it loads"
    assert said.startswith(f"{tmp_path / 'run' / 'transformers'}: transformers.BertForSequenceClassification")
    assert {file.name for file in (tmp_path / "run" / "transformers").iterdir()} == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert main(["export", f"run={tmp_path / 'run'}"]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_link_to_an_empty_folder_stays_and_what_it_leads_to_is_filled(ship_model, tmp_path):
    ship_model(tmp_path / "run" / "model", data=DataConfig(max_length=12), shape=BERT)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert main(["export", f"run={tmp_path / 'run' / 'model'}", f"output={tmp_path / 'link'}"]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "model.safetensors").is_file()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "run", "there"]


@pytest.mark.parametrize("long", list(Long))
def test_the_verb_says_where_long_texts_are_read_otherwise(long, ship_model, tmp_path, capsys):
    data = DataConfig(max_length=12, long=long)
    run = ship_model(tmp_path / "model", data=data, shape=BERT)
    export(ExportConfig(run=str(run), output=str(tmp_path / "theirs")))
    said = "It cuts texts at their end after 12 tokens, where the run reads longer ones by data.long="
    assert (said in capsys.readouterr().out) is (long is not Long.cut)


def test_what_answers_otherwise_is_refused_with_the_text_and_leaves_nothing(drawn, tmp_path, monkeypatch):
    drawn(BERT)
    (tmp_path / "new").mkdir()

    def other(*asked: Any, **named: Any) -> dict[str, torch.Tensor]:
        tensors = family_tensors(*asked, **named)
        tensors["classifier.bias"][0] += 1e-3
        return tensors

    monkeypatch.setattr("manyheads.plugins.hub.transformers_folder.family_tensors", other)
    said = r"^run=.* answers otherwise by format=transformers: the logits of .* differ by 1\.0e-03, more than 5e-05"
    with pytest.raises(ValueError, match=said):
        export(ExportConfig(run=str(tmp_path / "model"), output=str(tmp_path / "new" / "out")))
    assert list((tmp_path / "new").iterdir()) == []


def test_the_folder_says_what_it_was_compared_on(drawn, tmp_path):
    drawn(BERT, pairs=True)
    export(ExportConfig(run=str(tmp_path / "model"), output=str(tmp_path / "out")))
    said = (tmp_path / "out" / "README.md").read_text()
    assert "10 pairs made of its vocabulary, as its data cannot be read, and 9 odd ones (empty, one word" in said
    assert "more than 5e-05 would have been refused" in said


POOLED = {
    "mean": replace(BERT, pooling="mean", pooler=Pooler.none),
    "max and a layer": replace(BERT, pooling="max", pooler=Pooler.gelu, segments=Segments.never),
    "first of a modern one": replace(MODERN, pooling="first", pooler=Pooler.none),
}


@pytest.mark.parametrize("name", POOLED)
def test_any_pooling_goes_into_modules_of_its_own(name, drawn, tmp_path):
    """The modules by hand, as sentence-transformers documents them, and by itself where it is installed."""
    model = drawn(POOLED[name])
    logits = model.logits(TEXTS)
    folder = tmp_path / "theirs"
    write_sentence_folder(folder, model, described_as(model, pooled=False), modules_of(model))
    encoder = transformers.AutoModel.from_pretrained(folder).eval()
    given = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    keep_BL1 = given["attention_mask"][..., None]
    with torch.no_grad():
        x_BLD = encoder(**given).last_hidden_state
    x = {
        "mean": lambda: (x_BLD * keep_BL1).sum(1) / keep_BL1.sum(1),
        "max": lambda: x_BLD.masked_fill(keep_BL1 == 0, -1e9).amax(1),
        "first": lambda: x_BLD[:, 0],
    }[POOLED[name].pooling]()
    for place in sorted(folder.glob("*_Dense")):
        weights = load_file(place / "model.safetensors")
        x = torch.nn.functional.linear(x, weights["linear.weight"], weights["linear.bias"])
        if json.loads((place / "config.json").read_text())["activation_function"].endswith("GELU"):
            x = torch.nn.functional.gelu(x)
    head = load_file(folder / "head.safetensors")
    torch.testing.assert_close(torch.nn.functional.linear(x, **head), logits, rtol=0, atol=1e-5)
    assert read_shape(folder).model["pooling"] == POOLED[name].pooling
    sentence_transformers = pytest.importorskip("sentence_transformers")
    found = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(found, x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert"])
def test_an_encoder_of_ours_has_every_weight_that_transformers_looks_for(kind, drawn, tmp_path):
    """None is drawn at random, which transformers would warn of as "newly initialized"."""
    model = drawn(replace(SHAPES[kind][0], pooling="mean", pooler=Pooler.none))
    described = described_as(model, pooled=False)
    write_sentence_folder(tmp_path / "theirs", model, described, modules_of(model))
    _, said = transformers.AutoModel.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not any(said.values()), said


@pytest.mark.parametrize("words", [[], ["members=network"]])
def test_a_linear_model_beside_the_network_stays_behind_and_is_named_first(words, drawn, tmp_path, monkeypatch, capsys):
    model, run = drawn(BERT), tmp_path / "model"
    logits = model.logits(TEXTS)
    with_linear = replace(model, blend=Blend(cast(Any, None), 0.4))
    monkeypatch.setattr("manyheads.plugins.hub.write.load", lambda *folder: with_linear)
    assert main(["export", f"run={run}", f"output={tmp_path / 'theirs'}", *words]) == 0
    torch.testing.assert_close(answered(tmp_path / "theirs", TEXTS, None), logits, rtol=0, atol=1e-5)
    first, *_ = capsys.readouterr().out.splitlines()
    said = "Only the network is exported: in the answers of the run the linear model has a weight of 40%"
    assert first.startswith(said) is not bool(words)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_shape_that_opens_with_manyheads_alone_is_named_first(pooling, ship_model, tmp_path, monkeypatch, capsys):
    """As that of MiniLM, unless it pools by the first token as experiment=minilm does."""
    shape = replace(BERT, pooling=pooling, pooler=Pooler.none if pooling == "mean" else Pooler.tanh)
    ship_model(tmp_path / "model", shape=shape)
    monkeypatch.setattr("manyheads.plugins.hub.write.write_family", lambda *_: pytest.fail("it was not said before"))
    with pytest.raises(BaseException, match="it was not said before"):
        export(ExportConfig(run=str(tmp_path / "model"), output=str(tmp_path / "theirs")))
    first = (
        "No class of transformers has the shape of the run, so that its export opens only where manyheads is installed:"
    )
    assert capsys.readouterr().out.startswith(f"{first} format=onnx opens without it") is (pooling == "mean")


def test_the_verb_writes_an_encoder_for_vectors_and_says_how_it_opens(ship_model, tmp_path, capsys):
    ship_model(tmp_path / "run" / "model", data=DataConfig(max_length=12), shape=POOLED["mean"])
    pytest.importorskip("sentence_transformers")
    assert (
        main(["export", f"run={tmp_path / 'run'}", "format=sentence_transformers", f"output={tmp_path / 'new'}"]) == 0
    )
    said = f"{tmp_path / 'new'}: sentence_transformers.SentenceTransformer opens it and gives a vector a text; "
    said += "head.safetensors makes logits of it\ncompared with the run on 10 texts made of its vocabulary"
    out, bars = capsys.readouterr()
    assert (out.startswith(said), bars) == (True, "")
    assert (tmp_path / "new" / "modules.json").is_file()
