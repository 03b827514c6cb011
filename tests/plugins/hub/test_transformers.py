"""Classifiers of every shape in transformers: what `manyheads export` writes, opened, asked and trained there."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import processors
from torch.nn import functional as F

import manyheads.plugin as plugin
from manyheads.cli.main import main
from manyheads.config import (
    DataConfig,
    ModelConfig,
    PairKind,
    Placement,
    Pooler,
    Segments,
)
from manyheads.config.conversion import to_plain
from manyheads.data.batches import Batch, Planned, gather
from manyheads.data.tokens import encode
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.plugins.hub.transformers_folder import family_of, write_family

transformers = pytest.importorskip("transformers")
import manyheads.transformers as ours  # noqa: E402 - it needs transformers
from tests.conftest import SHAPE  # noqa: E402
from tests.registry import of_plugin  # noqa: E402

TEXTS = ["good film", "a very bad film", "not so awful a film, the film is fine", "so", "", "unknown words here"]
SECONDS = ["bad", "the film", "a fine film", "good good film", "a", ""]
BASE = SHAPE
SQUARE = replace(BASE, d_k=8, d_v=8)
ONE_CHOICE = {
    f"{kind} {one}": replace(BASE, **{kind: one})
    for kind in ("score", "normaliser", "positions", "pooling")
    for one in plugin.names(kind)
}
SEVERAL = zip(  # each choice once
    plugin.names("score"), *(cycle(plugin.names(kind)) for kind in ("normaliser", "positions", "pooling")), strict=False
)
SHAPES: dict[str, ModelConfig] = {
    "default": BASE,
    **ONE_CHOICE,
    **{
        f"{score}, {normaliser}, {positions}, {pooling}": replace(
            BASE, score=score, normaliser=normaliser, positions=positions, pooling=pooling
        )
        for score, normaliser, positions, pooling in SEVERAL
    },
    "windows and scores by layer": replace(BASE, windows=[2, 0], scores=["cosine", "general"]),
    "causal, shared keys": replace(BASE, causal=True, n_kv_heads=1),
    "rotary in windows": replace(BASE, positions="rotary", window=1, rotary_base_window=50.0, qk_norm=True),
    "nothing projected": replace(SQUARE, project=False, project_output=False),
    "post-norm": replace(BASE, placement=Placement.post, norm_eps=1e-12, bias=False),
    "rms both": replace(BASE, placement=Placement.both, norm="rms", activation="swiglu"),
    "narrow words": replace(BASE, d_embedding=6, norm_embedding=True, pooler=Pooler.gelu_norm),
    "segments always": replace(BASE, segments=Segments.always),
    "MiniLM's, pooled by the mean": replace(
        SQUARE, placement=Placement.post, positions="learned", segments=Segments.always, norm_eps=1e-12
    ),
}  # fmt: skip
if "gru" in plugin.names("encoder"):
    SHAPES |= {
        "gru": ModelConfig(encoder="gru", n_layers=2, d_model=16, positions="none"),
        "lstm with attention": ModelConfig(
            encoder="lstm", d_model=16, bidirectional=False, pooling="attention", score="additive", positions="none"
        ),
    }
PAIRS: dict[str, ModelConfig] = {
    "joint": BASE,
    "with matches": replace(BASE, matches=True),
    "without segments": replace(BASE, segments=Segments.never, matches=True),
    "read apart": replace(BASE, pair=PairKind.cross, matches=True, positions="rotary"),
    **{
        one: ModelConfig(encoder=one, d_model=16, positions="none", matches=True)
        for one in of_plugin("language", "encoder")[:1]
    },
}


def opened(folder: Path, kind: Any = transformers.AutoModelForSequenceClassification) -> Any:
    """As a user opens it; nothing may be missing, left over or of another size."""
    model, said = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(said[name] for name in ("missing_keys", "mismatched_keys", "error_msgs")), said
    return model.eval()


def given(folder: Path, pairs: list[str] | None = None, side: str = "right", texts: list[str] | None = None) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side=side)
    return tokenizer(texts or TEXTS, pairs, padding=True, truncation=True, return_tensors="pt")


def written(model: TextClassifier, folder: Path) -> Path:
    assert family_of(model) is None
    write_family(folder, model, None)
    return folder


@pytest.mark.parametrize(
    ("name", "pairs"),
    [pytest.param(one, False, marks=[pytest.mark.slow] * (one in ONE_CHOICE)) for one in SHAPES]
    + [(one, True) for one in PAIRS],
)
@torch.no_grad()
def test_every_shape_answers_there_as_here(name, pairs, drawn, tmp_path):
    model = drawn((PAIRS if pairs else SHAPES)[name], pairs=pairs)
    seconds = SECONDS if pairs else None
    folder = written(model, tmp_path / "theirs")
    expected = model.logits(TEXTS, seconds)
    assert float(expected.std()) > 0.1
    theirs = opened(folder)
    assert type(theirs) is ours.ManyheadsForSequenceClassification
    right, left = (theirs(**given(folder, seconds, side)).logits for side in ("right", "left"))
    torch.testing.assert_close(right, expected, rtol=0, atol=1e-5)
    assert torch.equal(left, right)
    theirs.save_pretrained(tmp_path / "again")
    again, before = (load_file(one / "model.safetensors") for one in (tmp_path / "again", folder))
    assert again.keys() == before.keys()
    assert all(torch.equal(again[one], before[one]) for one in before)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "again")
    assert to_plain(config.architecture()) == to_plain(model.model)


def only_batch(model: TextClassifier, text: str, second: str | None) -> Batch:
    """One text, or pair."""
    seconds = None if second is None else [second]
    tokens = encode(model.tokenizer, [text], seconds, [0], model.max_length, model.cutting)
    return gather(tokens, Planned(torch.tensor([0]), 1.0))


@contextmanager
def attention_maps(network: torch.nn.Module) -> Iterator[list[Any]]:
    """Of each attention within the block, in order, a function of the document: its exact weights `(H, L, M)`."""
    maps: list[Any] = []

    def note(attention: Any, given: tuple[Any, ...], output: torch.Tensor) -> None:
        x, queries, memory, keys = (*given, None, None)[:4]
        weights_BHLM = attention.maps(x, queries, memory, keys)[0]

        def of_document(document: int = 0) -> torch.Tensor:
            n, m = (int(one.lengths_B[document]) for one in (queries, keys or queries))
            return weights_BHLM[document, :, :n, :m]

        maps.append(of_document)

    hooks = [one.register_forward_hook(note) for one in network.modules() if isinstance(one, MultiHeadAttention)]
    yield maps
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize(
    ("name", "side"), [("windows and scores by layer", "right"), ("rotary in windows", "left"), ("pooling max", "left")]
)
@torch.no_grad()
def test_attentions_are_our_maps_and_hidden_states_those_of_each_layer(name, side, drawn, tmp_path):
    model = drawn(SHAPES[name])
    folder = written(model, tmp_path / "theirs")
    batch, theirs = given(folder, side=side), opened(folder)
    found = theirs(**batch, output_attentions=True, output_hidden_states=True)
    base = opened(folder, transformers.AutoModel)(**batch, output_hidden_states=True)
    assert found.attentions[0].shape == (len(TEXTS), 2, *batch["input_ids"].shape[1:] * 2)
    assert torch.equal(found.hidden_states[-1], base.last_hidden_state)
    assert len(found.hidden_states) == 3
    head = theirs.classifier(base.pooler_output)
    assert torch.equal(head, found.logits)
    for row, text in enumerate(TEXTS):
        real = batch["attention_mask"][row].bool()
        one = only_batch(model, text, None)
        with attention_maps(model.network) as maps:
            states = model.network.encode(one.ids_N, one.layout)
        for of_document, whole in zip(maps, found.attentions, strict=True):
            torch.testing.assert_close(whole[row][:, real][:, :, real], of_document(), rtol=0, atol=1e-6)
            assert not whole[row][:, ~real].any()
            assert not whole[row][:, :, ~real].any()
        torch.testing.assert_close(found.hidden_states[-1][row, real], states, rtol=0, atol=1e-5)
        embedded = model.network.embeddings(one.ids_N, one.layout)
        torch.testing.assert_close(found.hidden_states[0][row, real], embedded, rtol=0, atol=1e-6)


@torch.no_grad()
def test_maps_of_two_texts_that_are_read_apart_are_of_each_text(drawn, tmp_path):
    model = drawn(PAIRS["read apart"], pairs=True)
    folder = written(model, tmp_path / "theirs")
    found = opened(folder)(**given(folder, SECONDS, "left"), output_attentions=True, output_hidden_states=True)
    assert [len(one) for one in (*found.attentions, *found.hidden_states)] == [2 * len(TEXTS)] * 7
    for row in (0, 3):
        one = only_batch(model, TEXTS[row], SECONDS[row])
        with attention_maps(model.network) as maps:
            model.network(one.ids_N, one.layout, one.segments_N)
        for of_document, whole in zip(maps, found.attentions, strict=True):
            for of, at in ((0, row), (1, row + len(TEXTS))):
                expected = of_document(of)
                _, n, m = expected.shape
                torch.testing.assert_close(whole[at, :, :n, :m], expected, rtol=0, atol=1e-6)


@torch.no_grad()
def test_two_texts_are_told_apart_where_the_tokenizer_gives_both_one_type(drawn, tmp_path):
    """As RoBERTa's does, whose ids our own reading of pairs goes without."""
    model = drawn(PAIRS["read apart"], pairs=True)
    template = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] [SEP] $B [SEP]"}
    model.tokenizer.post_processor = processors.TemplateProcessing(
        **template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = written(model, tmp_path / "theirs")
    batch = given(folder, SECONDS)
    model.tokenizer.enable_truncation(16, strategy="longest_first")
    assert [batch["input_ids"][row][keep.bool()].tolist() for row, keep in enumerate(batch["attention_mask"])] == [
        model.tokenizer.encode(*pair).ids for pair in zip(TEXTS, SECONDS, strict=True)
    ]
    logits = opened(folder)(**batch).logits
    torch.testing.assert_close(logits, model.logits(TEXTS, SECONDS), rtol=0, atol=1e-5)
    assert given(folder)["token_type_ids"].max() == 0


@pytest.mark.slow
def test_a_pipeline_answers_in_a_process_of_its_own_without_code_of_the_folder(drawn, tmp_path):
    model = drawn()
    folder = written(model, tmp_path / "theirs")
    assert not any("auto_map" in file.read_text() for file in folder.glob("*.json"))
    assert {file.suffix for file in folder.iterdir()} == {".json", ".safetensors"}
    code = (
        "import json, sys, transformers\n"
        "import manyheads.transformers\n"
        "assert manyheads.transformers.__name__ != transformers.__name__\n"
        "classify = transformers.pipeline('text-classification', model=sys.argv[1])\n"
        "print(json.dumps(classify(json.loads(sys.argv[2]), batch_size=3, top_k=None)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, folder, json.dumps(TEXTS)], capture_output=True, text=True, check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    answers = json.loads(run.stdout)
    filled = [(text, answer) for text, answer in zip(TEXTS, answers, strict=True) if text]  # ours answers no empty text
    for answer, own in zip([answer for _, answer in filled], model.predict([text for text, _ in filled]), strict=True):
        assert answer[0]["label"] == own.label
        assert {one["label"]: one["score"] for one in answer} == pytest.approx(own.probabilities, abs=1e-5)


def test_pairs_go_through_a_pipeline(drawn, tmp_path):
    model = drawn(PAIRS["with matches"], pairs=True)
    folder = written(model, tmp_path / "theirs")
    classify = transformers.pipeline("text-classification", model=str(folder))
    found = classify([{"text": one, "text_pair": other} for one, other in zip(TEXTS, SECONDS, strict=True)])
    ours_nC = model.logits(TEXTS, SECONDS)  # of pairs with an empty text, too, which predict does not answer
    assert [one["label"] for one in found] == [model.labels[at] for at in ours_nC.argmax(1).tolist()]


def test_losses_are_those_of_the_problem(drawn, tmp_path):
    folder = written(drawn(), tmp_path / "theirs")
    model, batch = opened(folder), given(folder)
    ids, marks = torch.tensor([0, 1, 2, 0, 1, 2]), torch.eye(3)[[0, 1, 2, 2, 1, 0]]
    single = model(**batch, labels=ids)
    torch.testing.assert_close(single.loss, F.cross_entropy(single.logits, ids))
    model.config.problem_type = "multi_label_classification"
    several = model(**batch, labels=marks, return_dict=False)
    torch.testing.assert_close(several[0], F.binary_cross_entropy_with_logits(several[1], marks))
    write_family(tmp_path / "any", replace(drawn(), thresholds=[0.5, 0.3, 0.4]), None)
    assert transformers.AutoConfig.from_pretrained(tmp_path / "any").problem_type == "multi_label_classification"


@pytest.mark.parametrize("pairs", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_trainer_learns_what_a_text_says_and_saves_it(pairs, drawn, tmp_path):
    """A short fine-tuning: from weights drawn at random to every training text right."""
    pytest.importorskip("accelerate")
    folder = written(drawn(replace(BASE, matches=pairs, dropout=0.0, dropout_tokens=0.0), pairs=pairs), tmp_path / "it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["good film", "bad film", "so so", "very good", "very bad", "fine film so fine"] * 4
    seconds = [text.replace("bad", "awful") for text in texts] if pairs else [None] * len(texts)
    labels = [1, 0, 2, 1, 0, 1] * 4
    rows = [
        tokenizer(*pair) | {"labels": label}
        for pair, label in zip(zip(texts, seconds, strict=True), labels, strict=True)
    ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), num_train_epochs=12, per_device_train_batch_size=6, learning_rate=1e-2,
        report_to=[], save_strategy="steps", save_steps=48, logging_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 4
    assert trainer.predict(rows).predictions.argmax(-1).tolist() == labels
    (saved,) = (tmp_path / "out").glob("checkpoint-*")
    again = opened(saved)
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor.cpu())


def test_a_head_of_other_classes_begins_anew_and_nothing_else(drawn, tmp_path):
    folder = written(drawn(SHAPES["positions rotary"]), tmp_path / "theirs")
    before = opened(folder)
    after, said = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, id2label={at: str(at) for at in range(6)}, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert {name for name, *_ in said["mismatched_keys"]} == {"classifier.weight", "classifier.bias"}
    assert float(after.classifier.weight.detach().std()) == pytest.approx(0.02, rel=0.3)
    batch = given(folder)
    assert torch.equal(after.model(**batch).pooler_output, before.model(**batch).pooler_output)


def test_from_a_config_it_begins_as_ours_do():
    config = ours.ManyheadsConfig(model=to_plain(BASE), vocab_size=30, max_position_embeddings=8, num_labels=3)
    torch.manual_seed(4)
    model = transformers.AutoModel.from_config(config)
    torch.manual_seed(4)
    expected = ours.assemble(BASE, vocab_size=30, max_length=8, n_classes=1)
    for name, tensor in expected.state_dict().items():
        if not name.startswith("head"):
            assert torch.equal(model.network.state_dict()[name], tensor), name
    half = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.bfloat16)
    assert half(torch.arange(6)[None]).logits.dtype == torch.bfloat16


def test_word_vectors_take_the_place_of_ids(drawn, tmp_path):
    folder = written(drawn(), tmp_path / "theirs")
    model, batch = opened(folder), given(folder, side="left")
    words = model.get_input_embeddings()(batch["input_ids"])
    assert words.shape == (*batch["input_ids"].shape, 16)
    found = model(inputs_embeds=words, attention_mask=batch["attention_mask"]).logits
    assert torch.equal(found, model(**batch).logits)


@pytest.mark.parametrize("side", ["right", "left"])
def test_captum_attributes_to_tokens_what_the_answer_gained(side, drawn, tmp_path):
    """Integrated gradients add up to the difference from the answer to the baseline: Sundararajan et al. (2017)."""
    attr = pytest.importorskip("captum.attr")
    folder = written(drawn(), tmp_path / "theirs")
    model = opened(folder)
    batch = given(folder, side=side, texts=TEXTS[:3])
    ids, mask = batch["input_ids"], batch["attention_mask"]
    baseline = torch.where((ids > 4), torch.tensor(1), ids)  # [UNK] for every word

    def answer(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return model(ids, attention_mask=mask).logits.softmax(-1)

    gradients = attr.LayerIntegratedGradients(answer, model.get_input_embeddings())
    found = gradients.attribute(ids, baseline, target=1, additional_forward_args=(mask,), n_steps=200)
    assert found.shape == (*ids.shape, 16)
    assert not found[mask == 0].any()
    with torch.no_grad():
        gained = (answer(ids, mask) - answer(baseline, mask))[:, 1]
    assert float(gained.abs().max()) > 0.01
    torch.testing.assert_close(found.sum((1, 2)).float(), gained, rtol=0, atol=2e-3)


def test_bertviz_draws_the_maps(drawn, tmp_path):
    bertviz = pytest.importorskip("bertviz", reason="pip install bertviz")
    folder = written(drawn(), tmp_path / "theirs")
    batch = given(folder, texts=TEXTS[1:2])
    with torch.no_grad():
        found = opened(folder)(**batch, output_attentions=True)
    tokens = transformers.AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(batch["input_ids"][0])
    for view in (bertviz.head_view, bertviz.model_view):
        page = view(found.attentions, tokens, html_action="return").data
        assert '"awful"' not in page
        assert '"bad"' in page
        assert str(float(found.attentions[1][0, 1, 2, 1]))[:9] in page


MISTAKES = [
    ({"model": {"n_heads": 0}}, r"model\.n_heads=0 is out of range"),
    ({"model": {"_target_": "os.system"}}, "names code to call"),
    ({"model": {"n_hedas": 2}}, r"did you mean model\.n_heads\?"),
    ({"vocab_size": -1}, "vocab_size=-1 must be a whole number of at least 1"),
    ({"max_position_embeddings": 2**30}, "asks for tables of positions"),
]


@pytest.mark.parametrize(("changed", "words"), MISTAKES)
def test_a_config_of_a_stranger_is_checked(changed, words):
    with pytest.raises(ValueError, match=words):
        ours.ManyheadsConfig(**changed)


def test_what_the_model_cannot_read_is_one_sentence(drawn, tmp_path):
    folder = written(drawn(PAIRS["read apart"], pairs=True), tmp_path / "theirs")
    model = opened(folder)
    with pytest.raises(ValueError, match="token_type_ids are missing"):
        model(torch.tensor([[2, 5, 3]]))
    with pytest.raises(ValueError, match="compares words by their ids"):
        model(inputs_embeds=torch.zeros(1, 3, 16), token_type_ids=torch.zeros(1, 3).long())
    with pytest.raises(ValueError, match="has 17 tokens, but the model knows 16 positions"):
        model(torch.full((1, 17), 5), token_type_ids=torch.zeros(1, 17).long())


def test_the_verb_writes_a_shape_of_its_own_and_says_how_it_opens(ship_model, tmp_path, capsys):
    run = ship_model(tmp_path / "run" / "model", data=DataConfig(max_length=12))
    (tmp_path / "run" / "config.yaml").touch()
    assert main(["export", f"run={tmp_path / 'run'}"]) == 0
    folder = tmp_path / "run" / "transformers"
    said = (
        f"{folder}: transformers opens it as ManyheadsForSequenceClassification after `import manyheads.transformers`"
    )
    assert f"\n{said}\ncompared with the run on 10 texts " in capsys.readouterr().out  # after what else it could be
    assert "would have been refused" in (folder / "README.md").read_text(encoding="utf-8")
    theirs, batch = opened(folder), given(folder)
    model = load(run)
    assert isinstance(model, TextClassifier)
    torch.testing.assert_close(theirs(**batch).logits.detach(), model.logits(TEXTS), rtol=0, atol=1e-5)
    assert [theirs.config.id2label[at] for at in range(3)] == model.labels
    trained = copy.deepcopy(theirs)
    assert torch.equal(trained(**batch).logits, theirs(**batch).logits)
