"""What needs no torch to be refused."""

from dataclasses import replace

import pytest

from manyheads.cli.main import main
from manyheads.config import Balance, DataConfig, Long
from manyheads.config.trainer_flags import check_training
from manyheads.data import checks
from manyheads.data.rows import Rows, Splits


def complaint(check, *given, **named) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the whole sentence
        check(*given, **named)
    return str(caught.value)


@pytest.mark.parametrize("trainer", [{"max_epochs": -1, "max_steps": -1}, {"max_epochs": None}, {}])
def test_training_needs_an_end(trainer):
    assert complaint(check_training, trainer) == (
        "trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them"
    )
    check_training({"max_epochs": 3})
    check_training({"max_epochs": -1, "max_steps": 3})


@pytest.mark.parametrize("trainer", [{"max_epochs": 0}, {"max_epochs": 3, "max_steps": 0}, {"max_epochs": -2}])
def test_no_training_is_no_training(trainer):
    (name, value) = list(trainer.items())[-1]
    said = f"trainer.{name}={value} trains nothing: give 1 or more, or -1 for no such limit"
    assert complaint(check_training, trainer) == said


@pytest.mark.parametrize(("limit", "said"), [(0.4, "0.4"), (1, "1"), (7, "7"), (0.99, "0.99")])
def test_a_part_of_the_validation_batches_judges_nothing(limit, said):
    assert complaint(check_training, {"max_epochs": 3, "limit_val_batches": limit}) == (
        f"trainer.limit_val_batches={said} would judge epochs by the longest texts alone, which validation reads "
        "first: remove it, or give fewer rows by data.validation_share or data.rows"
    )


@pytest.mark.parametrize("interval", ["00:00:10:00", {"minutes": 10}, 0, 0.0, -1])
def test_validation_comes_by_steps(interval):
    assert complaint(check_training, {"max_epochs": 3, "val_check_interval": interval}) == (
        f"trainer.val_check_interval={interval} is not an interval in steps: give a share of an epoch, "
        "such as 0.5, or a number of batches"
    )
    check_training({"max_epochs": 3, "val_check_interval": 0.5})
    check_training({"max_epochs": 3, "val_check_interval": 20})


@pytest.mark.parametrize("limit", [0, 0.0, 1.0, None])
def test_all_of_them_or_none_are_as_good_as_before(limit):
    check_training({"max_epochs": 3, "limit_val_batches": limit})


@pytest.mark.parametrize("words", ["train", "train data.folds=3"])
def test_every_verb_that_trains_says_so_before_it_writes(words, tmp_path, monkeypatch, capsys):
    check_refused_unwritten(words, tmp_path, monkeypatch, capsys)


def check_refused_unwritten(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text,label\n" + "a b,x\nc d,y\n" * 20)
    assert main([*words.split(), "data.path=rows.csv", "trainer.limit_val_batches=0.4", "output=out"]) == 2
    assert capsys.readouterr().err.startswith("trainer.limit_val_batches=0.4 would judge epochs by the longest")
    assert [one.name for one in tmp_path.iterdir()] == ["rows.csv"]


def test_a_weight_for_no_class_is_one_sentence():
    for choice in ("none", "balanced", {"joy": 2.0}):
        checks.check_class_names(choice, ["joy", "fear"])
    assert complaint(checks.check_class_names, {"joi": 2.0}, ["joy", "fear"]) == (
        "optim.class_weights names the class 'joi', which is not in the data: the classes are joy, fear"
    )
    assert complaint(checks.check_class_names, {"joi": 2.0}, [str(n) for n in range(14)]).endswith(
        "the classes are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"
    )


def test_classes_too_many_for_the_memory_are_one_sentence():
    rows = Rows(["a"] * 5, None, [0] * 5, "test.csv", range(5))
    splits = Splits(rows, rows, None, [f"{n}" for n in range(100_000)])
    checks.check_memory(splits, 161 * 10**9)
    assert complaint(checks.check_memory, splits, 24 * 10**9) == (
        "judging 5 rows (test.csv) by 100,000 classes takes 160 GB, but this machine has 24 GB: join rare classes in "
        "the data, or read fewer rows by data.rows"
    )
    more = Rows(["a"] * 50_000, None, [0] * 50_000, "validation.csv", range(50_000))
    assert "judging 50,000 rows (validation.csv)" in complaint(
        checks.check_memory, replace(splits, validation=more, test=rows), 161 * 10**9
    )
    splits = replace(splits, train=replace(rows, sets=[(0,)] * 5), validation=more, test=rows)
    checks.check_memory(splits, 966 * 10**9)
    assert "takes 965 GB" in complaint(checks.check_memory, splits, 964 * 10**9)


def test_rows_are_balanced_by_one_class_and_once():
    checks.check_balance(Balance.none, "balanced", multi=True)
    checks.check_balance(Balance.sqrt, {"joy": 2.0}, multi=False)
    assert complaint(checks.check_balance, Balance.sqrt, "none", multi=True) == (
        "batch.balance=sqrt draws rows by their class, but rows of this data have any number of labels: remove it, or "
        "weigh labels by optim.class_weights=balanced"
    )
    assert complaint(checks.check_balance, Balance.uniform, "balanced", multi=False) == (
        "batch.balance=uniform and optim.class_weights=balanced would both make up for rare classes: remove one of them"
    )


def test_windows_of_pairs_are_one_sentence():
    for long in Long:
        checks.check_long(DataConfig(long=long), pairs=False)
    checks.check_long(DataConfig(long=Long.both), pairs=True)
    assert complaint(checks.check_long, DataConfig(long=Long.windows), pairs=True) == (
        "data.long=windows reads a long text in parts, but the data has pairs of texts: use data.long=both, or leave "
        "the second text out by data.text_pair="
    )
