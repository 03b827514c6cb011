"""What predictors share: parts of the rows become one answer, whatever each of them found."""

import torch

from manyheads.inference.batching import NONE, RowValues, joined


def test_parts_are_joined_in_the_order_of_the_rows():
    found = joined(
        [RowValues(torch.tensor([2, 0]), torch.tensor([20.0, 0.0])), RowValues(torch.tensor([1]), torch.ones(1))]
    )
    assert found.rows_m.tolist() == [0, 1, 2]
    assert found.values.tolist() == [0.0, 1.0, 20.0]


def test_what_one_part_found_more_of_pads_the_others():
    """As where texts are answered by texts: the longest answer of a batch is not that of the next."""
    short, long = torch.tensor([[5, 6]]), torch.tensor([[1, 2, 3], [4, NONE, NONE]])
    nothing = RowValues(torch.empty(0, dtype=torch.int64), torch.empty(0, 0, dtype=torch.int64))
    found = joined([RowValues(torch.tensor([1]), short), nothing, RowValues(torch.tensor([2, 0]), long)])
    assert found.values.tolist() == [[4, NONE, NONE], [5, 6, NONE], [1, 2, 3]]
    assert found.values.dtype == torch.int64


def test_no_part_is_no_row():
    assert len(joined([]).rows_m) == 0
