"""Presets: every file composes, holds values only, and names what exists."""

import re
import shutil
from contextlib import nullcontext, suppress
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import pytest
import yaml

from manyheads import plugin
from manyheads.cli import hydra as in_hydra
from manyheads.cli import presets as in_presets
from manyheads.cli import verbs as in_verbs
from manyheads.cli.compose import compose
from manyheads.cli.presets import composed_by_hydra, merge_presets
from manyheads.cli.verbs import (
    VERBS,
    choices,
    conf_folder,
    own_settings,
    preset_file,
    preset_folders,
    schema_of,
    settings_of,
)
from manyheads.config import ModelConfig, RunConfig
from manyheads.config.conversion import choices_of
from manyheads.config.facts import hooks, settings, settings_where
from tests.registry import name_of, needed

FILES = sorted(file for folder in preset_folders() for file in folder.rglob("*.yaml"))
MORE = {("data", "files"): ["data.path=x.csv"], ("data", "hub"): ["data.hub=x"]}
MORE |= {("task", name): ["data.path=x.csv"] for name in plugin.names("task")}
for name, part in plugin.parts("source").items():
    if "task" in part.facts:  # of rows
        MORE["data", name] = [f"task={part.facts['task']}"]
for name in choices("train", "model"):
    encoder = own_settings("model", name, None).get("encoder", "transformer")
    if not plugin.parts("encoder")[encoder].facts.get(
        "has_heads"
    ):  # of which the first example of ablate compares scores
        MORE["model", name] = ["vary=model.dropout", "values=[0,0.1]"]
READ = [(verb, group, name) for verb in VERBS for group in VERBS[verb].groups for name in choices(verb, group)]
OF_TRAIN = {(group, name) for verb, group, name in READ if verb == "train"}
AGAIN = [pytest.param(*one, marks=pytest.mark.slow) for one in READ if one[0] != "train" and one[1:] in OF_TRAIN]
FIRST = [one for one in READ if one[0] == "train" or one[1:] not in OF_TRAIN]


@pytest.mark.parametrize(("verb", "group", "name"), [*FIRST, *AGAIN])
def test_every_preset_composes(verb, group, name):
    known = {*settings_of(verb), *VERBS[verb].groups}
    for word in MORE.get((group, name), ()):
        if word.startswith("task=") and "task" in known and word[5:] not in choices(verb, "task"):
            pytest.skip(f"{word} is not among the tasks of {verb}")
    more = MORE.get((group, name), [])
    words = [word for word in needed(verb) if name_of(word) not in {*map(name_of, more)}]
    words = [word for word in [*words, *more] if name_of(word) in known - {group}]
    assert type(compose(verb, [f"{group}={name}", *words])) is schema_of(verb)


def several(verb):
    """Presets of all groups at once, so that each is in one of them."""
    names = [choices(verb, group) for group in VERBS[verb].groups]
    for at in range(max(map(len, names), default=0)):
        yield {group: of[at % len(of)] for group, of in zip(VERBS[verb].groups, names, strict=True)}


TOGETHER_READ = [("train", one) for one in several("train")] + [(verb, {}) for verb in VERBS]
TOGETHER_READ += [("train", {group: name}) for group in ("experiment", "debug") for name in choices("train", group)]


@pytest.mark.parametrize(
    ("verb", "groups"),
    [*TOGETHER_READ, *(pytest.param(verb, {group: name}, marks=pytest.mark.slow) for verb, group, name in READ)],
)
def test_presets_are_laid_over_one_another_as_hydra_composes_them(verb, groups):
    assert merge_presets(verb, groups) == composed_by_hydra(verb, groups)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("n_haeds: 4", "preset model/mini: model.n_haeds is not a setting: did you mean model.n_heads?"),
        ("n_heads: 2\nn_heads: 4", "duplicate key n_heads"),
        ("n_heads: eight", "model/mini"),
        ("- 1", "mini"),
        ("defaults: [tiny]\nn_heads: 8", ""),
        ("# @package optim\nlr: 0.5", ""),
    ],
)
def test_what_is_no_list_of_values_is_left_to_hydra(content, sentence, tmp_path, monkeypatch):
    shutil.copytree(conf_folder(), tmp_path / "conf")
    (tmp_path / "conf" / "model" / "mini.yaml").write_text(content)
    for module in (in_verbs, in_hydra):
        monkeypatch.setattr(module, "conf_folder", lambda: tmp_path / "conf")
    in_presets._package_values.cache_clear()
    with pytest.raises(ValueError, match=re.escape(sentence)) if sentence else nullcontext():
        run = compose("train", ["model=mini"])
        assert (run.model.n_heads, run.optim.lr) in ((8, 1e-3), (4, 0.5))
    in_presets._package_values.cache_clear()


