"""A run written as words is read back as the same run."""

import pytest

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.cli.validation import refuse_unused
from manyheads.cli.verbs import choices
from manyheads.config.conversion import plain_settings
from manyheads.plugins.sweep.tune import train_words

GROUPS = ("model", "optim", "experiment", "hardware", "logger", "debug")
ODD = [
    ["optim.class_weights={'a b': 0.00001, \"c,d=e\": 2}", "optim.lr=1e-05"],
    ["data.text=null_", "data.label='null'", "data.text_pair="],
    ["data.path=a, b='c' #d.csv", "output=it's here"],
    ["model.windows=[64,0]", "model.scores=[dot,cosine]", "model.n_layers=2", "model.dropout_residual=0.2"],
    ["trainer.max_epochs=null", "trainer.max_time={minutes: 3}", "trainer.gradient_clip_algorithm=norm"],
    ["data=sst2", "data.path=copy"],
    ["data=sst2"],
    ["data.split_seed=3", "test=false", "resume=auto", "output=x", "data.on_bad_row=drop"],
    ["logger.every=7", "data.text=it's [1,2]"],
]
if {"seq2seq", "pretrain"} <= {*plugin.names("task")}:
    ODD += [
        ["task=seq2seq", "data=dates", "model.dropout=0.0"],
        ["task=seq2seq", "data=dates", "model.dropout=0.2", "model.dropout_tokens=0.1"],
        ["task=seq2seq", "data.path=copy", "data.text=text", "tokenizer.kind=wordpiece", "tokenizer.lowercase=true"],
        ["task=seq2seq", "data=dates", "checkpoint.metric=auto"],
        ["task=pretrain", "batch.rows=64", "optim.beta2=0.999"],
        ["task=pretrain", "budget="],
        ["task=pretrain", "trainer.max_steps=9"],
    ]


def unread(run):
    """Settings that nothing reads need not come back."""
    found = set()
    for name, value in plain_settings(run).items():
        try:
            refuse_unused(run, {name: value})
        except ValueError:
            found.add(name)
    return found


@pytest.mark.parametrize(
    "typed",
    [
        *ODD,
        *(
            pytest.param([f"{group}={name}"], marks=pytest.mark.slow if at else ())
            for group in GROUPS
            for at, name in enumerate(choices("train", group))
        ),
    ],
    ids=str,
)
def test_there_and_back(typed):
    run = compose("train", typed)
    again = compose("train", train_words(run))
    known, found = plain_settings(run), plain_settings(again)
    assert {name for name in known if found[name] != known[name]} <= unread(run)
    assert again.data.path == run.data.path


def test_defaults_need_no_words(tmp_path):
    assert train_words(compose("train")) == []
    assert train_words(compose("train", [f"data.path={tmp_path}"])) == [f"data.path={tmp_path}"]


@pytest.mark.parametrize(
    "typed",
    [
        ["optim.lr=1e-3", "optim.scale_embedding_lr=false", "batch.rows=64"],
        ["model.dropout=0.2", "model.pooling=max", "model.pooler=tanh"],
        ["data.max_length=512"],
        ["budget=2min"],
        ["budget=2min", "optim=scratch"],
    ],
    ids=str,
)
def test_what_trained_weights_bring_is_not_taken_for_what_was_typed(typed, model_folder):
    """Also where it was typed to be the default, which weights would otherwise change."""
    run = compose("train", [f"init_from={model_folder}", *typed])
    again = compose("train", train_words(run))
    limits = ("trainer.max_epochs", "trainer.max_steps") if run.budget else ()  # which a budget stands for
    known, found = plain_settings(run), plain_settings(again)
    assert {name for name in known if found[name] != known[name]} <= {*limits} | unread(run)
