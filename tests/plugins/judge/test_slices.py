"""Slices against counting by hand, SciPy's Fisher test and statsmodels' formula of Holm's correction."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

from manyheads.config import EvaluateConfig
from manyheads.data.rows import Rows
from manyheads.data.table import RawTable, Unread
from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.statistics import holm
from manyheads.plugins.judge.checks import wants_slices
from manyheads.plugins.judge.outliers import script_of
from manyheads.plugins.judge.slices import find_slices
from manyheads.runs.summary import NETWORK

NAMES = ["no", "yes"]
CLASSES: Any = SimpleNamespace(settings=SimpleNamespace(task="classify"))  # a folder of a model that has them


def stored(n: int = 600, *, multi: bool = False) -> tuple[LogitStore, np.ndarray]:
    """Rows that are answered right, but for a third of those from the web that hold `not`."""
    random = np.random.default_rng(0)
    labels, web, negated = random.integers(2, size=n), random.random(n) < 0.5, random.random(n) < 0.4
    texts = [f"{'not ' * int(bad)}a film {'x' * int(at % 7)} of {at}" for at, bad in enumerate(negated)]
    right = ~(web & negated & (random.random(n) < 0.6)) & (random.random(n) < 0.97)
    cells = {"source": ["web" if one else "print" for one in web], "id": list(range(n))}
    table = RawTable(["text", "source", "id"], cells.__getitem__, range(2, n + 2), "x.csv")
    rows = Rows(
        texts, None, labels.tolist(), "x.csv", range(2, n + 2), unread=Unread(table, ["source", "id"], range(n))
    )
    logits = np.zeros((n, 2), dtype=np.float32)
    logits[np.arange(n), np.where(right, labels, 1 - labels)] = 3
    if multi:
        rows.sets = [(label,) for label in labels.tolist()]
    return LogitStore(rows, NAMES, {NETWORK: [0.6, 0.6] if multi else None}, {NETWORK: logits}), right


def lines(some: LogitStore, *slices: str) -> list[dict[str, Any]]:
    return find_slices(some, slices).content


@pytest.mark.parametrize("multi", [False, True])
def test_a_column_cuts_rows_whose_figures_are_counted(multi: bool) -> None:
    some, right = stored(multi=multi)
    web = np.array([one == "web" for one in some.rows.unread.columns()["source"]])
    found = {one["slice"]: one for one in lines(some, "column:source")}
    for name, rows in (("web", web), ("print", ~web)):
        one, share = found[name], share_interval(int(right[rows].sum()), int(rows.sum()))
        assert one["n_rows"] == rows.sum()
        assert (one["accuracy"]["value"], one["accuracy"]["low"]) == (share.value, share.low)
        assert one["rest"] == pytest.approx(right[~rows].mean())
        table = [[right[some_].sum(), (~right[some_]).sum()] for some_ in (rows, ~rows)]
        assert one["p"] == pytest.approx(fisher_exact(table).pvalue)
        assert one["p_holm"] == pytest.approx(2 * one["p"])
    assert ("micro_f1" in found["web"]) == multi


def test_labels_cut_slices_of_rows_that_have_them() -> None:
    some, right = stored(3000, multi=True)
    labels = np.array([one for (one,) in some.rows.sets])
    for at, one in enumerate(lines(some, "label")):
        assert (one["n_rows"], one["accuracy"]["value"]) == ((labels == at).sum(), right[labels == at].mean())
        assert one["micro_f1"]["low"] < one["micro_f1"]["value"] < one["micro_f1"]["high"]


def test_every_way_cuts_each_row_once() -> None:
    some, _ = stored()
    found = lines(some, "length", "label", "script", "confidence", "column:id")
    for by in ("length", "label", "script", "confidence", "column:id"):
        assert sum(one["n_rows"] for one in found if one["by"] == by) == 600, by
    assert [one["slice"] for one in found if one["by"] == "label"] == NAMES
    assert len([one for one in found if one["by"] == "column:id"]) == 4  # numbers are cut into quarters
    assert [one for one in found if one["n_rows"] < 30 and "accuracy" in one] == []
    quarters = [one["n_rows"] for one in found if one["by"] == "length"]
    assert all(100 <= one <= 220 for one in quarters)


def test_a_quarter_of_times_is_named_by_all_their_digits() -> None:
    some, _ = stored()
    cells = {"time": [1_700_000_000 + at for at in range(600)], "kind": ["other", *(f"v{at}" for at in range(599))]}
    table = RawTable(["text", *cells], cells.__getitem__, range(2, 602), "x.csv")
    some.rows.unread = Unread(table, [*cells], range(600))
    found = [one["slice"] for one in lines(some, "column:time")]
    assert found[:2] == ["up to 1700000149", "above 1700000149 to 1700000299"]
    kinds = [one["slice"] for one in lines(some, "column:kind")]
    assert len({*kinds}) == len(kinds) == 21


def test_empty_cells_of_a_column_of_numbers_are_a_slice_of_their_own() -> None:
    some, right = stored()
    cells = {"amount": ["" if at % 7 == 0 else at for at in range(600)]}
    table = RawTable(["text", *cells], cells.__getitem__, range(2, 602), "x.csv")
    some.rows.unread = Unread(table, [*cells], range(600))
    found = {one["slice"]: one for one in lines(some, "column:amount")}
    amounts = np.arange(600)
    empty_n = amounts % 7 == 0
    low, middle, high = amounts[~empty_n][np.ceil(np.array([0.25, 0.5, 0.75]) * (~empty_n).sum()).astype(int) - 1]
    assert [*found] == [
        f"up to {low}",
        f"above {low} to {middle}",
        f"above {middle} to {high}",
        f"above {high}",
        "(empty)",
    ]
    for name, between_n in ((f"up to {low}", amounts <= low), (f"above {high}", amounts > high)):
        between_n = between_n & ~empty_n
        assert (found[name]["n_rows"], found[name]["accuracy"]["value"]) == (between_n.sum(), right[between_n].mean())
    assert (found["(empty)"]["n_rows"], found["(empty)"]["accuracy"]["value"]) == (empty_n.sum(), right[empty_n].mean())


def test_the_worst_are_found_on_one_half_and_hold_on_the_other() -> None:
    some, right = stored(3000)
    worst = lines(some, "worst")[0]
    assert "with 'not'" in worst["slice"]
    assert "source is web" in worst["slice"] or "source is not print" in worst["slice"]
    assert worst["accuracy"]["value"] < 0.6 < right.mean()
    assert worst["p_holm"] < 1e-6
    assert worst["n_rows"] < 500  # of one half
    random = np.random.default_rng(1)
    some.logits = {NETWORK: np.eye(2, dtype=np.float32)[random.integers(2, size=3000)]}
    assert all(one.get("p_holm", 1) > 0.01 for one in lines(some, "worst"))  # nothing is bad by more than chance


def test_numbers_beyond_those_of_the_tree_are_asked_for_too() -> None:
    some, _ = stored(3000)
    random = np.random.default_rng(3)
    large = random.permutation(3000) < 1000
    table = RawTable(
        ["id"], {"id": np.where(large, 1e300, np.arange(3000.0)).tolist()}.__getitem__, range(3000), "x.csv"
    )
    some.rows.texts, some.rows.unread = ["a film"] * 3000, Unread(table, ["id"], range(3000))
    some.logits = {NETWORK: np.eye(2, dtype=np.float32)[some.rows.labels ^ large]}
    (worst,) = lines(some, "worst")
    assert worst["slice"].startswith("id above ")
    assert (worst["accuracy"]["value"], worst["rest"]) == (0, 1)


@pytest.mark.parametrize("wrong", ["up to", "above", "empty", "filled"])
def test_the_worst_are_found_in_a_column_of_numbers_with_empty_cells(wrong: str) -> None:
    """Whose rows are those that the sentence names."""
    some, _ = stored(3000)
    random = np.random.default_rng(4)
    amount_n, is_empty_n = 10 * random.integers(-50, 50, 3000), random.random(3000) < 0.3
    cells = np.where(is_empty_n, "", amount_n.astype(str)).tolist()
    table = RawTable(["amount"], {"amount": cells}.__getitem__, range(3000), "x.csv")
    some.rows.texts, some.rows.unread = ["a film"] * 3000, Unread(table, ["amount"], range(3000))
    low_n = amount_n <= -200
    wrong_n = {
        "up to": is_empty_n | low_n, "above": ~is_empty_n & ~low_n, "empty": is_empty_n, "filled": ~is_empty_n & low_n
    }[wrong]  # fmt: skip
    some.logits = {NETWORK: np.eye(2, dtype=np.float32)[some.rows.labels ^ wrong_n]}
    (worst,) = lines(some, "worst")
    assert (worst["accuracy"]["value"], worst["rest"]) == (0, 1)
    expected = {
        "up to": {"amount up to -195 or (empty)"},
        "above": {"amount above -195"},
        "empty": {"amount is (empty)"},
        "filled": {"amount is not (empty)", "amount up to -195 or (empty)"},
    }
    assert {*worst["slice"].split(", ")} == expected[wrong]


def test_what_is_asked_twice_of_a_length_is_said_once() -> None:
    some, _ = stored(4000)
    random = np.random.default_rng(2)
    lengths = random.integers(10, 90, size=4000)
    some.rows.texts, some.rows.unread = ["x" * int(one) for one in lengths], None
    right = random.random(4000) < np.select([lengths < 40, lengths < 60], [0.95, 0.4], 0.9)
    some.logits = {NETWORK: np.eye(2, dtype=np.float32)[some.rows.labels ^ ~right]}
    found = lines(some, "worst", "length")
    worst = [one for one in found if one["by"] == "worst"]
    assert re.fullmatch(r"length above (39|4\d|5\d)\.5 to 59\.5", worst[0]["slice"])
    assert all(one["slice"].count("length") == 1 for one in worst)
    tested = [one for one in found if "p" in one]
    assert len(tested) == len(worst) + 4  # which are corrected together
    assert [one["p_holm"] for one in tested] == holm([one["p"] for one in tested])


def test_a_confidence_of_several_labels_is_said_to_be_none() -> None:
    some, _ = stored(100, multi=True)
    found = find_slices(some, ("confidence", "label"))
    assert {one["by"] for one in found.content} == {"label"}
    assert "confidence cuts no slices" in found.sections[0].notes[0]


def test_a_column_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"slices=column:web is no further column of x.csv: it has source, id"):
        wants_slices(EvaluateConfig(run="x", slices=["label", "column:web"]), CLASSES, stored(50)[0].rows)


def test_a_slice_that_is_named_twice_would_count_twice_in_the_correction() -> None:
    column = r"or for a column of that name slices=\[column:priority\]$"
    for given in ("priority", ["priority"], ["length", "priority"]):
        with pytest.raises(ValueError, match=rf"^slices=priority does not name a slice: choose length, .*, {column}"):
            EvaluateConfig(run="x", slices=given)
    with pytest.raises(
        ValueError, match=r"^slices=length is not a list: write it in brackets, such as slices=\[length\]$"
    ):
        EvaluateConfig(run="x", slices="length")
    with pytest.raises(ValueError, match=r"^slices=\['length', 'label', 'length'\] names length twice: name it once$"):
        EvaluateConfig(run="x", slices=["length", "label", "length"])


def test_a_script_is_that_of_most_letters() -> None:
    assert [script_of(one) for one in ("a film", "это film хороший", "これは映画です", "123 !")] == [
        "latin", "cyrillic", "hiragana", "none",
    ]  # fmt: skip
    assert script_of("映画作品") == "cjk"