def test_every_file_is_a_root_or_in_a_group_of_a_verb():
    roots = {preset_file("", verb) for verb in VERBS}
    read = {preset_file(group, name) for _, group, name in READ}
    assert set(FILES) == roots | read


@pytest.mark.parametrize("verb", VERBS)
def test_roots_list_the_schema_first_and_the_defaults_that_help_shows(verb):
    defaults = yaml.safe_load(preset_file("", verb).read_text())["defaults"]
    assert defaults[0] == f"{verb}_schema"
    chosen = {key: value for one in defaults if isinstance(one, dict) for key, value in one.items()}
    assert chosen == VERBS[verb].groups


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_values_only(file):
    text = file.read_text(encoding="utf-8")
    assert "_target_" not in text
    assert "${" not in text
    assert "!!" not in text


TOGETHER = {
    "model.d_model": "512",  # these two fit 8 heads of 64 that project nothing
    "model.n_kv_heads": "8",
    "model.encoder": None,  # recurrent ones have few of the other settings: tests/core/config/test_recurrence.py
    "model.bidirectional": None,
    "model.positions": "rotary",  # by which rotary_base is read,
    "checkpoint.metric": "loss",  # which each task has
    "optim.schedule": "wsd",  # and decay_share
    "model.norm_bias": None,  # of layer norms alone
    "tokenizer.path": None,  # which leaves out how a tokenizer is learnt
    "tokenizer.prefix": None,  # of a tokenizer that is read
    "require": None,  # each verb has figures of its own
    "data.split_seed": "7",
    "data.folds": "5",
    "data.fold": "2",
    "init_from": None,  # weights bring a shape of their own: tests/core/cli/test_origin.py
    "data.votes": None,  # in place of data.label, and of losses that know labels alone
    **dict.fromkeys(("teacher", "data.unlabelled", "data.descriptions")),  # of others' answers
    **dict.fromkeys(
        ("optim.contrast", "optim.contrast_epochs", "optim.contrast_lr", "optim.compare_rate")
    ),  # of weights
    **dict.fromkeys(("data.hierarchy", "data.parents")),  # which models hold: tests/plugins/hierarchy
    "hardware.strategy": "ddp",  # fsdp knows neither fp16 nor compiled layers
}

OTHER_TEXTS = {"optim.class_weights": "balanced", "data.hub": "imdb", "slurm.time": "60", "slurm.partition": "x"}
OTHER_TEXTS |= {"repo": "a/c", "revision": "x", "tag": "x", "require": "[loss<9]"}
OTHER_TEXTS |= {"slurm.account": "x", "slurm.options": "--mem=4g", "budget": "5min"}


def other(one):
    """A value of a setting that differs from its default, within its limits."""
    if one.name in TOGETHER:
        return TOGETHER[one.name]
    inner, default = type(one.default), getattr(one.default, "name", one.default)
    if choices := choices_of(one) if inner is not list else []:
        of_other_tasks = [name for name, part in plugin.parts("source").items() if "task" in part.facts]
        allowed = [name for name in choices if name not in (default, "run", "hub", "files", *of_other_tasks)]
        return allowed[-1] if allowed else None
    if inner is list:
        return None
    if inner is bool:
        return str(not one.default).lower()
    if inner is int:
        return str(one.default * 2 or 1)
    if inner is float:
        return str(one.default / 2 or 0.25)
    return OTHER_TEXTS.get(one.name, "/x") if inner is str else "0.25"


OF_FOLDS = ("data.folds", "data.group", "data.weight", *settings_where(RunConfig, needs="folds"))
OF_FILES = ("data.path", "data.source", *OF_FOLDS)  # the hub is read without them; streams have no folds
OF_HUB = ("data.streaming", *settings_where(RunConfig, needs="hub"))


@pytest.mark.parametrize(
    ("verb", "left_out"),
    [(verb, left_out) for verb in VERBS for left_out in (OF_FILES, OF_HUB)],
)
def test_every_setting_can_be_reached(verb, left_out):
    usual = compose(verb, needed(verb))
    reasons = [(name, unread(usual, name)) for unread in hooks(usual, "unread") for name in settings_of(verb)]
    of_plugins = [name for name, why in reasons if why.startswith("with task=")]
    of_other_tasks = ("data.target",) if verb == "train" else ()
    of_other_tasks = ("data.folds",) if verb == "tune" else of_other_tasks  # which have one seed, and no limit
    of_other_tasks = ("require",) if verb == "compare" else of_other_tasks  # which measures no loss
    words = needed(verb)
    in_words = [name_of(word) for word in words]
    kept = () if isinstance(usual, RunConfig) else settings_where(RunConfig, needs="training")  # with the model
    left_out = {"split", "vary", "again", *in_words, *left_out, *of_other_tasks, *of_plugins, *kept}
    known = {name: one for name, one in settings_of(verb).items() if name not in left_out}
    typed = {name: other(one) for name, one in known.items() if not isinstance(one.default, dict)}
    made = compose(verb, [*words, *(f"{name}={value}" for name, value in typed.items() if value is not None)])
    for name, value in typed.items():
        section, _, key = name.rpartition(".")
        reached = getattr(getattr(made, section) if section else made, key)
        assert value is None or str(getattr(reached, "name", reached)).lower() == value, name
        assert value is None or reached != known[name].default, name


