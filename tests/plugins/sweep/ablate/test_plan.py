"""Rows at the budget of the first: parameters, operations, tokens, or a time."""

import csv
from itertools import islice

import pytest

from manyheads.cli.compose import compose
from manyheads.config.trainer_flags import default_trainer
from manyheads.data.batches import Batches
from manyheads.data.datamodule import TextData
from manyheads.nn import assemble
from manyheads.nn.cost import flops_per_token
from manyheads.plugins.sweep.budget import plan_rows
from manyheads.plugins.sweep.sets import read_sets
from manyheads.plugins.sweep.tokenized_sets import tokenize


def planned(*words):
    config = compose("ablate", list(words))
    data = tokenize(read_sets(config)[0], config.run(config.variants()[0]))
    return data, plan_rows(config, data)


def built(row, data):
    sizes = data.sizes
    classifier = assemble(
        row.run.model, vocab_size=sizes.vocab_size, n_classes=sizes.n_classes, max_length=sizes.max_length
    )
    return sum(parameter.numel() for parameter in classifier.parameters())


def test_other_weights_or_votes_of_rows_are_other_data(words, tmp_path):
    def digest(weight, votes, *more):
        cells = [("text", "label", "trust", "votes")]
        for n in range(80):
            name = ("cat", "dog")[n % 2]
            cells.append((f"number {n} {name}s", name, weight if n < 9 else 1, f"{name}:{votes if n < 9 else 3}|cow:1"))
        with (tmp_path / "rows.csv").open("w", newline="") as file:
            csv.writer(file).writerows(cells)
        return planned(*words, *more)[0].digest

    assert digest(1, 3) == digest(2, 4)
    assert digest(1, 3, "data.weight=trust") == digest(1, 4, "data.weight=trust") != digest(2, 3, "data.weight=trust")
    assert digest(1, 3, "data.votes=votes") == digest(2, 3, "data.votes=votes") != digest(1, 4, "data.votes=votes")


def test_equal_parameters(words):
    data, rows = planned(*words, "vary=model.score", "values=[dot,additive,general]", "model.d_ff=64")
    for row in rows:
        assert row.results.parameters == built(row, data)
        assert row.results.difference == pytest.approx(built(row, data) / built(rows[0], data) - 1)
        assert abs(row.results.difference) <= 0.01
    assert rows[0].run.model.d_ff == 64
    assert rows[1].run.model.d_ff < 64


@pytest.mark.parametrize("axis", [["vary=model.window", "values=[2,0]"], ["vary=model.d_k", "values=[8,16]"]])
def test_equal_flops_at_the_lengths_that_are_met(words, tmp_path, axis):
    """A few long texts hold most of the tokens, each of which attends to all of its own."""
    with (tmp_path / "long.csv").open("w", newline="") as file:
        rows = [(" ".join(f"{n}" for _ in range(90 if n % 10 == 0 else 2)), ("cat", "dog")[n % 2]) for n in range(79)]
        csv.writer(file).writerows([("text", "label"), *rows])
    data, rows = planned(*words, *axis, "equal=flops", "data.max_length=96", f"sets=[{tmp_path / 'long.csv'}]",
                         "model.d_ff=256")  # fmt: skip
    lengths = data.tokens["train"].lengths.tolist()
    first, other = (sum(n * flops_per_token(row.run.model, n) for n in lengths) / sum(lengths) for row in rows)
    assert other == pytest.approx(first, rel=0.01)
    assert [row.results.flops_per_token for row in rows] == pytest.approx([first, other])
    assert rows[1].run.model.d_ff < 256


def tokens_read(row, data):
    batches = TextData(data.tokens, row.run.batch, row.run.seed)
    sizes = (batch.ids_N.numel() for epoch in range(99) for batch in Batches(data.tokens["train"], batches.plan(epoch)))
    return sum(islice(sizes, row.run.trainer["max_steps"] * row.run.batch.accumulate))


@pytest.mark.parametrize("axis", [["vary=batch.rows", "values=[8,3]"], ["vary=batch.accumulate", "values=[1,2]"]])
def test_equal_tokens(words, axis):
    data, rows = planned(*words, *axis, "equal=tokens", "trainer.max_steps=60", "tolerance=0.02")
    first, other = (tokens_read(row, data) for row in rows)
    assert rows[1].results.difference == pytest.approx(other / first - 1)
    assert abs(rows[1].results.difference) <= 0.02
    assert rows[0].run.trainer["max_steps"] == 60


def test_the_same_batches_need_the_same_steps(words):
    _, rows = planned(*words, "equal=tokens")
    assert [row.run.trainer["max_steps"] for row in rows] == [4, 4]
    assert rows[1].results.difference == 0.0


def test_a_row_has_the_limits_that_its_data_decides_as_in_train(words):
    """Forty rows of two classes are few."""
    words = [word for word in words if not word.startswith("trainer.")]
    limits = ["optim.few=50", "optim.few_epochs=40", "optim.steps_per_class=7", "equal=tokens"]
    _, rows = planned(*words, *limits)
    assert (rows[0].run.trainer["max_epochs"], rows[0].run.trainer["max_steps"]) == (40, 614)
    _, rows = planned(*words, *limits, "optim.few=0", "equal=parameters")
    default = default_trainer()["max_epochs"]
    assert [(row.run.trainer["max_epochs"], row.run.trainer["max_steps"]) for row in rows] == [(default, 614)] * 2


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        (["vary=model.n_heads", "values=[1,4000]"], r"^model\.n_heads=4000 on rows: no width brings this row to the "),
        (["vary=[model.d_ff,model.d_model]", "values=[[8,8],[9,9]]"], r"9, 9 on rows: no width is left to make the "),
        (
            ["vary=batch.rows", "values=[8,24]", "equal=tokens"],
            r"24 on rows: no step count reads the first row's ",
        ),
    ],
)
def test_a_budget_that_cannot_be_met_is_a_sentence(words, axis, said):
    with pytest.raises(ValueError, match=said):
        planned(*words, *axis)
