"""The recipe of the two small models that `explain` trains: every setting by its value, so that the figures of
docs/attention.md stay those of the recipe the page describes, whatever a default becomes. A test refuses a setting that
is missing here: give a new one the value that leaves these models as they are.
"""

from collections.abc import Mapping
from typing import Any

from manyheads.config import ModelConfig, RunConfig
from manyheads.config.plain import from_plain

RECIPE: dict[str, Any] = {
    "task": "classify",
    "init_from": "",
    "teacher": "",
    "linear": False,
    "resume": "never",
    "test": True,
    "dry": False,
    "budget": "",
    "data": {
        "source": "files",
        "hub": "",
        "hub_config": "",
        "revision": "",
        "text": "text",
        "text_pair": "text_pair",
        "label": "label",
        "target": "target",
        "train_split": "train",
        "validation_split": "validation",
        "test_split": "test",
        "validation_share": 0.1,
        "test_share": 0.1,
        "split_seed": None,
        "max_length": 512,
        "long": "cut",
        "stride": 0,
        "windows": 32,
        "rows": 0,
        "on_bad_row": "raise",
    },
    "tokenizer": {
        "kind": "wordpiece",
        "vocab_size": 8192,
        "lowercase": True,
        "path": "",
    },
    "batch": {
        "tokens": 8192,
        "rows": 64,
        "accumulate": 1,
    },
    "model": {
        "encoder": "transformer",
        "bidirectional": True,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 0,
        "d_model": 64,
        "d_embedding": 0,
        "d_k": 16,
        "d_v": 16,
        "d_ff": 128,
        "score": "scaled_dot",
        "scores": [],
        "normaliser": "softmax",
        "scale": None,
        "project": True,
        "project_output": True,
        "window": 0,
        "windows": [],
        "causal": False,
        "activation": "gelu",
        "positions": "sinusoidal",
        "rotary_base": 10000.0,
        "rotary_base_window": None,
        "segments": "pairs",
        "pair": "joint",
        "norm": "layer",
        "norm_eps": None,
        "placement": "pre",
        "norm_bias": True,
        "norm_embedding": False,
        "pooling": "mean",
        "pooler": "none",
        "bias": True,
        "qk_norm": False,
        "zero_output": False,
        "matches": False,
        "dropout": 0.0,
        "dropout_embedding": None,
        "dropout_residual": None,
        "dropout_classifier": None,
        "dropout_attention": 0.0,
    },
    "optim": {
        "kind": "adamw",
        "lr": 0.002,
        "muon_lr": None,
        "few": 0,
        "few_epochs": 0,
        "steps_per_class": 0,
        "head_lr": None,
        "layer_decay": 1.0,
        "fast_words": True,
        "freeze": 0,
        "thaw": 0.0,
        "weight_decay": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-08,
        "warmup": 0.06,
        "schedule": "linear",
        "decay_share": 0.2,
        "teacher_weight": 0.5,
        "teacher_temperature": 2.0,
        "class_weights": "none",
    },
    "pretrain": {
        "mask_share": 0.15,
        "hide": "mask",
        "whole_words": False,
        "also": [],
        "before": "",
    },
    "checkpoint": {
        "metric": "accuracy",
        "patience": 0,
        "every": 0,
        "keep": 2,
    },
    "guard": {
        "nonfinite": "raise",
        "at_most": 5,
        "halve": True,
    },
    "hardware": {
        "accelerator": "cpu",
        "devices": 1,
        "nodes": 1,
        "strategy": "auto",
        "precision": "fp32",
        "threads": 1,
        "timeout": 600,
        "compile": "never",
        "recompute": False,
    },
    "slurm": {
        "script": False,
        "time": "",
        "partition": "",
        "account": "",
        "options": "",
    },
    "logger": {
        "kind": "csv",
        "every": 50,
        "project": "manyheads",
    },
    "trainer": {
        "max_epochs": 1000,
        "gradient_clip_val": 1.0,
    },
}


def model_of(own: Mapping[str, Any]) -> ModelConfig:
    """The model of the recipe with what is its own, by name."""
    return from_plain(ModelConfig, {**RECIPE["model"], **own}, "model.")


def run_of(own: Mapping[str, Any]) -> RunConfig:
    """The run of the recipe with what is its own, by dotted name: data, folders, seed, steps and regularisers."""
    plain = {name: dict(value) if isinstance(value, dict) else value for name, value in RECIPE.items()}
    for name, value in own.items():
        section, _, key = name.rpartition(".")
        (plain[section] if section else plain)[key] = value
    return from_plain(RunConfig, plain)