def test_debug_fast_is_small_and_overfit_drops_nothing():
    fast = compose("train", ["debug=fast"])
    assert (fast.trainer["max_epochs"], fast.model.n_layers) == (1, 1)
    assert fast.data.rows > 0
    overfit = compose("train", ["model=mini", "debug=overfit"])
    assert (overfit.data.rows, overfit.data.validation_split, overfit.test) == (32, overfit.data.train_split, False)
    assert [overfit.model.dropout_at(place) for place in ("embedding", "residual", "classifier")] == [0.0] * 3
    assert overfit.model.dropout_tokens == overfit.model.dropout_attention == 0.0
    assert overfit.model.n_layers == 4


def test_default_presets_equal_the_dataclasses_but_for_matches():
    assert compose("train") == compose("train", ["model=tiny"]) == RunConfig(model=ModelConfig(matches=True))


def leaves(section, name=""):
    """Every value of a preset by dotted name."""
    for key, value in section.items():
        yield from leaves(value, f"{name}{key}.") if isinstance(value, dict) else [(f"{name}{key}", value)]


def default(verb, name):
    section, _, flag = name.partition(".")
    known = settings(schema_of(verb))
    value = known["trainer"].default.get(flag) if section == "trainer" else known[name].default
    return getattr(value, "name", value)


def is_same(value, other):
    if {type(value), type(other)} <= {int, float, str}:  # 1e-9 is text to YAML
        with suppress(ValueError):
            return float(value) == float(other)
    return value == other


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_preset_lists_what_differs_from_the_defaults_alone(file):
    """Of a verb that reads it: demo differs from what evaluate reads. Or from what optim, which debug follows, says, or
    a preset that it builds on."""
    group = file.parent.name
    readers = [verb for verb, reads, name in READ if (reads, name) == (group, file.stem)]
    before = {name for one in FILES if (one.parent.name, group) == ("optim", "debug") for name, _ in listed(one)}
    for chosen in (yaml.safe_load(file.read_text()) or {}).get("defaults", ()) if group == "experiment" else ():
        ((word, name),) = chosen.items()
        before |= {one for one, _ in listed(preset_file(word.removeprefix("override /"), name))}
    for name, value in listed(file):
        differs = not all(is_same(value, default(verb, name)) for verb in readers)
        assert differs or name in before, f"{name}={value} is the default"


def listed(file):
    """The whole names and the values of a preset."""
    text = file.read_text(encoding="utf-8")
    values = {key: value for key, value in (yaml.safe_load(text) or {}).items() if key != "defaults"}
    return leaves(values, "" if "# @package _global_" in text else f"{file.parent.name}.")


def test_every_setting_says_what_it_is_for():
    todo = [schema_of(verb) for verb in VERBS]
    while todo:
        schema = todo.pop()
        for one in fields(schema):
            assert one.metadata["facts"].help, one.name
            assert one.metadata["facts"].help[-1] != "."
            kind = get_type_hints(schema)[one.name]
            todo += [kind] if is_dataclass(kind) else []


def test_a_preset_that_sets_what_a_verb_lacks_is_of_other_verbs(tmp_path, monkeypatch):
    (tmp_path / "optim").mkdir()
    (tmp_path / "optim" / "saves.yaml").write_text("# @package _global_\noptim:\n  lr: 1e-3\ncheckpoint:\n  every: 5\n")
    monkeypatch.setattr(in_verbs, "preset_folders", lambda: [tmp_path])
    assert choices("train", "optim") == ["saves"]
    assert "checkpoint" not in {name.partition(".")[0] for name in settings_of("evaluate")}
    assert in_verbs.why_unfit("evaluate", "optim", "saves") == "for other verbs, as it sets optim"
    if "ablate" in VERBS:
        assert choices("ablate", "optim") == []
        assert in_verbs.why_unfit("ablate", "optim", "saves") == "for other verbs, as it sets checkpoint"
