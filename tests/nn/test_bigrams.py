"""A pair of neighbours is found by its two ids and their order, within a document alone."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.nn.bigrams import Bigrams

ROWS = 10_007


def rows_of(documents: list[list[int]]) -> list[list[int]]:
    """The table's row of each token."""
    table = Bigrams(n_rows=ROWS, d_model=1)
    lengths = [len(ids) for ids in documents]
    ids = torch.tensor([one for ids in documents for one in ids], dtype=torch.int64)
    return [rows.tolist() for rows in table.rows_of(ids, Packed.of_lengths(lengths)).split(lengths)]


@given(st.lists(st.lists(st.integers(0, 50), max_size=6), min_size=1, max_size=4))
def test_a_row_depends_on_a_token_and_the_one_before_it_in_its_document(documents):
    known: dict[tuple[int, int], int] = {}
    for ids, rows in zip(documents, rows_of(documents), strict=True):
        for before, token, row in zip([0, *ids], ids, rows, strict=False):
            assert known.setdefault((before, token), row) == row


def test_pairs_are_spread_over_the_table():
    pairs = [(a, b) for a in range(1, 60) for b in range(1, 60)]
    seconds = [rows[1] for rows in rows_of([list(pair) for pair in pairs])]
    expected = ROWS * (1 - (1 - 1 / ROWS) ** len(pairs))  # of a hash that is as good as chance
    assert len(set(seconds)) > 0.97 * expected
    assert rows_of([[3, 5]])[0][1] != rows_of([[5, 3]])[0][1]


def test_padding_and_neighbouring_documents_never_show():
    table = Bigrams(n_rows=50, d_model=3).rows_of
    lengths = [4, 0, 2, 1]
    ids, layout = torch.randint(30, (7,)), Packed.of_lengths(lengths)
    together = table(ids, layout)
    alone = torch.cat([table(each, Packed.of_lengths([len(each)])) for each in ids.split(lengths)])
    torch.testing.assert_close(together, alone)
    padded = table(layout.grid(ids), Padded(layout.keep_BL))
    torch.testing.assert_close(padded[layout.keep_BL], together)


def test_a_fresh_table_adds_nothing_and_learns(small):
    models = []
    for n_bigrams in (0, 40):
        torch.manual_seed(0)
        models.append(assemble(small(n_bigrams=n_bigrams), vocab_size=9, n_classes=2, max_length=8).eval())
    without, with_them = models
    ids, layout = torch.randint(9, (6,)), Packed.of_lengths([6])
    with_them.load_state_dict(without.state_dict(), strict=False)
    torch.testing.assert_close(with_them(ids, layout), without(ids, layout))
    with_them(ids, layout)[:, 0].sum().backward()
    assert with_them.embeddings.bigrams.weight.grad.abs().sum() > 0
