"""The whole sequence-to-sequence model: causal, each document alone, and the same step by step as all at once."""

from itertools import cycle, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from manyheads import plugin
from manyheads.config import Placement
from manyheads.layout import Packed, Padded
from manyheads.nn import Encoder
from manyheads.plugins.language.networks import Seq2Seq, assemble_seq2seq, greedy
from tests.registry import of_plugin

VOCAB, LONGEST = 11, 8
POSITIONS, PLACEMENTS, SCORES, NORMALISERS = (
    *(plugin.names("positions"), [one.name for one in Placement]),
    *(plugin.names("score"), plugin.names("normaliser")),
)
FAMILIES = [  # a placement for each position, a normaliser for each score: their products are slow
    *({"positions": one, "placement": other} for one, other in zip(POSITIONS, cycle(PLACEMENTS), strict=False)),
    *({"score": one, "normaliser": other} for one, other in zip(SCORES, cycle(NORMALISERS), strict=False)),
    {"window": 2},
    {"windows": [0, 3], "positions": "alibi"},
    {"window": 2, "positions": "rotary", "normaliser": "sigmoid", "n_kv_heads": 1},
    {"n_kv_heads": 1, "score": "concat"},
    {"n_kv_heads": 1, "score": "additive", "positions": "rotary"},
    {"project": False, "project_output": False, "d_k": 6, "d_v": 6, "positions": "alibi"},
    {"causal": True},
    *(
        {"encoder": kind, "bidirectional": ways}
        for kind, ways in product(of_plugin("language", "encoder"), (True, False))
    ),
    *({"encoder": "gru", "score": score} for score in SCORES),
    {"encoder": "lstm", "score": "additive", "positions": "learned", "n_layers": 1, "normaliser": "entmax15"},
]
PRODUCTS = [
    *({"positions": one, "placement": other} for one, other in product(POSITIONS, PLACEMENTS)),
    *({"score": one, "normaliser": other} for one, other in product(SCORES, NORMALISERS)),
]
SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in PRODUCTS if one not in FAMILIES]
THIRD = [one if at % 3 == 0 else pytest.param(one, marks=pytest.mark.slow) for at, one in enumerate(FAMILIES)]
families, a_third_of_them = (
    pytest.mark.parametrize("family", some + SLOW, ids=lambda one: "-".join(map(str, one.values())))
    for some in (FAMILIES, THIRD)
)


@pytest.fixture(scope="module")
def build(small):
    built: dict[str, Seq2Seq] = {}

    def seq2seq(family: dict) -> Seq2Seq:
        if (key := str(family)) not in built:
            torch.manual_seed(0)
            model = assemble_seq2seq(small(**family), vocab_size=VOCAB, max_length=LONGEST).eval()
            for parameter in model.parameters():  # biases and norms away from zero and one
                parameter.data += 0.1 * torch.randn_like(parameter)
            built[key] = model
        return built[key]

    return seq2seq


def some(lengths: list[int]) -> tuple[Tensor, Packed]:
    return torch.randint(VOCAB, (sum(lengths),)), Packed.of_lengths(lengths)


SOURCES, TARGETS = [3, 0, 8, 1], [2, 8, 5, 1]


@families
@torch.no_grad()
def test_steps_are_the_whole_token_by_token(build, family):
    model, source, targets_BL = build(family), some(SOURCES), torch.randint(VOCAB, (4, LONGEST))
    whole_BLV = model(*source, targets_BL.flatten(), Packed.of_lengths([LONGEST] * 4)).unflatten(0, (4, LONGEST))
    state = model.start(*source)
    for at in range(LONGEST):
        logits_BV, state = model.step(targets_BL[:, at], state)
        torch.testing.assert_close(logits_BV, whole_BLV[:, at], atol=1e-5, rtol=1e-5)
        assert state.position == at + 1


@a_third_of_them
@torch.no_grad()
def test_documents_may_be_repeated_dropped_and_reordered_between_steps(build, family):
    model, (ids, layout), targets_BL = build(family), some(SOURCES), torch.randint(VOCAB, (4, 3))
    state = model.start(ids, layout)
    for at in range(2):
        _, state = model.step(targets_BL[:, at], state)
    rows = torch.tensor([2, 0, 0, 1])
    got, _ = model.step(targets_BL[rows, 2], state.take(rows))
    sources = ids.split(SOURCES)
    chosen = torch.cat([sources[row] for row in rows.tolist()]), Packed.of_lengths([SOURCES[row] for row in rows])
    whole = model(*chosen, targets_BL[rows].flatten(), Packed.of_lengths([3] * 4)).unflatten(0, (4, 3))
    torch.testing.assert_close(got, whole[:, 2], atol=1e-5, rtol=1e-5)


