"""Deliverables of strangers: config.json, labels.json, tokenizer.json, model.safetensors, each hostile in turn."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyheads.cli.verbs import VERBS

TEXT = "text=it purrs so"


def refused(victim: Any, model: Path, canary: Path, *parts: str, alone: bool = True) -> str:
    said = victim.refused(["predict", f"run={model}", TEXT], model.parent, *parts, alone=alone)
    assert not canary.exists()
    return said


def test_the_honest_copy_answers(victim, model):
    answer = victim.attempt(["predict", f"run={model}", TEXT], model.parent)
    assert answer["code"] == 0, answer["err"]
    victim.harmless(answer)


KINDS = ["a pickle", "a pickle of protocol 0", "torch's zip", "torch's old form", "a checkpoint of Lightning",
         "an optimiser that reduces", "half a zip", "no file at all", "noise"]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS[:2], *[pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[2:]]])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "labels.json"])
def test_what_is_unpickled_elsewhere_is_not_here(name, kind, victim, model, payloads, canary):
    (model / name).write_bytes(payloads[kind])
    refused(victim, model, canary, str(model / name))


def test_a_checkpoint_of_lightning_is_no_run(victim, tmp_path, payloads, canary):
    file = tmp_path / "epoch=3.ckpt"
    file.write_bytes(payloads["a checkpoint of Lightning"])
    for verb in {"predict", "evaluate", "look"} & VERBS.keys():
        typed = [TEXT] if verb != "evaluate" else []
        victim.refused([verb, f"run={file}", *typed], tmp_path, "it is a file")
    victim.refused(["train", f"resume={file}"], tmp_path, "neither never, auto or must nor the folder of a run")
    assert not canary.exists()


def test_files_of_other_programs_beside_it_are_never_opened(victim, model, payloads, canary):
    for name in ("pytorch_model.bin", "model.pt", "tokenizer.pkl", "modeling_evil.py", "__init__.py", "setup.py"):
        (model / name).write_bytes(payloads["a pickle"])
    answer = victim.attempt(["predict", f"run={model}", TEXT], model.parent)
    assert answer["code"] == 0
    victim.harmless(answer)
    assert not canary.exists()


HEADERS: dict[str, Any] = {
    "longer than any file": (2**40).to_bytes(8, "little") + b"{}",
    "of the greatest length": b"\xff" * 8 + b"{}",
    "nested without end": (100_000).to_bytes(8, "little") + b"[" * 100_000,
    "of numbers beyond the file": {"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}},
    "of numbers that overflow": {"x": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}},
    "of dimensions without end": {"x": {"dtype": "F32", "shape": [1] * 100_000, "data_offsets": [0, 4]}},
    "of nothing, in huge dimensions": {"x": {"dtype": "F32", "shape": [2**62, 0, 2**62], "data_offsets": [0, 0]}},
    "of a million tensors": {f"x{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(100_000)},
    "of tensors that overlap": {
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "y": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
    },
    "of offsets that go backwards": {"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
    "of negative offsets": {"x": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}},
    "of an unknown type": {"x": {"dtype": "PICKLE", "shape": [8], "data_offsets": [0, 8]}},
    "of a type of half a byte": {"x": {"dtype": "F4", "shape": [16], "data_offsets": [0, 8]}},
}


@pytest.mark.parametrize("kind", HEADERS)
def test_tensors_that_claim_too_much(kind, victim, model, canary):
    header = HEADERS[kind]
    if isinstance(header, dict):
        plain = json.dumps(header).encode()
        header = len(plain).to_bytes(8, "little") + plain
    (model / "model.safetensors").write_bytes(header + bytes(64))
    refused(victim, model, canary, str(model / "model.safetensors"))


def config(**change: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content | change


def of_model(**change: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content | {"model": content["model"] | change}


CONFIGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "_target_": config(_target_="os.system"),
    "_target_ of the model": of_model(_target_="os.system"),
    "_target_ as a value": of_model(score={"_target_": "os.system", "command": "touch canary"}),
    "_target_ in a list": of_model(scores=[{"_target_": "os.system"}]),
    "auto_map": config(auto_map={"AutoModel": "modeling_evil.Evil"}),
    "architectures": config(architectures=["Evil"], model_type="evil"),
    "trust_remote_code": config(trust_remote_code=True),
    "attention from the hub": of_model(_attn_implementation="evil/kernel"),
    "a width of a thousand million": of_model(d_model=10**9),
    "heads of a thousand million": of_model(n_heads=10**9),
    "layers of a thousand million": of_model(n_layers=10**9),
    "windows of a thousand million": of_model(windows=[10**9] * 10**5),
    "a vocabulary beyond the file": config(vocab_size=2**62),
    "classes beyond the file": config(n_classes=2**62),
    "a length beyond all": config(max_length=2**62),
    "a number of thousands of digits": lambda content: json.dumps(content).replace(": 1", ": 1" + "0" * 9000),
    "a number that is none": lambda content: json.dumps(content | {"vocab_size": float("nan")}),
    "infinity": of_model(dropout=float("inf")),
    "a negative number": of_model(d_model=-1),
    "an interpolation": of_model(score="${oc.env:HOME}"),
    "nested without end": lambda content: '{"model": ' * 50_000 + "1" + "}" * 50_000,
    "a list of lists without end": lambda content: "[" * 1_000_000,
    "a key twice": lambda content: json.dumps(content)[:-1] + ', "task": "classify"}',
    "no mapping": lambda content: [content],
    "an unknown key": config(evil=1),
    "a key of a megabyte": config(**{"x" * 10**6: 1}),
    "a value of a megabyte": of_model(score="x" * 10**6),
    "the dunder of a class": of_model(__class__="x", __init__="y"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_that_asks_for_more(kind, victim, model, canary):
    file = model / "config.json"
    changed = CONFIGS[kind](json.loads(file.read_text()))
    file.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    refused(victim, model, canary, str(model))


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPLIT = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}


def of_model_of(**change: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content | {"model": content["model"] | change}


def mark(**change: Any) -> Callable[[dict[str, Any]], Any]:
    def changed(content: dict[str, Any]) -> Any:
        content["post_processor"]["special_tokens"]["[CLS]"].update(change)
        return content

    return changed


TOKENIZERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no JSON": lambda content: "import os; os.system('touch canary')",
    "nested without end": lambda content: '{"normalizer": ' * 50_000,
    "normalizers nested without end": config(
        normalizer=json.loads('{"type": "Sequence", "normalizers": [' * 200 + "]}" * 200)
    ),
    "of an unknown kind": of_model_of(type="Pickle"),
    "an id beyond all": lambda content: content["model"]["vocab"].update(far=2**32 - 1) or content,
    "an id that does not fit": lambda content: content["model"]["vocab"].update(far=2**70) or content,
    "a negative id": lambda content: content["model"]["vocab"].update(far=-1) or content,
    "a mark beyond all": mark(ids=[2**32 - 1]),
    "a million marks": mark(ids=[2] * 10**6, tokens=["[CLS]"] * 10**6),
    "an entry of a megabyte": lambda content: content["model"]["vocab"].update({"x" * 10**6: 10**6}) or content,
    "a pattern that is none": config(pre_tokenizer=SPLIT | {"pattern": {"Regex": "("}}),
    "replacements that double": config(normalizer={"type": "Sequence", "normalizers": [REPLACE] * 60}),
    "replacements of letters by books": config(normalizer=REPLACE | {"content": "x" * 10**6}),
    "a beginning of a megabyte": config(normalizer={"type": "Prepend", "prepend": "x" * 10**6}),
    "answers that double": config(decoder={"type": "Sequence", "decoders": [REPLACE] * 60}),
    "a table of characters that is none": config(
        normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 9).decode()}
    ),
    "a table that leads out of itself": config(
        normalizer={
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode((8).to_bytes(4, "little") + b"\xff" * 8 + b"abc\0").decode(),
        }
    ),
    "no marks": config(post_processor=None),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_tokenizer_that_asks_for_more(kind, victim, model, canary):
    file = model / "tokenizer.json"
    changed = TOKENIZERS[kind](json.loads(file.read_text()))
    file.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    part = "data.max_length" if kind == "a million marks" else str(file)
    refused(victim, model, canary, part, alone=kind != "a table that leads out of itself")  # the library says so, too


def test_padding_without_end_is_not_done(victim, model, canary):
    file = model / "tokenizer.json"
    content = json.loads(file.read_text())
    content["padding"] = {"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                          "pad_type_id": 0, "pad_token": "[PAD]"}  # fmt: skip
    file.write_text(json.dumps(content))
    answer = victim.attempt(["predict", f"run={model}", TEXT], model.parent)
    assert answer["code"] == 0
    victim.harmless(answer)


def test_a_pattern_that_blows_up_ends_in_a_sentence(victim, model, canary):
    """Oniguruma gives up after ten million tries at a place; the library panics then, and says so itself as well."""
    file = model / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": SPLIT}))
    typed = ["predict", f"run={model}", f"text={'x' * 3000}"]
    said = victim.refused(typed, model.parent, "the tokenizer fails on a text", alone=False)
    assert "retry-limit" in said
    assert not canary.exists()


def test_labels_are_text_wherever_they_are_shown(victim, finished, tmp_path, canary):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    model = tmp_path / "run" / "model"
    names = ["../../../canary", "<script>x</script>\x1b[31m[red]"]
    (model / "labels.json").write_text(json.dumps(names))
    answer = victim.attempt(["predict", f"run={model}", TEXT], tmp_path)
    assert answer["code"] == 0
    assert "\x1b" not in answer["out"]
    victim.harmless(answer)
    (tmp_path / "new.csv").write_text(
        'text,label\nit purrs,../../../canary\nit barks,"<script>x</script>\x1b[31m[red]"\n'
    )
    answer = victim.attempt(["evaluate", f"run={tmp_path / 'run'}", f"data.path={tmp_path / 'new.csv'}"], tmp_path)
    assert answer["code"] == 0, answer["err"]
    victim.harmless(answer)
    assert "\x1b" not in answer["out"]
    report = (tmp_path / "run" / "evaluate" / "new-all" / "report.html").read_text()
    assert "<script>x" not in report
    assert {path.name for path in (tmp_path / "run" / "evaluate" / "new-all").iterdir()} == {
        "metrics.json", "predictions.csv", "report.html",
        *(path.name for path in (tmp_path / "run" / "evaluate" / "new-all").glob("*.png")),
    }  # fmt: skip
    assert not list(tmp_path.rglob("canary*"))
