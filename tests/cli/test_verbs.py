"""The table of verbs: each has settings, presets and a function."""

from dataclasses import is_dataclass

import pytest

from manyheads.cli.verbs import VERBS, conf_folder
from manyheads.config import (
    AblateConfig,
    EvaluateConfig,
    ExplainConfig,
    ExportConfig,
    LookConfig,
    PredictConfig,
    RunConfig,
    TuneConfig,
)
from manyheads.config.facts import settings


def test_entries_are_modules_of_the_package():
    assert {name: verb.config for name, verb in VERBS.items()} == {
        "train": RunConfig,
        "pretrain": RunConfig,
        "evaluate": EvaluateConfig,
        "predict": PredictConfig,
        "look": LookConfig,
        "export": ExportConfig,
        "ablate": AblateConfig,
        "tune": TuneConfig,
        "explain": ExplainConfig,
    }
    for verb in VERBS.values():
        module, _, function = verb.entry.partition(":")
        assert module.startswith("manyheads.")
        assert function.isidentifier()


@pytest.mark.parametrize("name", VERBS)
def test_what_a_verb_names_exists(name):
    verb = VERBS[name]
    assert is_dataclass(verb.config)
    assert all((conf_folder() / group).is_dir() for group in verb.groups)
    assert verb.unread.keys() <= settings(verb.config).keys()
    assert verb.settings().keys() == settings(verb.config).keys() - verb.unread.keys() - verb.groups.keys()
    assert all(example.startswith(f"manyheads {name}") for example in verb.examples)
