"""The figures of a dry run against what torch itself counts."""

import gc
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from manyheads.config import (
    Accelerator,
    BatchConfig,
    DataConfig,
    HardwareConfig,
    ModelConfig,
    OptimConfig,
    Precision,
    RunConfig,
    Strategy,
)
from manyheads.config.facts import replace_settings
from manyheads.data.batches import Batch, Batches, padding_share, plan_epoch
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens, Windows
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.layer_calls import set_layer_calls
from manyheads.training import dry_run, weights
from manyheads.training.dry_run import activation_bytes, state_bytes
from manyheads.training.logs import Meter
from manyheads.training.objectives import Classify
from manyheads.training.optim import EMACallback
from manyheads.training.optim import freeze as freeze_layers
from manyheads.training.trainer import run_trainer
from manyheads.training.weights import only_seen_words

CLASSIFY = Classify(torch.ones(2), label_smoothing=0.0)
LENGTHS = [3, 9, 4, 7, 1, 5, 6, 9]


def make_tokens():
    return Tokens(
        ids_N=torch.ones(sum(LENGTHS), dtype=torch.int32),
        offsets=torch.tensor([0, *LENGTHS]).cumsum(0),
        segments_N=None,
        labels=torch.zeros(len(LENGTHS), dtype=torch.int64),
    )


def given(batch):
    """What a classifier is called with."""
    return batch.ids_N, batch.layout, batch.segments_N


def make_classifier(**model):
    return assemble(ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, **model), vocab_size=9, n_classes=2, max_length=16)


class Storages(TorchDispatchMode):
    """Every storage that an operation makes, with its bytes."""

    def __init__(self):
        super().__init__()
        self.made = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        there = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        for one in tree_leaves(returned):
            if isinstance(one, torch.Tensor) and one.untyped_storage()._cdata not in there:
                storage = one.untyped_storage()
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return returned


def test_the_largest_batch_has_the_most_tokens_and_cells():
    tokens = make_tokens()
    plan = plan_epoch(tokens.lengths, tokens=64, rows=3, seed=0, epoch=0)

    def size(batch):
        return batch.ids_N.numel() + batch.layout.n_documents * batch.layout.longest

    largest = TextData({"train": tokens}, BatchConfig(tokens=64, rows=3), 0).largest_batch()
    assert size(largest) == max(map(size, Batches(tokens, plan)))


def test_activations_grow_with_layers_by_the_same_amount_each():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    one, two, three = (
        activation_bytes(make_classifier(n_layers=n), given(batch), precision="32-true") for n in (1, 2, 3)
    )
    assert two - one == three - two > 0


def test_one_layer_keeps_at_least_its_inputs_and_hidden_units():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    n_tokens = batch.ids_N.numel()
    one, two = (activation_bytes(make_classifier(n_layers=n), given(batch), precision="32-true") for n in (1, 2))
    least = 4 * n_tokens * (2 * 16 + 3 * 16 + 2 * 32)  # two block inputs, q k v, hidden units before and after gelu
    assert least <= two - one <= 6 * least


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("model", [{}, {"n_kv_heads": 1}, {"pooling": "attention"}, {"positions": "rotary"}])
def test_shapes_alone_come_to_what_is_kept_when_it_is_computed(model, precision, monkeypatch):
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    by_shapes = activation_bytes(make_classifier(**model), given(batch), precision=precision)
    monkeypatch.setattr(dry_run.fake_tensor, "FakeTensorMode", unable)
    assert by_shapes == activation_bytes(make_classifier(**model), given(batch), precision=precision)


def unable(**_):
    raise DynamicOutputShapeException(None)


WINDOWS = Windows(
    torch.tensor([0, 3, 7, 12, 13, 16, 20, 23, 24, 29, 35, 44]), torch.tensor([0, 1, 3, 4, 6, 7, 8, 9, 11])
)


@pytest.mark.parametrize("kind", ["texts", "windows"])
def test_padding_is_that_of_the_run(kind):
    tokens = make_tokens()
    if kind == "windows":
        tokens.windows = WINDOWS
    assert_same_padding("classify", make_classifier(), tokens)


def assert_same_padding(task, network, tokens):
    """The share of padding that a dry run says is the one that a run of an epoch measures."""
    run = RunConfig(
        task=task,
        data=DataConfig(path="rows.csv"),
        model=ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32),
        batch=BatchConfig(rows=3),
        hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32),
        trainer={"max_epochs": 1, "limit_val_batches": 0},
    )
    meter = Meter()
    run_trainer(run, network, {"train": tokens, "validation": tokens}, ["a", "b"], [meter])
    plan = TextData({"train": tokens}, run.batch, run.seed).plan(0)
    assert padding_share(plan, tokens) == pytest.approx(meter.padding_share)
    assert meter.padding_share > 0.02


def test_thousands_of_heads_take_no_memory():
    """20 texts of 500 tokens: 512 heads would keep 10 GB."""
    n, length = 20, 500
    layout = Packed.of_lengths([length] * n)
    batch = Batch(torch.ones(n * length, dtype=torch.int64), None, layout, torch.zeros(n), torch.arange(n), 1.0)
    network = assemble(
        ModelConfig(d_model=16, d_k=1, d_v=1, d_ff=32, n_heads=512), vocab_size=9, n_classes=2, max_length=500
    )
    assert activation_bytes(network, given(batch), precision="32-true") > 10 * 4 * 512 * n * length