@given(st.sampled_from(FAMILIES), st.integers(0, LONGEST - 1), st.booleans(), st.integers(0, 10**6))
@torch.no_grad()
def test_a_later_token_never_changes_an_earlier_output(build, family, at, padded, seed):
    torch.manual_seed(seed)
    model, source = build(family), some(SOURCES)
    before_BL = torch.randint(VOCAB, (4, LONGEST))
    after_BL = torch.cat(
        (before_BL[:, :at], (before_BL[:, at:] + torch.randint(1, VOCAB, (4, LONGEST - at))) % VOCAB), 1
    )

    def logits(ids_BL: Tensor) -> Tensor:
        if padded:
            return model(*source, ids_BL, Padded(torch.ones_like(ids_BL, dtype=torch.bool)))
        return model(*source, ids_BL.flatten(), Packed.of_lengths([LONGEST] * 4)).unflatten(0, (4, LONGEST))

    assert torch.equal(logits(before_BL)[:, :at], logits(after_BL)[:, :at])
    assert not torch.equal(logits(before_BL)[:, at], logits(after_BL)[:, at]), "its own output it does change"


@families
@torch.no_grad()
def test_logits_are_the_same_alone_packed_and_padded(build, family):
    model, (source, source_layout), (target, target_layout) = build(family), some(SOURCES), some(TARGETS)
    packed = model(source, source_layout, target, target_layout)
    alone = [
        model(one, Packed.of_lengths([len(one)]), other, Packed.of_lengths([len(other)]))
        for one, other in zip(source.split(SOURCES), target.split(TARGETS), strict=True)
    ]
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-5, rtol=1e-5)
    grids = []
    for ids, layout, extra in ((source, source_layout, 3), (target, target_layout, 2)):
        keep_BL = F.pad(layout.keep_BL, (0, extra))
        ids_BL = torch.randint(VOCAB, keep_BL.shape)
        ids_BL[keep_BL] = ids
        grids += [ids_BL, Padded(keep_BL)]
    padded = model(*grids)[grids[3].keep_BL]
    torch.testing.assert_close(padded, packed, atol=1e-5, rtol=1e-5)
    state, other = model.start(source, source_layout), model.start(*grids[:2])
    ids_B = torch.arange(4)
    torch.testing.assert_close(model.step(ids_B, state)[0], model.step(ids_B, other)[0], atol=1e-5, rtol=1e-5)


@a_third_of_them
def test_gradients_reach_every_parameter(small, family):
    torch.manual_seed(0)
    model = assemble_seq2seq(small(**family), vocab_size=VOCAB, max_length=LONGEST)
    source, target = torch.arange(12) % VOCAB, torch.arange(16) % VOCAB
    logits = model(source, Packed.of_lengths([4, 0, 8]), target, Packed.of_lengths([7, 1, 8]))
    assert logits.shape == (16, VOCAB)
    F.cross_entropy(logits, target.roll(-1)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-9, name


@pytest.mark.parametrize("family", [{}, {"encoder": "gru"}, {"encoder": "lstm"}, {"score": "additive"}], ids=str)
def test_a_batch_without_documents_gives_every_parameter_a_gradient_of_zero(small, family):
    model = assemble_seq2seq(small(**family), vocab_size=VOCAB, max_length=LONGEST)
    nothing = torch.zeros(0, dtype=torch.int64), Packed.of_lengths([])
    model(*nothing, *nothing).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad == 0).all(), name


@a_third_of_them
def test_bf16_autocast_stays_near_single_precision(build, family):
    model, source, targets_BL = build(family), some(SOURCES), torch.randint(VOCAB, (4, 3))
    whole = targets_BL.flatten(), Packed.of_lengths([3] * 4)
    exact = model(*source, *whole)
    with torch.autocast("cpu", torch.bfloat16):
        near, state = model(*source, *whole), model.start(*source)
        for at in range(3):
            last, state = model.step(targets_BL[:, at], state)
    torch.testing.assert_close(near.float(), exact, atol=0.15, rtol=0.05)
    torch.testing.assert_close(last.float(), exact.unflatten(0, (4, 3))[:, 2], atol=0.15, rtol=0.05)
    for gradient in torch.autograd.grad(near.float().square().sum(), list(model.parameters())):
        assert gradient.isfinite().all()


