"""What figures cannot say."""

import pytest

from manyheads.data.rows import Rows
from manyheads.evaluation.members import chosen_here, few_rows, learnt_here


def rows(*counts: int, sets: bool = False) -> Rows:
    labels = [label for label, n in enumerate(counts) for _ in range(n)]
    marks = [(label,) for label in labels] if sets else None
    return Rows(["x"] * len(labels), None, labels, "x.csv", range(len(labels)), sets=marks)


CHANCE = "their own figures, and what they add to macro F1, may be chance"


@pytest.mark.parametrize(
    ("judged", "validation", "said"),
    [
        (rows(200, 10), rows(90, 10), []),
        (
            rows(4, 1),
            None,
            [
                "test has 5 rows: a share of them is known to ±33 points at worst",
                f"test has fewer than 10 rows of a (4), b (1): {CHANCE}",
            ],
        ),
        (
            rows(1, 0),
            None,
            [
                "test has 1 row: a share of them is known to ±40 points at worst",
                "test has no row of b, of which it says nothing",
                f"test has fewer than 10 rows of a (1): {CHANCE}",
            ],
        ),
        (rows(200, 10), rows(80, 10), ["what was chosen on the 90 rows of validation is partly luck"]),
        (
            rows(200, 10),
            rows(100, 9, sets=True),
            ["the thresholds of b (9) were tuned on fewer than 10 validation rows that have the label"],
        ),
    ],
)
def test_few_rows_are_one_warning(judged: Rows, validation: Rows | None, said: list[str]) -> None:
    assert few_rows(judged, "test", ["a", "b"], validation) == ([f"few rows: {'; '.join(said)}"] if said else [])


def test_of_many_rare_classes_some_are_named() -> None:
    (said,) = few_rows(rows(200, *[3] * 9), "test", list("abcdefghij"))
    assert "b (3), c (3), d (3), e (3), f (3) and 4 more:" in said


def test_rows_that_the_model_was_chosen_on_are_named_as_such() -> None:
    assert chosen_here("test", linear=True, multi=True) == ""
    assert chosen_here("validation", linear=True, multi=True).startswith(
        "epoch, share, temperatures and thresholds were chosen on these validation rows: figures and lead flatter"
    )
    alone = chosen_here("validation", linear=False, multi=False, classes=False)
    assert alone.startswith("epoch was chosen on these validation rows: figures flatter")
    assert "learnt from these training rows" in learnt_here("train")
    assert learnt_here("test") == learnt_here("") == ""
