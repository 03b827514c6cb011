"""Flags of Lightning's Trainer: the table of them, and values that are typed."""

import inspect
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from manyheads.config import RunConfig
from manyheads.config.facts import settings
from manyheads.config.trainer_flags import OUR_FLAGS, TRAINER_FLAGS, checked_flag


def test_flags_and_their_types_are_those_of_the_trainers_signature():
    from lightning.pytorch import Trainer

    kinds = get_type_hints(Trainer.__init__)
    assert {*TRAINER_FLAGS, *OUR_FLAGS} == set(inspect.signature(Trainer).parameters)
    assert not TRAINER_FLAGS.keys() & OUR_FLAGS.keys()
    assert RunConfig().trainer.keys() <= TRAINER_FLAGS.keys()
    for name, ours in TRAINER_FLAGS.items():
        theirs = [get_origin(kind) or kind for kind in get_args(kinds[name]) or (kinds[name],)]
        assert {*ours} == {*theirs} & {int, float, bool, str, dict, list, NoneType} | {
            type(word) for kind in get_args(kinds[name]) or () if get_origin(kind) is Literal for word in get_args(kind)
        }, name


@pytest.mark.parametrize(
    ("name", "value", "checked"),
    [
        ("max_steps", 1e4, 10_000),
        ("gradient_clip_val", 1, 1),
        ("gradient_clip_val", None, None),
        ("detect_anomaly", True, True),
        ("max_time", "00:01:00:00", "00:01:00:00"),
        ("max_time", {"hours": 1}, {"hours": 1}),
        ("limit_val_batches", 0.5, 0.5),
    ],
)
def test_values_of_the_right_kind_pass(name, value, checked):
    made = checked_flag(name, value)
    assert made == checked
    assert type(made) is type(checked)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("max_epochs", "ten", "trainer.max_epochs=ten has the wrong type: Lightning takes int or null"),
        ("max_epochs", 1.5, "trainer.max_epochs=1.5 has the wrong type: Lightning takes int or null"),
        ("max_epochs", True, "trainer.max_epochs=true has the wrong type: Lightning takes int or null"),
        ("max_epoch", 3, "trainer.max_epoch=3 is not a flag of Lightning's Trainer: did you mean trainer.max_epochs?"),
        ("devices", 2, "trainer.devices=2: this flag is decided elsewhere: set hardware.devices"),
        (
            "zzz",
            1,
            "trainer.zzz=1 is not a flag of Lightning's Trainer: see the signature of lightning.pytorch.Trainer",
        ),
    ],
)
def test_a_mistake_is_one_sentence(name, value, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        checked_flag(name, value)
    assert str(caught.value) == sentence


def test_flags_that_are_decided_elsewhere_name_settings_that_exist():
    known = settings(RunConfig)
    for remedy in OUR_FLAGS.values():
        for word in remedy.replace(",", " ").split():
            if "." in word and "=" not in word and not word.startswith("trainer."):
                assert word in known