@pytest.mark.parametrize("layers", [pytest.param({"n_layers": 1}, marks=pytest.mark.slow), {"n_layers": 4}])
def test_what_is_computed_again_is_kept_of_one_layer_alone(layers):
    """Against the storages that are alive when a real forward pass has ended."""
    network, batch = make_classifier(**layers), TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    told = {
        again: activation_bytes(network, given(batch), precision="32-true", recompute=again) for again in (False, True)
    }
    alive = {}
    for again in told:
        set_layer_calls(network, HardwareConfig(recompute=again))
        with Storages() as seen:
            logits = network(batch.ids_N, batch.layout, batch.segments_N)
            gc.collect()
            alive[again] = sum(size for held, size in seen.made.values() if not held.expired()) - logits.nbytes
    assert told[False] == pytest.approx(alive[False], rel=0.01), "the layout holds a few bytes, too"
    assert told[True] - alive[True] == pytest.approx((alive[False] - alive[True]) / layers["n_layers"], rel=0.02)


@pytest.mark.parametrize(("average", "freeze"), [(300, 0), (300, 2), (0, 1)])
def test_the_memory_of_a_weight_is_what_a_run_holds(average, freeze):
    model = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32)
    network, tokens = make_classifier(), make_tokens()
    run = RunConfig(
        model=model,
        batch=BatchConfig(rows=2),
        optim=OptimConfig(average=average, freeze=freeze),
        hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32),
        trainer={"max_epochs": 4},
    )
    held = Held()
    run_trainer(run, network, {"train": tokens, "validation": tokens}, ["a", "b"], [held])
    assert held.steps > 10
    with only_seen_words(network, tokens):
        freeze_layers(network, run.optim)
        buffers = sum(one.nbytes for one in network.buffers())
        assert state_bytes(run, network, 1) == held.most + buffers
        assert state_bytes(run, network, 2) == held.most + held.gradients + buffers, "in buckets that are sent"
        run = replace_settings(run, {"hardware.strategy": Strategy.fsdp})
        assert state_bytes(run, network, 2) == held.most // 2 + buffers


class Held(Callback):
    """The most bytes of weights, gradients, optimiser and running mean in any step and validation."""

    most = gradients = steps = 0

    def on_train_batch_end(self, trainer, pl_module, *_):
        weights = [*pl_module.network.parameters()]
        gradients = [one.grad for one in weights if one.grad is not None]
        moments = [one for its in trainer.optimizers[0].state.values() for one in its.values() if one.numel() > 1]
        means = [one for each in trainer.callbacks if isinstance(each, EMACallback) for one in each.__dict__["_mean"]]
        self.most = max(self.most, sum(one.nbytes for one in [*weights, *gradients, *moments, *means]))
        self.gradients, self.steps = sum(one.nbytes for one in gradients), trainer.global_step


def test_half_precision_keeps_less():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    full, half = (activation_bytes(make_classifier(), given(batch), precision=p) for p in ("32-true", "bf16-mixed"))
    assert half < full


def counted(network, *given):
    """Operations of products, as torch counts them, of a forward pass."""
    with FlopCounterMode(display=False) as counter:
        network(*given)
    return counter.get_total_flops()


def test_a_token_costs_what_texts_of_all_lengths_cost_and_not_one_of_mean_length():
    model = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, pooling="attention")
    network, tokens = assemble(model, vocab_size=9, n_classes=2, max_length=16), make_tokens()
    each = [counted(network, torch.ones(n, dtype=torch.int64), Packed.of_lengths([n])) - 2 * 16 * 2 for n in LENGTHS]
    told = CLASSIFY.plan(RunConfig(model=model), tokens, ["a", "b"], 9)["FLOPs a token"]
    assert told.startswith(f"{sum(each) / sum(LENGTHS):,.0f} forward")


@pytest.mark.parametrize("segments", [None, [0, 0, 0, 1, 1, 0, 3, 3], [0, 0, 4, 3, 3, 2, 2, 1]])
def test_sizes_of_documents_are_counted(segments):
    N = None if segments is None else torch.tensor(segments, dtype=torch.uint8)
    tokens = Tokens(torch.zeros(8).int(), torch.tensor([0, 5, 8]), N, torch.zeros(2))
    parts = [segments[:5], segments[5:]] if segments else [[], []]
    expected = [(n, sum(one % 2 for one in part), part.count(4), 1) for n, part in zip((5, 3), parts, strict=True)]
    assert sorted(tokens.sizes()) == sorted(expected)


def test_frozen_layers_keep_nothing_where_few_words_are_read(monkeypatch):
    """As where the whole table is trained."""
    tokens, kept = make_tokens(), []
    run = RunConfig(
        data=DataConfig(path="rows.csv"),
        model=ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32),
        optim=OptimConfig(freeze=1),
        hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32),
    )
    monkeypatch.setattr(
        dry_run, "activation_bytes", lambda *asked, **how: kept.append(activation_bytes(*asked, **how)) or 0
    )
    for most_seen in (0.0, 0.75):
        monkeypatch.setattr(weights, "MOST_SEEN", most_seen)
        dry_run.plan_figures(run, SimpleNamespace(labels=["a", "b"]), {"train": tokens}, make_classifier())
    assert kept[0] == kept[1]
