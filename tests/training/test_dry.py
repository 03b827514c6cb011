"""The figures of a dry run against what torch itself counts."""

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from manyheads.config import BatchConfig, EncoderKind, ModelConfig, Pooling, Positions, RunConfig
from manyheads.data.batches import Batch, Batches, plan_epoch
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.assemble import flops_per_answer
from manyheads.training import sizing as dry
from manyheads.training.sizing import activation_bytes, of_task

LENGTHS = [3, 9, 4, 7, 1, 5, 6, 9]


def make_tokens():
    return Tokens(
        ids_N=torch.ones(sum(LENGTHS), dtype=torch.int32),
        offsets=torch.tensor([0, *LENGTHS]).cumsum(0),
        segments_N=None,
        labels=torch.zeros(len(LENGTHS), dtype=torch.int64),
    )


def make_classifier(**model):
    return assemble(ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, **model), vocab_size=9, n_classes=2, max_length=16)


def test_the_largest_batch_has_the_most_tokens_and_cells():
    tokens = make_tokens()
    plan = plan_epoch(tokens.lengths, tokens=64, rows=3, seed=0, epoch=0)

    def size(batch):
        return batch.ids_N.numel() + batch.layout.n_documents * batch.layout.longest

    largest = TextData({"train": tokens}, BatchConfig(tokens=64, rows=3), 0).largest_batch()
    assert size(largest) == max(map(size, Batches(tokens, plan)))


def test_activations_grow_with_layers_by_the_same_amount_each():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    one, two, three = (activation_bytes(make_classifier(n_layers=n), batch, precision="32-true") for n in (1, 2, 3))
    assert two - one == three - two > 0


def test_one_layer_keeps_at_least_its_inputs_and_hidden_units():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    n_tokens = batch.ids_N.numel()
    one, two = (activation_bytes(make_classifier(n_layers=n), batch, precision="32-true") for n in (1, 2))
    least = 4 * n_tokens * (2 * 16 + 3 * 16 + 2 * 32)  # two block inputs, q k v, hidden units before and after gelu
    assert least <= two - one <= 6 * least


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize(
    "model", [{}, {"n_kv_heads": 1}, {"pooling": Pooling.attention}, {"positions": Positions.rotary}]
)
def test_shapes_alone_come_to_what_is_kept_when_it_is_computed(model, precision, monkeypatch):
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    by_shapes = activation_bytes(make_classifier(**model), batch, precision=precision)
    monkeypatch.setattr(dry.fake_tensor, "FakeTensorMode", unable)
    assert by_shapes == activation_bytes(make_classifier(**model), batch, precision=precision)


def unable(**_):
    raise DynamicOutputShapeException(None)


def test_a_recurrent_network_is_weighed_too():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    assert activation_bytes(make_classifier(encoder=EncoderKind.lstm), batch, precision="32-true") > 0


def test_thousands_of_heads_take_no_memory():
    """20 texts of 500 tokens: 512 heads would keep 10 GB."""
    n, length = 20, 500
    layout = Packed.of_lengths([length] * n)
    batch = Batch(torch.ones(n * length, dtype=torch.int64), None, layout, torch.zeros(n), torch.arange(n), 1.0)
    network = assemble(
        ModelConfig(d_model=16, d_k=1, d_v=1, d_ff=32, n_heads=512), vocab_size=9, n_classes=2, max_length=500
    )
    assert activation_bytes(network, batch, precision="32-true") > 10 * 4 * 512 * n * length


def test_half_precision_keeps_less():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    full, half = (activation_bytes(make_classifier(), batch, precision=p) for p in ("32-true", "bf16-mixed"))
    assert half < full


def test_a_text_is_told_with_its_target():
    tokens = make_tokens()
    assert "FLOPs a token" in of_task(RunConfig(), ["a", "b"], tokens, 9)
    tokens.targets = make_tokens()
    length = sum(LENGTHS) / len(LENGTHS)
    flops = flops_per_answer(ModelConfig(), length, length, 9)
    told = of_task(RunConfig(), [], tokens, 9)["FLOPs a text"]
    assert told == f"{flops:,.0f} forward with its target, {3 * flops:,.0f} with backward"
