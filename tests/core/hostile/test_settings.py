"""Settings of strangers, by every road: nothing that they name is called, and nothing of the environment is read."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import manyheads.plugin as plugin

SECRET = "hf_thisIsNotForYou0123456789"  # of the environment in which the files are opened (conftest.py)
CALL = {"_target_": "os.system", "command": "touch canary"}
CALLS: dict[str, dict[str, Any]] = {  # of a config.yaml
    "at the top": dict(CALL),
    "of a section": {"model": dict(CALL)},
    "in place of a number": {"model": {"d_model": dict(CALL)}},
    "in place of a text": {"data": {"text": dict(CALL)}},
    "in a list": {"model": {"scores": [dict(CALL)]}},
    "of Lightning's Trainer": {"trainer": {"callbacks": [dict(CALL)]}},
    "of a flag that takes a mapping": {"trainer": {"profiler": dict(CALL)}},
    "of the logger": {"logger": dict(CALL)},
    "of the class weights": {"optim": {"class_weights": dict(CALL)}},
    "of the tokens of a batch": {"batch": {"tokens": dict(CALL)}},
    "_partial_": {"model": {"_partial_": True, "_args_": ["touch canary"], "_recursive_": True}},
    "Hydra itself": {"hydra": {"callbacks": {"x": dict(CALL)}}},
    "defaults": {"defaults": ["evil"]},
    "_instantiator": {"_instantiator": "os.system"},
}
READS: dict[str, dict[str, Any]] = {
    "a name": {"data": {"label": "${oc.env:HF_TOKEN}"}},
    "a flag": {"trainer": {"max_time": "${oc.env:HF_TOKEN}"}},
    "a default": {"data": {"target": "${oc.env:NOT_SET,${oc.env:HF_TOKEN}}"}},
    "a decoded one": {"seed": "${oc.decode:${oc.env:HF_TOKEN}}"},
    "a selected one": {"data": {"text": "${oc.select:data.label}"}},
    "a hub id": {"data": {"hub": "${oc.env:HF_TOKEN}"}},
    "in a list": {"model": {"scores": ["${oc.env:HF_TOKEN}"]}},
    "a key": {"${oc.env:HF_TOKEN}": 1},
    "hydra's": {"data": {"text": "${hydra:runtime.cwd}"}},
}
PATHS = {
    "data": {"data": {"path": "/nowhere/${oc.env:HF_TOKEN}/rows.csv"}},
    "tokenizer": {"tokenizer": {"path": "/nowhere/${oc.env:HF_TOKEN}"}},
}


def changed(run: Path, change: dict[str, Any]) -> Path:
    file = run / "config.yaml"
    values = yaml.safe_load(file.read_text())
    for key, value in change.items():
        values[key] = values.get(key, {}) | value if isinstance(values.get(key), dict) else value
    file.write_text(yaml.safe_dump(values))
    return run


@pytest.mark.parametrize("kind", [*CALLS, *READS])
def test_a_config_of_a_run_calls_and_reads_nothing(kind, victim, finished, tmp_path, canary):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = changed(tmp_path / "run", (CALLS | READS)[kind])
    (run / "summary.json").unlink()
    for words in (["train", f"resume={run}"], ["evaluate", f"run={run}"]):
        said = victim.refused(words, tmp_path, "config.yaml")
        assert SECRET not in said
    assert not canary.exists()
    assert not [path for path in run.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", PATHS)
def test_a_path_is_taken_as_it_stands(kind, victim, finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = changed(tmp_path / "run", PATHS[kind])
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints")
    said = victim.refused(
        ["train", "resume=auto", f"output={run}", f"{kind}.path=/nowhere/${{oc.env:HF_TOKEN}}"], tmp_path
    )
    assert SECRET not in said
    assert "${oc.env:HF_TOKEN}" in said


PRESETS = {  # files of --config-dir, by group, and what is typed
    "model": ("model/evil", "model=evil", ""),
    "data": ("data/evil", "data=evil", ""),
    "optim": ("optim/evil", "optim=evil", ""),
    "hardware": ("hardware/evil", "hardware=evil", ""),
    "logger": ("logger/evil", "logger=evil", ""),
    "experiment": ("experiment/evil", "experiment=evil", "# @package _global_\n"),
    "debug": ("debug/evil", "debug=evil", "# @package _global_\n"),
}
CONTENTS = {
    "a call": "_target_: os.system\ncommand: touch canary\n",
    "a nested call": "model:\n  d_model: {_target_: os.system, command: touch canary}\n",
    "a tag of Python": "x: !!python/object/apply:os.system ['touch canary']\n",
    "the environment": "text: ${oc.env:HF_TOKEN}\nkind: ${oc.env:HF_TOKEN}\nlr: ${oc.env:HF_TOKEN}\n",
    "the environment among the presets": "defaults:\n  - /model: ${oc.env:HF_TOKEN}\n",
    "the environment as a preset": "defaults:\n  - ${oc.env:HF_TOKEN}\n",
    "a preset elsewhere": "defaults:\n  - /../../../../etc/passwd\n",
    "Hydra itself": "hydra:\n  callbacks: {x: {_target_: os.system, command: touch canary}}\n",
    "Hydra's environment": "hydra:\n  job: {env_set: {PATH: /evil}}\n",
    "where presets are searched": "hydra:\n  searchpath: [pkg://evil]\n",
}


FAST = ("data", "experiment")


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(
    "group", [*FAST, *[pytest.param(one, marks=pytest.mark.slow) for one in PRESETS if one not in FAST]]
)
def test_a_preset_calls_and_reads_nothing(group, content, victim, tmp_path, canary):
    name, word, package = PRESETS[group]
    file = tmp_path / "presets" / f"{name}.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(package + CONTENTS[content])
    said = victim.refused(["train", word, "--config-dir", str(tmp_path / "presets"), "output=run"], tmp_path)
    assert SECRET not in said
    assert not canary.exists()
    assert not (tmp_path / "run").exists()


TYPED = [
    "model._target_=os.system", "+model._target_=os.system", "trainer={_target_: os.system}", "seed=${oc.env:HF_TOKEN}",
    "optim.class_weights={_target_: os.system}", "trainer.profiler={_target_: os.system}", "hydra/job_logging=evil",
    "hydra.callbacks.x._target_=os.system", "hydra.searchpath=[pkg://os]", "model=../../../etc/passwd",
    "model=/etc/passwd",
    "batch.tokens=${oc.env:HF_TOKEN}", "data.text=${oc.env:HF_TOKEN}", "logger.project=${oc.env:HF_TOKEN}",
    "--config-path=/etc", "--config-name=x", "--experimental-rerun=x",
]  # fmt: skip


@pytest.mark.parametrize("word", TYPED)
def test_a_word_calls_and_reads_nothing(word, victim, tmp_path, canary):
    sweeps = [] if word.startswith("-") or not plugin.flags() else [["-m"]]
    for more in ([], *sweeps):
        said = victim.refused(["train", *more, word], tmp_path)
        assert SECRET not in said
    assert not canary.exists()
