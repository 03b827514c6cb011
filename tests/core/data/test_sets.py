"""Names of labels that something else than | joins."""

import pytest

from manyheads.data.columns import ColumnRoles, joined_otherwise
from manyheads.data.table import RawTable

JOINED = {
    ",": ["joy,anger", "joy", "anger, fear", "fear", ""],
    ";": ["joy;anger", "anger;fear", "fear;joy", None],
    "list": ["['joy', 'anger']", "['joy']", "['anger']"],
}


def found(column: str, cells: list[object]) -> list[str]:
    table = RawTable([column], lambda name: cells, range(len(cells)), "train.csv")
    return joined_otherwise(table, ColumnRoles("text", None, column))


@pytest.mark.parametrize("how", JOINED)
def test_names_joined_otherwise_are_told(how):
    cells, sign = JOINED[how], "," if how == "list" else how
    said = f"train.csv: the column '{{}}' joins names by '{sign}', as in '{cells[0]}', so that each combination is "
    if how == "list":  # is read as a list in JSON is
        assert found("labels", cells) == []
    else:
        with pytest.raises(ValueError, match=r"^train") as caught:
            found("labels", cells)
        assert str(caught.value) == (
            f"{said.format('labels')}a class of its own: join them by |, or, if these are names of classes, call the "
            "column label"
        )
    assert found("genre", cells) == [
        f"{said.format('genre')}a class of its own; if these are several labels, call the column labels and join them "
        "by |"
    ]


@pytest.mark.parametrize(
    "cells",
    [
        ["joy|anger", "joy, of a kind|joy", "anger"],
        ["Arts, Crafts", "Home, Garden", "Sports"],
        ["Home, Garden", "Home, Kitchen", "Home, Tools"],
        [["joy,anger"], ["joy"], ["anger"]],
        [0, 1, None],
    ],
)
def test_names_that_hold_a_sign_are_no_joined_ones(cells):
    assert found("labels", cells) == []


def test_zeros_and_ones_are_no_names():
    for column in ("labels", "label"):
        with pytest.raises(
            ValueError, match=r"^train.csv: each cell of 'labels?' is a list of 3 zeros and ones, which name no label"
        ):
            found(column, [[0, 1, 1], [0, 0, 0], [1.0, 0, True]])
    with pytest.raises(ValueError, match=r"is a list of 3 zeros and ones, which name no label"):
        found("labels", ["[0, 1, 1]", "[0, 0, 0]"])
    assert found("labels", ["[0, 1]", "[1]"]) == found("labels", ["0|1", "1|0"]) == []
    assert (
        found("labels", [[0, 1], [1, 0], [1]]) == found("labels", [[0], [1]]) == found("labels", [[0, 2], [1, 0]]) == []
    )


@pytest.mark.parametrize("cell", ["['joy' 'anger']", "[2 5]", "('joy', 'anger')", "('joy',)", "{'joy'}", "set()"])
def test_what_numpy_and_python_show_is_no_list(cell):
    with pytest.raises(ValueError, match=r"in the column 'labels' is no list that can be read: join names by \|"):
        found("labels", ["joy", cell, "[]"])
    assert found("label", ["joy", cell, "[]"]) == found("labels", ["[joy]|['fear']", "(joy)"]) == []
