"""Tensors of a folder under our names: as the formulas say, and never in part or by code."""

import json
import math
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LAYER = "bert.encoder.layer.0"


@pytest.fixture
def complaint(read) -> Callable[..., str]:
    def of(folder: Path, **typed: Any) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared by the caller
            read(folder, **typed)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(str(folder), "FOLDER")

    return of


def pickled(folder: Path, content: Any, **options: Any) -> Path:
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(content, folder / "pytorch_model.bin", **options)
    return folder


def test_every_tensor_stands_where_it_belongs(by_hand, read):
    folder = by_hand()
    held, ours = load_file(folder / "model.safetensors"), read(folder)[0].state_dict()
    words = ours["embeddings.words.weight"]
    torch.testing.assert_close(words * math.sqrt(4), held["bert.embeddings.word_embeddings.weight"])
    project = ours["encoder.layers.0.attention.block.project.weight"]
    for part, name in zip(project.split(4), ("query", "key", "value"), strict=True):
        assert torch.equal(part, held[f"{LAYER}.attention.self.{name}.weight"])
    assert torch.equal(ours["pooling.dense.bias"], held["bert.pooler.dense.bias"])
    assert torch.equal(ours["head.weight"], held["classifier.weight"])


def test_shorter_texts_need_fewer_positions(by_hand, read):
    folder = by_hand()
    network, _ = read(folder, max_length=5)
    held = load_file(folder / "model.safetensors")["bert.embeddings.position_embeddings.weight"]
    assert torch.equal(network.state_dict()["embeddings.positions.weight"], held[:5])


def test_a_head_or_pooler_that_is_not_there_starts_anew_and_one_too_many_is_left(by_hand, read):
    nothing = dict.fromkeys(["classifier.weight", "classifier.bias"])
    other_heads = {"cls.predictions.bias": torch.zeros(9), "bert.embeddings.position_ids": torch.arange(8)[None]}
    read(by_hand(nothing | other_heads))
    read(by_hand(dict.fromkeys(["bert.pooler.dense.weight", "bert.pooler.dense.bias"])))
    network, _ = read(by_hand(), pooling="mean", pooler="none", pair="cross", head=False)
    assert network.cross is not None
    network, _ = read(by_hand(), matches=True)
    assert network.embeddings.matches is not None


def test_names_of_an_encoder_alone_and_of_2019(by_hand, read):
    expected = read(by_hand())[0].encoder.state_dict()
    folder = by_hand()
    held = load_file(folder / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        held = {key.replace(new, name): tensor for key, tensor in held.items()}
    bare = {key.removeprefix("bert."): one for key, one in held.items() if not key.startswith("classifier")}
    save_file(bare, folder / "model.safetensors")
    for name, tensor in read(folder)[0].encoder.state_dict().items():
        assert torch.equal(tensor, expected[name])


def test_weights_in_parts_in_half_precision_and_pickled_are_the_same(by_hand, read):
    folder = by_hand()
    expected = read(folder)[0].state_dict()
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index: dict[str, str] = {}
    for at, name in enumerate(held):
        index[name] = f"model-{at % 2}.safetensors"
    for part in set(index.values()):
        save_file({name: one.half() for name, one in held.items() if index[name] == part}, folder / part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    for name, tensor in read(folder)[0].state_dict().items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, expected[name], atol=2e-3, rtol=1e-3)
    (folder / "model.safetensors.index.json").unlink()
    for name, tensor in read(pickled(folder, held))[0].state_dict().items():
        assert torch.equal(tensor, expected[name])


def test_what_lacks_or_is_too_much_is_listed(by_hand, complaint):
    gone = f"{LAYER}.attention.output.dense.bias"
    assert complaint(by_hand({gone: None})) == (
        f"init_from=FOLDER lacks {gone}, which its config.json asks for: fetch the model anew, or name another"
    )
    extra = {f"bert.encoder.layer.{i}.output.dense.bias": torch.zeros(4) for i in (1, 2)}
    assert complaint(by_hand(extra)) == (
        "init_from=FOLDER holds bert.encoder.layer.1.output.dense.bias, bert.encoder.layer.2.output.dense.bias, "
        "which its config.json does not ask for: fetch the model anew, or name another"
    )
    assert complaint(by_hand({"classifier.bias": None})) == (
        "init_from=FOLDER lacks classifier.bias, which its config.json asks for: fetch the model anew, or name another"
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (f"{LAYER}.attention.self.key.bias", (5,)),
        (f"{LAYER}.attention.self.key.weight", (4, 1)),
        ("bert.embeddings.word_embeddings.weight", (10, 4)),
        ("bert.embeddings.word_embeddings.weight", (36,)),
        ("bert.embeddings.position_embeddings.weight", (7, 4)),
        ("bert.embeddings.position_embeddings.weight", (8, 1)),
        ("bert.embeddings.position_embeddings.weight", (32,)),
        ("classifier.weight", (2, 4)),
        (f"{LAYER}.output.dense.bias", ()),
    ],
)
def test_another_size_is_refused(by_hand, complaint, name, size):
    said = complaint(by_hand({name: torch.zeros(size)}))
    assert name in said
    assert str(list(size)) in said


