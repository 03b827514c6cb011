"""The solver hits its target whatever the model, and says so when it cannot."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manyheads import plugin
from manyheads.config import ModelConfig, Placement
from manyheads.nn import assemble
from manyheads.plugins.sweep.budget import Sizes, match_width, n_parameters

SIZES = Sizes(vocab_size=300, n_classes=4, max_length=16, n_segments=0, texts=[(11, 0, 0, 1)])
BOTH = ["model.d_ff", "model.d_model"]
MODELS = st.builds(
    ModelConfig,
    n_layers=st.integers(1, 3),
    n_heads=st.sampled_from([1, 2, 4, 8]),
    d_model=st.integers(24, 96),
    d_k=st.sampled_from([4, 8, 16, 32]),
    d_v=st.sampled_from([4, 8, 16]),
    d_ff=st.integers(64, 400),
    score=st.sampled_from(plugin.names("score")),
    positions=st.sampled_from(plugin.names("positions")),
    placement=st.sampled_from(Placement),
    bias=st.booleans(),
)


def allocated(model):
    """Parameters of the model as it is really built."""
    built = assemble(model, vocab_size=300, n_classes=4, max_length=16)
    return sum(parameter.numel() for parameter in built.parameters())


def counted(model):
    return n_parameters(model, SIZES)


@given(MODELS)
@settings(max_examples=4, deadline=None)
def test_parameters_without_memory_are_those_of_the_built_model(model):
    assert n_parameters(model, SIZES) == allocated(model)


@given(MODELS, MODELS)
@settings(max_examples=4, deadline=None)
def test_any_model_reaches_the_size_of_any_other(first, other):
    other = replace(other, n_layers=first.n_layers)
    target = allocated(first)
    assume(allocated(replace(other, d_ff=1)) < 0.9 * target)
    found = match_width(other, target, counted, levers=BOTH, tolerance=0.01)
    assert abs(allocated(found.model) / target - 1) == pytest.approx(abs(found.difference), abs=1e-12)
    assert abs(found.difference) <= 0.01
    assert replace(found.model, d_ff=other.d_ff, d_model=other.d_model) == other, "nothing but widths has moved"


@given(MODELS, st.sampled_from([0.5, 0.9, 1.3, 2.0]))
@settings(max_examples=4, deadline=None)
def test_d_ff_is_the_nearest_of_all(model, share):
    target = share * allocated(model)
    try:
        found = match_width(model, target, counted, levers=BOTH[:1], tolerance=0.1)
    except ValueError:
        return
    off = abs(allocated(found.model) - target)
    for step in (-1, 1):
        if found.model.d_ff + step > 0:
            assert abs(allocated(replace(found.model, d_ff=found.model.d_ff + step)) - target) >= off


def test_a_model_at_the_target_stays_as_it_is():
    model = ModelConfig()
    found = match_width(model, allocated(model), counted, levers=BOTH, tolerance=0.01)
    assert (found.model, found.difference) == (model, 0.0)


def test_where_d_ff_costs_nothing_d_model_moves():
    found = match_width(ModelConfig(), 50, lambda model: model.d_model, levers=BOTH, tolerance=0.01)
    assert (found.model.d_model, found.difference) == (50, 0.0)


RECURRENT = [name for name, part in plugin.parts("encoder").items() if "decoder" in part.facts]


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_layers_have_no_d_ff_so_d_model_moves(kind, bidirectional):
    pooling = "attention"
    model = ModelConfig(encoder=kind, n_layers=1, d_ff=77, d_model=10, bidirectional=bidirectional, pooling=pooling)
    found = match_width(model, allocated(ModelConfig()), counted, levers=BOTH, tolerance=0.02)
    assert found.model == replace(model, d_model=found.model.d_model)
    assert allocated(found.model) == pytest.approx(allocated(ModelConfig()), rel=0.02)


def test_a_budget_out_of_reach_names_the_nearest():
    wide = ModelConfig(n_heads=64, d_k=64, d_v=64)
    with pytest.raises(
        ValueError, match=r"^no width brings this row to the first row's 90,000: the nearest, model\.d_"
    ) as said:
        match_width(wide, 90_000, counted, levers=BOTH[:1], tolerance=0.01)
    assert "model.d_model=128 model.d_ff=1, costs" in str(said.value)
