"""Packed and Padded against torch's own padding of sequences and against plain loops."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from manyheads.layout import Packed, Padded

lengths_strategy = st.lists(st.integers(0, 5), min_size=1, max_size=5)
over_lengths = settings(max_examples=40, deadline=None)


def tokens_of(lengths: list[int], *trailing: int) -> Tensor:
    return torch.randn(sum(lengths), *trailing, dtype=torch.float64, requires_grad=True)


def padded_by_torch(x_N: Tensor, lengths: list[int]) -> Tensor:
    return pad_sequence(list(x_N.split(lengths)), batch_first=True)


@over_lengths
@given(lengths_strategy, st.sampled_from([(), (2,), (2, 3)]))
@example([0, 0], (2,))
@example([3, 3], (2,))
def test_grid_is_torchs_padding_and_flat_its_inverse(lengths, trailing):
    layout, x_N = Packed.of_lengths(lengths), tokens_of(lengths, *trailing)
    grid, theirs = layout.grid(x_N), padded_by_torch(x_N, lengths)
    assert torch.equal(grid, theirs)
    assert torch.equal(layout.flat(grid), x_N)
    toward = torch.randn_like(theirs)
    assert torch.equal(*(torch.autograd.grad(one, x_N, toward, retain_graph=True)[0] for one in (grid, theirs)))


@over_lengths
@given(lengths_strategy)
@example([0, 0])
@example([2, 2])
def test_flat_is_a_loop_over_documents(lengths):
    layout = Packed.of_lengths(lengths)
    x_BL = torch.randn(len(lengths), layout.longest, 3, dtype=torch.float64, requires_grad=True)
    flat_N, looped_N = layout.flat(x_BL), torch.cat([x_BL[row, :length] for row, length in enumerate(lengths)])
    assert torch.equal(flat_N, looped_N)
    assert torch.equal(layout.grid(flat_N), x_BL * layout.keep_BL[..., None])
    toward = torch.randn_like(looped_N)
    assert torch.equal(*(torch.autograd.grad(one, x_BL, toward)[0] for one in (flat_N, looped_N)))


def test_grid_and_flat_pass_gradcheck():
    layout = Packed.of_lengths([2, 0, 3])
    assert torch.autograd.gradcheck(layout.grid, tokens_of([2, 0, 3], 2))
    x_BL = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layout.flat, x_BL)


@over_lengths
@given(lengths_strategy)
def test_a_packed_layout_knows_where_each_token_stands(lengths):
    layout = Packed.of_lengths(lengths)
    assert layout.n_documents == len(lengths)
    assert layout.longest == max(lengths)
    assert layout.offsets.tolist() == [sum(lengths[:row]) for row in range(len(lengths) + 1)]
    assert layout.lengths_B.tolist() == lengths
    assert layout.positions.tolist() == [at for length in lengths for at in range(length)]
    assert layout.keep_BL.tolist() == [[at < length for at in range(max(lengths))] for length in lengths]
    assert layout.is_full == (len(set(lengths)) == 1 and lengths[0] > 0)


def test_a_packed_layout_of_no_documents_is_empty_everywhere():
    layout = Packed.of_lengths([])
    assert (layout.n_documents, layout.longest, layout.is_full) == (0, 0, False)
    assert layout.keep_BL.shape == (0, 0)
    assert layout.lengths_B.numel() == layout.positions.numel() == 0
    assert layout.grid(torch.zeros(0, 4)).shape == (0, 0, 4)
    assert layout.flat(torch.zeros(0, 0, 4)).shape == (0, 4)


def test_documents_of_one_length_are_laid_side_by_side_without_a_copy():
    layout, x_N = Packed.of_lengths([3, 3]), torch.randn(6, 2)
    grid = layout.grid(x_N)
    assert grid.data_ptr() == x_N.data_ptr()
    assert layout.flat(grid).data_ptr() == x_N.data_ptr()


@over_lengths
@given(lengths_strategy)
def test_a_padded_layout_answers_as_the_packed_one(lengths):
    packed = Packed.of_lengths(lengths)
    padded = Padded(packed.keep_BL)
    assert (padded.n_documents, padded.longest) == (packed.n_documents, packed.longest)
    assert torch.equal(padded.lengths_B, packed.lengths_B)
    assert torch.equal(packed.flat(padded.positions), packed.positions)
    x_BL = torch.randn(len(lengths), packed.longest, 2)
    assert padded.grid(x_BL) is x_BL
    assert padded.flat(x_BL) is x_BL


@over_lengths
@given(lengths_strategy, st.integers(1, 7))
@example([3, 3], 4)
@example([0, 0], 2)
def test_a_tail_changes_nothing_for_the_documents(lengths, tail):
    bare = Packed.of_lengths(lengths)
    tailed = Packed(bare.offsets, bare.longest, tail)
    x_N = torch.randn(sum(lengths) + tail, 2, 3, dtype=torch.float64, requires_grad=True)
    assert tailed.positions.tolist() == [*bare.positions.tolist(), *[0] * tail]
    kept = bare.keep_BL[..., None, None]
    assert torch.equal(tailed.grid(x_N) * kept, bare.grid(x_N[: sum(lengths)]))
    assert torch.equal(tailed.flat(tailed.grid(x_N)), torch.cat([x_N[: sum(lengths)], torch.zeros(tail, 2, 3)]))
    toward = torch.randn(len(lengths), bare.longest, 2, 3, dtype=torch.float64) * kept
    (ours,) = torch.autograd.grad(tailed.grid(x_N), x_N, toward)
    (without,) = torch.autograd.grad(bare.grid(x_N[: sum(lengths)]), x_N, toward)
    assert torch.equal(ours, without)
    x_BL = torch.randn_like(toward, requires_grad=True)
    of_tokens = torch.randn(sum(lengths), 2, 3, dtype=torch.float64)
    (ours,) = torch.autograd.grad(tailed.flat(x_BL), x_BL, torch.cat([of_tokens, torch.zeros(tail, 2, 3)]))
    (without,) = torch.autograd.grad(bare.flat(x_BL), x_BL, of_tokens)
    assert torch.equal(ours * kept, without)


@pytest.mark.parametrize(("n_tokens", "filled"), [(511, 511), (512, 512), (513, 576), (640, 640), (701, 704)])
def test_many_tokens_are_filled_up_with_zeros_to_a_round_number(n_tokens, filled):
    layout, x_N = Packed.of_lengths([n_tokens - 5, 5]), torch.randn(n_tokens, 2)
    full_N, of_full = layout.filled_up(x_N)
    assert torch.equal(full_N, torch.cat([x_N, torch.zeros(filled - n_tokens, 2)]))
    assert (of_full.n_tokens, of_full.tail) == (n_tokens, filled - n_tokens)
    assert of_full.filled_up(full_N)[1].tail == of_full.tail
    padded = Padded(layout.keep_BL)
    assert padded.filled_up(layout.grid(x_N))[1] is padded


def test_positions_behind_the_end_of_a_document_never_pass_its_last():
    layout = Padded(torch.tensor([[True, True, False, False], [False] * 4]))
    assert layout.positions.tolist() == [[0, 1, 1, 1], [0, 0, 0, 0]]


def test_a_moved_layout_answers_without_reading_from_the_device():
    layout = Packed.of_lengths([2, 0, 3]).to("meta", non_blocking=True)  # reading from meta raises
    x_N = torch.randn(5, 2, device="meta")
    assert layout.offsets.is_meta
    assert layout.grid(x_N).shape == (3, 3, 2)
    assert layout.flat(layout.grid(x_N)).shape == (5, 2)
    assert layout.positions.shape == (5,)
    assert not layout.is_full


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_layout_moved_to_the_gpu_gives_what_it_gave_before():
    layout, x_N = Packed.of_lengths([2, 0, 3]), torch.randn(5, 2)
    moved = layout.to("cuda", non_blocking=True)
    assert moved.offsets.is_cuda
    assert torch.equal(moved.grid(x_N.cuda()).cpu(), layout.grid(x_N))
    assert torch.equal(moved.positions.cpu(), layout.positions)


def test_columns_may_go_on_from_a_later_position():
    keep_BL = torch.tensor([[True, True, False], [False] * 3])
    assert torch.equal(Padded(keep_BL, first=5).positions, Padded(keep_BL).positions + 5)
