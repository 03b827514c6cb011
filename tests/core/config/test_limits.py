"""Values no machine could honour end in one sentence before anything is allocated."""

import pytest

from manyheads.cli.compose import compose
from manyheads.config import DataConfig, ModelConfig, OptimConfig, RunConfig


def complaint(*words: str) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the whole sentence
        compose("train", list(words))
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "least", "most", "default"),
    [
        ("model.d_model=100000000", 1, 65536, None),
        ("model.d_k=65537", 1, 65536, None),
        ("model.d_v=65537", 1, 65536, None),
        ("model.d_ff=262145", 1, 262144, None),
        ("model.n_heads=4097", 1, 4096, None),
        ("model.n_layers=1001", 1, 1000, None),
        ("data.max_length=1048577", 4, 1048576, 512),
        ("batch.accumulate=4097", 1, 4096, 1),
        ("hardware.threads=1025", 0, 1024, 0),
        ("hardware.devices=1025", 0, 1024, 1),
        ("hardware.nodes=4097", 1, 4096, 1),
    ],
)
def test_a_size_beyond_reason_is_one_sentence(word, least, most, default):
    section, _, key = word.partition("=")[0].partition(".")
    default = getattr(getattr(RunConfig(), section), key) if default is None else default
    assert complaint(word) == (
        f"{word} is out of range: it must be at least {least} and at most {most}; the default is {default}"
    )


def test_threads_of_evaluate_and_predict_too():
    for verb in ("evaluate", "predict"):
        with pytest.raises(ValueError, match=r"^hardware\.threads=9999 is out of range: it must be at least 0 and at "):
            compose(verb, ["run=x", "hardware.threads=9999"])


@pytest.mark.parametrize("split", ["tests", ""])
def test_a_split_is_one_of_three(split):
    with pytest.raises(ValueError, match=f"^split={split} is not a choice: choose train, validation or test$"):
        compose("evaluate", ["run=x", f"split={split}"])


def test_a_table_of_positions_that_could_not_be_loaded_again_is_refused_before_training():
    shape = ["model.n_layers=2", "model.d_model=128", "model.d_k=64"]
    assert complaint("data.max_length=1048576", *shape) == (
        "data.max_length=1048576 with model.d_model=128, model.d_k=64 and model.n_layers=2 asks for tables of "
        "positions with 268,435,456 numbers, more than 134,217,728: use a smaller data.max_length"
    )
    compose("train", ["data.max_length=524288", *shape])
    RunConfig(data=DataConfig(max_length=2**20), model=ModelConfig(n_layers=1, d_model=128, d_k=64))


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), float("-inf"), 0, -1, 10**400, True, "1"])
def test_class_weights_are_finite_and_positive(weight):
    with pytest.raises(ValueError, match=r"is not understood: it must be none, balanced, or positive weights by class"):
        OptimConfig(class_weights={"joy": weight})


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("trainer.barebones=true", "manyheads needs the figures it leaves out"),
        ("trainer.fast_dev_run=true", "use debug=fast"),
        ("trainer.overfit_batches=0.1", "use debug=overfit"),
        ("trainer.limit_train_batches=0.5", "set data.rows, or trainer.max_steps"),
        ("trainer.limit_test_batches=0.5", "set test=false, or data.rows"),
        ("trainer.limit_predict_batches=2", "manyheads predict answers every row"),
    ],
)
def test_flags_that_would_bend_the_schedule_name_ours(word, remedy):
    assert complaint(word) == f"{word}: this flag is decided elsewhere: {remedy}"


def test_tokens_of_a_batch_are_a_whole_number_or_auto():
    assert compose("train", ["batch.tokens=auto"]).batch.is_auto
    assert compose("train", ["batch.tokens=1e4"]).batch.tokens == 10_000
    for value, shown in (("0", "0"), ("1.5", "1.5"), ("many", "many"), ("true", "true"), ("null", "null")):
        assert complaint(f"batch.tokens={value}") == (
            f"batch.tokens={shown} is not understood: it must be auto, or a whole number of at least 1; "
            "the default is 8192"
        )


@pytest.mark.parametrize("name", ["seed", "optim.lr"])
def test_a_number_too_long_for_a_float_is_one_sentence(name):
    with pytest.raises(ValueError, match=rf"{name}=1000.*\.\.\. has the wrong type"):
        compose("train", [f"{name}={10**400}"])
