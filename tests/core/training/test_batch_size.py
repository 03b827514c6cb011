"""batch.tokens=auto, and the largest batch tried before the first step, where a stub says when memory is out."""

import copy

import pytest
import torch

from manyheads.config import BatchConfig, ModelConfig, OptimConfig, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.training import batch_size
from manyheads.training.objectives import Classify

SHAPE = ModelConfig(n_layers=1, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=8)
CPU = torch.device("cpu")


def run_of(tokens: object) -> RunConfig:
    return RunConfig(batch=BatchConfig(tokens=tokens, rows=10**6), model=SHAPE, optim=OptimConfig(average=0))


def rows(n_rows: int = 4000, length: int = 40) -> Tokens:
    offsets = torch.arange(n_rows + 1) * length
    return Tokens(torch.randint(5, 30, (n_rows * length,)).int(), offsets, None, torch.randint(3, (n_rows,)))


def parts():
    torch.manual_seed(0)
    network = assemble(SHAPE, vocab_size=30, n_classes=3, max_length=64)
    return network, Classify(torch.ones(3), label_smoothing=0.0)


@pytest.fixture
def small_memory(monkeypatch):
    """A device on which a batch of more tokens than `n` runs out of memory."""

    def limit(n: int) -> None:
        learn = Classify.training_loss

        def limited(self, classifier, batch):
            if batch.ids_N.numel() > n:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return learn(self, classifier, batch)

        monkeypatch.setattr(Classify, "training_loss", limited)

    return limit


@pytest.mark.parametrize("limit", [1100, 5000, 20_480, 33_000, 10**6])
def test_the_largest_number_that_fits_is_found(small_memory, limit):
    small_memory(limit)
    (network, task), tokens = parts(), rows()

    def fits(n_tokens: int) -> bool:
        run = batch_size._with_tokens(run_of("auto"), n_tokens)
        batch = TextData({"train": tokens}, run.batch, 0).largest_batch()
        return batch_size.fits_in_memory(network, task, batch, CPU, None, copies=2)

    found = batch_size.choose_tokens(run_of("auto"), fits, longest=40).batch.tokens
    assert found % batch_size.GRANULARITY == 0
    assert found <= batch_size.MOST_TOKENS
    assert fits(found)
    assert found == batch_size.MOST_TOKENS or not fits(found + batch_size.GRANULARITY)


def test_a_search_tries_few_batches():
    tried = []
    assert batch_size.largest_fitting(lambda n: tried.append(n) or n <= 37_000, least=1, most=64) == 36 * 1024
    assert len(tried) <= 8
    assert batch_size.largest_fitting(lambda n: False, least=1, most=64) == 0
    assert batch_size.largest_fitting(lambda n: n <= 5 * 1024, least=6, most=64) == 0


def test_what_does_not_fit_is_one_sentence():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        batch_size.choose_tokens(run_of(50_000), lambda n: False, longest=40)
    assert str(caught.value) == (
        "batch.tokens=50000 needs more memory than the GPU has for its largest batch: use a smaller number, "
        "batch.tokens=auto to have it found, or hardware.recompute=true"
    )
    with pytest.raises(ValueError, match=r"^batch\.tokens=auto finds no batch .* not even one text of 9999 tokens"):
        batch_size.choose_tokens(run_of("auto"), lambda n: False, longest=9999)
    assert batch_size.choose_tokens(run_of(500), lambda n: True, longest=40) == run_of(500)


@pytest.mark.parametrize("fails", [False, True])
def test_a_try_leaves_weights_gradients_generators_and_figures_as_they_are(small_memory, fails):
    if fails:
        small_memory(10)
    (network, task), tokens = parts(), rows(20)
    before, state = copy.deepcopy(network.state_dict()), torch.random.get_rng_state()
    batch = TextData({"train": tokens}, run_of(10**4).batch, 0).largest_batch()
    assert batch_size.fits_in_memory(network, task, batch, CPU, torch.bfloat16, copies=3) is not fails
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert all(p.grad is None for p in network.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert int(task.train_metrics.rows_C.sum()) == 0


@pytest.mark.parametrize("error", [ZeroDivisionError(), RuntimeError("CUDA error: device-side assert triggered")])
def test_other_mistakes_are_not_taken_for_memory(error, monkeypatch):
    def fail(*_):
        raise error

    (network, task), tokens = parts(), rows(4)
    monkeypatch.setattr(Classify, "training_loss", fail)
    batch = TextData({"train": tokens}, run_of(10**4).batch, 0).largest_batch()
    with pytest.raises(type(error)):
        batch_size.fits_in_memory(network, task, batch, CPU, None, copies=0)


def test_on_a_cpu_auto_is_the_default_and_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(batch_size, "fits_in_memory", None)  # would fail
    monkeypatch.setattr(batch_size, "choose_device", lambda _: CPU)
    network, _ = parts()
    assert batch_size.settle_batch(run_of("auto"), network, {"train": rows(4)}, ["a", "b", "c"]).batch.tokens == 8192
    assert batch_size.settle_batch(run_of(99), network, {"train": rows(4)}, ["a", "b", "c"]) == run_of(99)
    assert BatchConfig().tokens == batch_size.CPU_TOKENS


def test_several_devices_must_be_told(monkeypatch):
    monkeypatch.setattr(batch_size, "choose_device", lambda _: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    network, _ = parts()
    run = run_of("auto")
    run = replace_settings(run, {"hardware.devices": 2})
    with pytest.raises(ValueError, match=r"^batch\.tokens=auto tries batches on one device, .*: give a number$"):
        batch_size.settle_batch(run, network, {"train": rows(4)}, ["a", "b", "c"])
    run = replace_settings(run, {"batch.tokens": 99})
    assert batch_size.settle_batch(run, network, {"train": rows(4)}, ["a", "b", "c"]) is run


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_runs_out_of_memory_before_the_first_step():
    network, _ = parts()
    run = run_of("auto")
    torch.cuda.set_per_process_memory_fraction(0.002)
    try:
        settled = batch_size.settle_batch(run, network, {"train": rows()}, ["a", "b", "c"])
        assert settled.batch.tokens % batch_size.GRANULARITY == 0
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