def test_a_row_of_segments_that_does_not_fit_the_positions_is_refused(by_hand, complaint):
    segments = {"bert.embeddings.token_type_embeddings.weight": torch.zeros(1, 1)}
    assert "position_embeddings" in complaint(by_hand(segments, type_vocab_size=1))
    many = {"bert.embeddings.token_type_embeddings.weight": torch.zeros(8, 4)}
    assert "position_embeddings" in complaint(by_hand(many, type_vocab_size=1))


def test_a_setting_the_family_has_not_is_named(by_hand, complaint):
    assert complaint(by_hand(), qk_norm=True) == (
        "encoder.layers.0.attention.block.query_norm.weight is part of the model, but a model of bert has none: "
        "remove that setting"
    )


@pytest.mark.parametrize("kind", ["int8", "uint8", "float8_e4m3fn"])
def test_quantised_numbers_are_refused(kind, by_hand, complaint):
    name = f"{LAYER}.output.dense.weight"
    assert complaint(by_hand({name: torch.ones(4, 6).to(getattr(torch, kind))})) == (
        f"init_from=FOLDER: {name} is of type {kind}, as in quantised models, but weights of at least 16 bits are "
        "needed: name the model it was made from"
    )


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_other_floating_numbers_are_read_in_fp32(kind, by_hand, read):
    folder = by_hand({f"{LAYER}.output.dense.bias": torch.full((4,), 0.5, dtype=getattr(torch, kind))})
    network, _ = read(folder)
    found = network.state_dict()["encoder.layers.0.feed_forward.block.narrow.bias"]
    assert found.equal(torch.full((4,), 0.5))


def test_numbers_that_are_not_finite_are_refused(by_hand, complaint):
    assert complaint(by_hand({f"{LAYER}.output.dense.bias": torch.full((4,), math.nan)})) == (
        "init_from=FOLDER: encoder.layers.0.feed_forward.block.narrow.bias hold values that are not finite numbers"
    )


class Bomb:
    """What runs when a pickle of it is opened without care."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("ran", "w")


def test_no_pickle_of_a_stranger_runs(by_hand, complaint, monkeypatch, tmp_path):
    folder = by_hand()
    held: dict[str, Any] = load_file(folder / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    said = "FOLDER/pytorch_model.bin holds more than tensors, or is damaged: save the model as safetensors"
    assert complaint(pickled(folder, held | {"classifier.bias": Bomb()})) == said
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()) + b"." * 999)
    assert "old format" in complaint(folder)
    assert "old format" in complaint(pickled(folder, held, _use_new_zipfile_serialization=False))
    assert not (tmp_path / "ran").exists()
    assert "is not a list of named tensors" in complaint(pickled(folder, [torch.zeros(9)] * 100))
    sparse: dict[str, Tensor] = held | {"classifier.bias": torch.zeros(3).to_sparse()}
    assert "FOLDER/pytorch_model.bin" in complaint(pickled(folder, sparse))


def test_a_pickle_that_grows_when_it_is_opened_is_refused(by_hand, complaint):
    folder = pickled(by_hand(), {"x": torch.zeros(10**6)})
    with zipfile.ZipFile(folder / "pytorch_model.bin") as stored:
        parts = {one.filename: stored.read(one) for one in stored.infolist()}
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as small:
        for name, content in parts.items():
            small.writestr(name, content)
    assert "is compressed" in complaint(folder)


def test_a_damaged_archive_is_one_sentence(by_hand, complaint):
    file = pickled(by_hand(), {"x": torch.zeros(9000)}) / "pytorch_model.bin"
    content = bytearray(file.read_bytes())
    content[content.rfind(b"PK\x01\x02")] = 0
    file.write_bytes(content)
    assert "holds more than tensors, or is damaged" in complaint(file.parent)


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 400, b"\x10\0\0\0\0\0\0\0" + b"{" * 400], ids=["empty", "ff", "braces"]
)
def test_a_broken_file_is_one_sentence(by_hand, complaint, content):
    folder = by_hand()
    (folder / "model.safetensors").write_bytes(content)
    assert "FOLDER" in complaint(folder)
