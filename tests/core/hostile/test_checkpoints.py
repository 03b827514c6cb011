"""A run folder of a stranger, resumed: its hashes agree with whatever it holds, as its maker made them too."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from manyheads.runs.checkpoints import MANIFEST, is_valid, newest_checkpoint
from manyheads.training.state import load_pytree, save_pytree

FILES = ("weights.safetensors", "state.safetensors", "rank-0.safetensors", "rows.json", "progress.json")
HEADERS = {  # of a safetensors file
    "longer than any file": (2**40).to_bytes(8, "little") + b"{}",
    "of the greatest length": b"\xff" * 8 + b"{}",
    "of numbers beyond the file": {"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}},
    "of numbers that overflow": {"x": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}},
    "of tensors that overlap": {
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "y": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
    },
    "of offsets that go backwards": {"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
    "of an unknown type": {"x": {"dtype": "PICKLE", "shape": [8], "data_offsets": [0, 8]}},
    "nested without end": b"[" * 100_000,
}


def with_header(header: Any) -> bytes:
    if isinstance(header, dict):
        header = json.dumps(header).encode()
        header = len(header).to_bytes(8, "little") + header
    elif header.startswith(b"["):
        header = len(header).to_bytes(8, "little") + header
    return header + bytes(64)


def last(run: Path) -> Path:
    found = newest_checkpoint(run / "checkpoints")
    assert found is not None
    return found


def sign(checkpoint: Path) -> None:
    """Make the manifest say what is there, as its maker can."""
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    for name in manifest["files"]:
        content = (checkpoint / name).read_bytes()
        manifest["files"][name] = [len(content), hashlib.sha256(content).hexdigest()]
    (checkpoint / MANIFEST).write_text(json.dumps(manifest))
    assert is_valid(checkpoint)


def refused(victim: Any, run: Path, canary: Path, *parts: str) -> str:
    said = victim.refused(["train", f"resume={run}"], run.parent, *parts, alone=False)
    assert not canary.exists()
    return said


def test_the_watch_sees_what_it_is_for(victim, tmp_path):
    """An honest command writes outside of the folder it was allowed, and is seen."""
    (tmp_path / "in").mkdir()
    answer = victim.attempt(["predict", f"run={victim.folder / 'run'}", "text=a", f"output={tmp_path / 'out'}"],
                            tmp_path / "in")  # fmt: skip
    assert any(str(tmp_path / "out") in act for act in answer["acts"])


KINDS = ["a pickle", "torch's zip", "torch's old form", "a checkpoint of Lightning", "half a zip", "no file at all"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "an optimiser that reduces") for name in FILES]
    + [pytest.param("state.safetensors", kind, marks=pytest.mark.slow) for kind in KINDS],
)
def test_what_is_unpickled_elsewhere_is_not_here(name, kind, victim, stopped, payloads, canary):
    checkpoint = last(stopped)
    (checkpoint / name).write_bytes(payloads[kind])
    sign(checkpoint)
    refused(victim, stopped, canary, str(checkpoint))


def test_an_honest_copy_goes_on_and_files_of_other_programs_beside_it_are_never_opened(
    victim, stopped, payloads, tmp_path, canary
):
    for name in ("state.pt", "ranks.pt", "last.ckpt", "optimizer.bin", ".metadata"):
        (last(stopped) / name).write_bytes(payloads["a pickle"])
        (stopped / name).write_bytes(payloads["a checkpoint of Lightning"])
    answer = victim.attempt(["train", f"resume={stopped}"], tmp_path)
    assert answer["code"] == 0, answer["err"]
    assert "resumed at step" in answer["err"]
    victim.harmless(answer)
    assert not canary.exists()


@pytest.mark.slow
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", ["weights.safetensors", "state.safetensors"])
def test_tensors_that_claim_too_much(name, header, victim, stopped, canary):
    checkpoint = last(stopped)
    (checkpoint / name).write_bytes(with_header(HEADERS[header]))
    sign(checkpoint)
    refused(victim, stopped, canary, str(checkpoint))


PROGRESS = [
    {"step": "many"}, {"step": -1}, {"step": 2**70}, {"epoch": 1e300}, {"batch": None}, {"batch": -5}, {"batches": []},
    {"seconds": "long"}, {"seconds": float("nan")}, {"data": 3}, {"data": "0" * 64}, {"finished": "yes"},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", PROGRESS, ids=str)
def test_a_place_that_cannot_be(change, victim, stopped, canary):
    checkpoint = last(stopped)
    progress = json.loads((checkpoint / "progress.json").read_text())
    (checkpoint / "progress.json").write_text(json.dumps(progress | change))
    sign(checkpoint)
    refused(victim, stopped, canary)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["[]", "null", "{}", "[" * 100_000, "9" * 5000, "\udcff"])
@pytest.mark.parametrize("name", ["progress.json", "rows.json"])
def test_json_that_is_something_else(name, content, victim, stopped, canary):
    if (name, content) in (("rows.json", "[]"), ("rows.json", "{}")):
        return  # no rows yet
    checkpoint = last(stopped)
    (checkpoint / name).write_bytes(content.encode(errors="surrogateescape"))
    sign(checkpoint)
    refused(victim, stopped, canary, str(checkpoint))


def swap(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def changed(checkpoint: Path) -> None:
        nest = load_pytree(checkpoint / name)
        nest = change(nest)
        with (checkpoint / name).open("wb") as file:
            save_pytree(nest, file)

    return changed


def first_state(nest: Any) -> dict[str, Any]:
    return next(iter(nest["optimizers"][0]["state"].values()))


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def changed(checkpoint: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(checkpoint / "weights.safetensors").items()}
        change(tensors)
        save_file(tensors, checkpoint / "weights.safetensors")

    return changed


FAST = ("moments of another shape", "a method replaced", "random numbers out of bounds")
STATE, RANKS = "state.safetensors", "rank-0.safetensors"
CHANGES: dict[str, Callable[[Path], None]] = {
    "weights of another shape": weights(lambda held: held.update({next(iter(held)): torch.ones(3)})),
    "weights missing": weights(lambda held: held.pop(next(iter(held)))),
    "weights too many": weights(lambda held: held.update(more=torch.ones(3))),
    "a list": swap(STATE, lambda nest: [nest]),
    "nothing": swap(STATE, lambda nest: {}),
    "no optimiser": swap(STATE, lambda nest: nest.update(optimizers=[]) or nest),
    "an optimiser that is a text": swap(STATE, lambda nest: nest.update(optimizers=["x"]) or nest),
    "moments of another shape": swap(STATE, lambda nest: first_state(nest).update(exp_avg=torch.ones(7, 3)) or nest),
    "moments that are a text": swap(STATE, lambda nest: first_state(nest).update(exp_avg="x") or nest),
    "moments missing": swap(STATE, lambda nest: first_state(nest).pop("exp_avg") is None or nest),
    "a step that is a list": swap(STATE, lambda nest: first_state(nest).update(step=[1]) or nest),
    "a rate that is a text": swap(STATE, lambda nest: nest["optimizers"][0]["param_groups"][0].update(lr="x") or nest),
    "a method replaced": swap(STATE, lambda nest: nest["schedules"][0].update(step=5) or nest),
    "an epoch that is a text": swap(STATE, lambda nest: nest["schedules"][0].update(last_epoch="x") or nest),
    "callbacks that are a list": swap(STATE, lambda nest: nest.update(callbacks=[]) or nest),
    "no ranks": swap(RANKS, lambda nest: []),
    "ranks that are texts": swap(RANKS, lambda nest: ["x"]),
    "random numbers cut short": swap(RANKS, lambda nest: nest.update(random={"cpu": torch.zeros(3)}) or nest),
    "random numbers of another type": swap(RANKS, lambda nest: nest.update(random={"cpu": "x"}) or nest),
    "random numbers out of bounds": swap(
        RANKS, lambda nest: nest["random"].update(cpu=torch.full((5056,), 255, dtype=torch.uint8)) or nest
    ),
    "figures missing": swap(RANKS, lambda nest: nest.update(figures={}) or nest),
    "figures that are texts": swap(
        RANKS, lambda nest: nest.update(figures=dict.fromkeys(nest["figures"], "xy")) or nest
    ),
}


@pytest.mark.parametrize(
    "kind", [*FAST, *[pytest.param(one, marks=pytest.mark.slow) for one in CHANGES if one not in FAST]]
)
def test_a_state_that_does_not_fit(kind, victim, stopped, canary):
    checkpoint = last(stopped)
    CHANGES[kind](checkpoint)
    sign(checkpoint)
    refused(victim, stopped, canary, str(checkpoint))


def test_a_manifest_that_leads_elsewhere_is_none(victim, stopped, tmp_path):
    """Such a checkpoint is passed over, as is one of pipes and devices; where none is left the run starts anew."""
    checkpoint = last(stopped)
    (tmp_path / "outside").write_text("secret")
    facts = [6, hashlib.sha256(b"secret").hexdigest()]
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    for name in ("../../../outside", str(tmp_path / "outside"), "..", ".", "", "a\0b", "x" * 300, "a/b"):
        (checkpoint / MANIFEST).write_text(json.dumps(manifest | {"files": manifest["files"] | {name: facts}}))
        assert not is_valid(checkpoint), name
    os.mkfifo(checkpoint / "pipe")
    (checkpoint / MANIFEST).write_text(json.dumps(manifest | {"files": manifest["files"] | {"pipe": facts}}))
    assert not is_valid(checkpoint)
    (checkpoint / MANIFEST).unlink()
    os.mkfifo(checkpoint / MANIFEST)
    assert not is_valid(checkpoint)
    (checkpoint / MANIFEST).unlink()
    (checkpoint / MANIFEST).symlink_to("/dev/zero")
    assert not is_valid(checkpoint)


@pytest.mark.parametrize("name", ["run.log", "checkpoints", "model", "metrics.csv", "report.html", "config.yaml",
                                  "checkpoints/best.safetensors", "summary.json", "ranks"])  # fmt: skip
def test_links_in_the_folder_lead_nothing_out_of_it(name, victim, stopped, tmp_path):
    """What is written into the folder stays there: a link would let the next line of run.log go anywhere."""
    inner = tmp_path / "inner"
    shutil.move(stopped, inner / "run")
    shutil.copy(tmp_path / "rows.csv", inner)
    run, outside = inner / "run", tmp_path / "outside"
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(tmp_path), str(inner)))
    if (run / name).exists():
        shutil.move(run / name, outside)
    elif "." in name:
        outside.touch()
    else:
        outside.mkdir()
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    (run / name).symlink_to(outside)
    said = victim.refused(["train", f"resume={run}"], inner, "link")
    assert f"run/{name}" in said
    assert {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()} == before