def greedy_without_a_cache(model: Seq2Seq, source: Tensor, *, start: int, end: int, max_length: int) -> list[int]:
    said = [start]
    for _ in range(max_length):
        layout = Packed.of_lengths([len(said)])
        logits_LV = model(source, Packed.of_lengths([len(source)]), torch.tensor(said), layout)
        if (token := int(logits_LV[-1].argmax())) == end:
            break
        said.append(token)
    return said[1:]


@pytest.mark.parametrize(
    "family",
    [family if at % 4 == 0 else pytest.param(family, marks=pytest.mark.slow) for at, family in enumerate(FAMILIES)],
    ids=str,
)
@torch.no_grad()
def test_answers_are_those_of_a_model_without_a_cache(build, family):
    model, (ids, layout) = build(family), some([4, 0, 7, 2, 5])
    wanted = {"start": 2, "end": 3, "max_length": LONGEST}
    found = greedy(model, ids, layout, **wanted)
    assert found == [greedy_without_a_cache(model, source, **wanted) for source in ids.split([4, 0, 7, 2, 5])]


def test_the_source_is_read_once(build):
    model, (ids, layout) = build({}), some([4, 6])
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append("encoder"))
    state = model.start(ids, layout)
    _, later = model.step(torch.tensor([2, 2]), state)
    assert calls == ["encoder"]
    assert later.memory is state.memory


@pytest.mark.parametrize(("family", "kind"), [({}, Encoder), ({"encoder": "gru"}, None)], ids=str)
def test_both_sides_have_as_many_layers(small, family, kind):
    model = assemble_seq2seq(small(**family, n_layers=3, bidirectional=True), vocab_size=VOCAB, max_length=LONGEST)
    if kind is None:
        assert model.encoder.n_layers == model.decoder.recurrent.n_layers == 3
    else:
        assert isinstance(model.encoder, kind)
        assert len(model.encoder.layers) == len(model.decoder.layers) == 3


def test_each_dropout_arrives(small):
    model = assemble_seq2seq(
        small(dropout=0.1, dropout_embedding=0.2, dropout_residual=0.3, dropout_attention=0.4, dropout_tokens=0.5),
        vocab_size=VOCAB,
        max_length=LONGEST,
    )
    layer = model.decoder.layers[1]
    assert [model.dropout.p, model.target.dropout.p, model.target.dropout_tokens.p] == [0.1, 0.2, 0.5]
    assert [layer.attention.dropout.p, layer.cross_attention.dropout.p, layer.feed_forward.dropout.p] == [0.3] * 3
    assert [layer.attention.block.dropout, layer.cross_attention.block.dropout] == [0.4] * 2


def test_positions_enter_self_attention_and_not_the_attention_to_another_text(small):
    for positions in ("rotary", "alibi"):
        model = assemble_seq2seq(small(positions=positions, window=3), vocab_size=VOCAB, max_length=LONGEST)
        for layer in model.decoder.layers:
            own, across = layer.attention.block, layer.cross_attention.block
            assert (getattr(own, positions) is not None, own.window, own.causal) == (True, 3, True)
            assert (getattr(across, positions), across.window, across.causal) == (None, 0, False)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param({"positions": "learned"}, marks=pytest.mark.slow),  # a run does: test_seq2seq_runs.py
        {"encoder": "gru", "score": "additive"},
    ],
    ids=str,
)
def test_it_learns_to_turn_a_sequence_round(small, family):
    sizes = {"n_layers": 1, "n_heads": 4, "d_model": 32, "d_k": 8, "d_v": 8, "d_ff": 64}
    model = assemble_seq2seq(small(**sizes, **family), vocab_size=VOCAB, max_length=LONGEST)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    layout, longer = Packed.of_lengths([3] * 64), Packed.of_lengths([4] * 64)
    for _ in range(80):
        source_BL = torch.randint(4, VOCAB, (64, 3))
        target_BL = F.pad(F.pad(source_BL.flip(1), (1, 0), value=2), (0, 1), value=3)
        logits = model(source_BL.flatten(), layout, target_BL[:, :-1].flatten(), longer)
        optimizer.zero_grad()
        F.cross_entropy(logits, target_BL[:, 1:].flatten()).backward()
        optimizer.step()
    source_BL = torch.randint(4, VOCAB, (64, 3))
    found = greedy(model.eval(), source_BL.flatten(), layout, start=2, end=3, max_length=LONGEST)
    assert sum(one == wanted for one, wanted in zip(found, source_BL.flip(1).tolist(), strict=True)) >= 60
