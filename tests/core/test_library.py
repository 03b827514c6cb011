"""`import manyheads` as a library: data and module under a Trainer of one's own, callbacks of one's own in a run."""

import csv
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import load_file
from torch import nn

import manyheads
from manyheads import LitModule, TextData, compose, load, train
from manyheads.config import OptimConfig, RunConfig
from manyheads.distributed.signals import Stop, Stopped
from manyheads.inference.predictor import Predictor
from manyheads.training import pipeline
from manyheads.training.trainer import run_trainer

SMALL = [
    "model.n_layers=1", "model.d_model=16", "model.d_k=4", "model.d_v=4", "model.d_ff=16", "tokenizer.vocab_size=60",
    "hardware=cpu", "hardware.precision=fp32", "batch.rows=8", "optim.average=0", "test=false",
]  # fmt: skip
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


@pytest.fixture
def settings(tmp_path, monkeypatch) -> list[str]:
    """Sixty rows, and a model that learns them in a second."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(60)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return ["data.path=rows.csv", *SMALL]


def run_of(settings: list[str], *more: str) -> RunConfig:
    return compose("train", [*settings, *more])


class Seen(Callback):
    """The rows of each batch, and how many batches there were, also in runs that this one continues."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self.epochs: list[int] = []
        self.count, self.stop_at = 0, stop_at

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.trainer = trainer
        self.count += 1
        self.batches.append(batch.rows_B.tolist())
        self.epochs.append(trainer.current_epoch)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == self.stop_at:
            signal.raise_signal(signal.SIGTERM)

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


@pytest.mark.parametrize(
    "more",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in ([], ["trainer.max_steps=10"])),
        ["batch.accumulate=2", "batch.rows=5"],
    ],
)
def test_an_own_trainer_makes_the_weights_of_a_run(settings, more):
    run = run_of(settings, "trainer.max_epochs=3", *more)
    data = TextData.from_run(run)
    own = LitModule.from_run(run, data)
    seen = Seen()
    limits = {name: run.trainer[name] for name in ("max_epochs", "max_steps")}
    torch.manual_seed(run.seed)
    Trainer(**limits, gradient_clip_val=1.0, num_sanity_val_steps=0, callbacks=[seen], **QUIET).fit(own, data)
    again = LitModule.from_run(run, data).network
    torch.manual_seed(run.seed)
    ours = run_trainer(run, again, data.tokens, data.splits.labels, []).network
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, own.network.state_dict()[name]), name
    rows = [row for batch, epoch in zip(seen.batches, seen.epochs, strict=True) if epoch == 0 for row in batch]
    assert sorted(rows) == list(range(len(data.splits.train)))
    assert seen.batches[: len(seen.batches) // 2] != seen.batches[len(seen.batches) // 2 :], "each epoch its own order"


def test_a_trainer_with_all_its_defaults_works(settings):
    """A progress bar, a sanity check of validation, a checkpoint of the best figure."""
    run = run_of(settings)
    data = TextData.from_run(run)
    module = LitModule.from_run(run, data)
    best = ModelCheckpoint(monitor="validation_accuracy", mode="max")
    trainer = Trainer(max_epochs=2, callbacks=[best])
    trainer.fit(module, data)
    assert {"loss", "train_loss", "validation_loss", "validation_accuracy"} <= set(trainer.callback_metrics)
    saved = torch.load(best.best_model_path, weights_only=True)["state_dict"]
    assert {name.removeprefix("network.") for name in saved if name.startswith("network.")} == {
        *module.network.state_dict()
    }
    assert type(trainer.optimizers[0]) is torch.optim.AdamW


def test_what_cannot_be_under_an_own_trainer_is_said(settings, tmp_path):
    run = run_of(settings)
    data = TextData.from_run(run)
    with pytest.raises(ValueError, match=r"accumulate_grad_batches=3 of the Trainer is not batch\.accumulate=1"):
        Trainer(max_epochs=1, accumulate_grad_batches=3, **QUIET).fit(LitModule.from_run(run, data), data)
    with pytest.raises(ValueError, match="max_epochs=-1 leaves training without an end"):
        Trainer(max_epochs=-1, **QUIET).fit(LitModule.from_run(run, data), data)
    with pytest.raises(ValueError, match=r"batch\.tokens=auto is found by manyheads\.train alone"):
        TextData.from_run(run_of(settings, "batch.tokens=auto"))
    with pytest.raises(ValueError, match=r"make it by TextData\.from_run"):
        LitModule.from_run(run, TextData(data.tokens, run.batch, 0))
    for setting in ("budget=20ktok", "resume=auto"):
        with pytest.raises(ValueError, match=f"{setting} needs manyheads.train"):
            LitModule.from_run(run_of(settings, "output=x", setting), data)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"limit_val_batches": 2}, "limit_val_batches=2 of the Trainer would judge by the longest texts alone"),
        ({"limit_val_batches": 0.5}, r"limit_val_batches=0\.5 of the Trainer would judge by the longest"),
        ({"limit_test_batches": 0.5}, r"limit_test_batches=0\.5 of the Trainer would judge by the longest"),
        ({"overfit_batches": 2}, "overfit_batches=2 of the Trainer would train on other rows in each epoch"),
    ],
)
def test_a_part_of_a_split_that_is_not_drawn_is_refused_under_an_own_trainer(settings, limit, why):
    run = run_of(settings, "batch.rows=2")
    data = TextData.from_run(run)
    with pytest.raises(ValueError, match=f"^{why}"):
        Trainer(max_epochs=1, **limit, **QUIET).fit(LitModule.from_run(run, data), data)


def test_a_trainer_may_try_the_code_and_leave_validation_out(settings):
    run = run_of(settings)
    data = TextData.from_run(run)
    for limit in ({"fast_dev_run": True}, {"limit_val_batches": 0}):
        trainer = Trainer(max_epochs=1, **limit, **QUIET)
        trainer.fit(LitModule.from_run(run, data), data)
        assert trainer.global_step


def test_steps_without_a_finite_gradient_are_said_where_no_guard_answers_them(settings, warned, monkeypatch):
    run = run_of(settings)
    data = TextData.from_run(run)
    module = LitModule.from_run(run, data)
    really = module.objective.training_loss

    def training_loss(network, batch):
        return really(network, batch) / (batch.rows_B != 3)

    monkeypatch.setattr(module.objective, "training_loss", training_loss)
    Trainer(max_epochs=2, **QUIET).fit(module, data)
    said = [f"epoch {epoch}: 1 steps changed nothing, as a loss or gradient in them was not finite" for epoch in (1, 2)]
    assert warned == said
    assert all(one.isfinite().all() for one in module.network.parameters())


def test_a_network_of_ones_own_learns_from_batches_of_ones_own(settings):
    """Without a TextData the end of training is the Trainer's estimate."""
    run = run_of(settings)
    data = TextData.from_run(run)
    whole = LitModule.from_run(run, data)
    module = LitModule(whole.network, whole.objective, optim=OptimConfig(lr=1e-2))
    trainer = Trainer(max_epochs=2, **QUIET)
    trainer.fit(module, data.train_dataloader(), data.val_dataloader())
    schedule = trainer.lr_scheduler_configs[0].scheduler
    assert schedule.get_last_lr()[0] == 0.0


def test_a_callback_of_ones_own_is_called_and_goes_on_with_its_run(settings):
    run = run_of(settings, "trainer.max_epochs=4", "output=whole")
    whole = Seen()
    train(run, callbacks=[whole])
    first, then = Seen(stop_at=9), Seen()
    with pytest.raises(Stopped) as stopped:
        train(run_of(settings, "trainer.max_epochs=4", "output=parts"), callbacks=[first])
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    train(run_of(settings, "trainer.max_epochs=4", "output=parts", "resume=auto"), callbacks=[then])
    assert first.batches[:9] + then.batches == whole.batches
    assert then.count == whole.count == len(whole.batches)
    assert load("parts").predict(["number 4 purrs"]) == load("whole").predict(["number 4 purrs"])


def test_callbacks_do_not_reach_processes_that_a_run_starts(settings):
    with pytest.raises(ValueError, match=r"hardware\.devices=2 starts: start the script itself by torchrun"):
        train(run_of(settings, "hardware.devices=2", "hardware.accelerator=cpu"), callbacks=[Seen()])


def test_callbacks_are_checked_before_anything_is_written(settings, tmp_path):
    saving = ModelCheckpoint(dirpath=tmp_path / "mine", monitor="validation_loss")
    with pytest.raises(ValueError, match=r"^ModelCheckpoint among the callbacks saves checkpoints, which train does"):
        train(run_of(settings, "output=refused"), callbacks=[saving])
    two = ["hardware.devices=2", "hardware.accelerator=cpu", "output=refused"]
    with pytest.raises(ValueError, match="callbacks cannot be handed to the 2 processes"):
        train(run_of(settings, *two), callbacks=[Seen()])
    assert not Path("refused").exists()


@pytest.mark.parametrize("limit", [1, 2])
def test_the_rate_ends_with_the_steps_that_a_trainer_is_limited_to(settings, limit):
    run = run_of(settings)
    data = TextData.from_run(run)
    module = LitModule.from_run(run, data)
    trainer = Trainer(max_epochs=2, limit_train_batches=limit, num_sanity_val_steps=0, **QUIET)
    trainer.fit(module, data)
    assert module.n_steps == trainer.global_step == 2 * limit
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.0


def test_a_state_that_cannot_be_saved_is_said_before_the_first_step(settings):
    callback = Seen()
    callback.state_dict = lambda: {"count": object()}
    with pytest.raises(ValueError, match="a checkpoint cannot hold the object in the state of a callback"):
        train(run_of(settings, "output=odd"), callbacks=[callback])
    assert callback.trainer.global_step == 0


class Surgeon(Callback):
    """Changes the network in one of its hooks."""

    def __init__(self, hook: str, change) -> None:
        setattr(self, hook, self.operate)
        self.change = change

    def operate(self, trainer, pl_module, *_, **__):
        self.trainer = trainer
        self.change(pl_module.network)


def block_of(network):
    return network.encoder.layers[0].feed_forward


def give_forward(network):
    network.head.forward = lambda x: torch.zeros(len(x), 2, requires_grad=True)


CHANGES = {
    "another block": lambda network: setattr(block_of(network), "block", nn.Sequential(nn.Linear(16, 16))),
    "another kind": lambda network: setattr(network.head, "__class__", type("Mine", (nn.Linear,), {})),
    "another shape": lambda network: setattr(network, "head", nn.Linear(16, 5)),
    "another type": lambda network: network.bfloat16(),
    "a parameter": lambda network: setattr(network, "more", nn.Parameter(torch.zeros(2))),
    "a buffer": lambda network: network.register_buffer("more", torch.zeros(2)),
    "a parametrization": lambda network: nn.utils.parametrizations.weight_norm(network.head),
    "a forward": give_forward,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_network_that_could_not_be_saved_is_refused_before_the_first_step(settings, change):
    for hook in {"another block": ["setup", "on_train_start", "on_train_batch_start"]}.get(change, ["on_fit_start"]):
        surgeon = Surgeon(hook, CHANGES[change])
        with pytest.raises(ValueError, match=r"^a callback \(Surgeon\) has changed the network, .* where the settings"):
            train(run_of(settings, f"output={hook}"), callbacks=[surgeon])
        assert surgeon.trainer.global_step == 0


def test_a_change_in_mid_training_is_said_as_well(settings):
    surgeon = Surgeon("on_train_epoch_end", CHANGES["another block"])
    with pytest.raises(ValueError, match=r"feed_forward\.block is Sequential of .* make FeedForward of"):
        train(run_of(settings, "output=late", "trainer.max_epochs=2"), callbacks=[surgeon])


def test_what_a_callback_freezes_and_watches_is_saved_and_resumed(settings):
    def freeze(network):
        network.embeddings.requires_grad_(False)
        network.head.register_forward_hook(lambda *_: None)

    run = ["trainer.max_epochs=3", "optim.average=20"]
    train(run_of(settings, "output=whole", *run), callbacks=[Surgeon("on_fit_start", freeze)])
    with pytest.raises(Stopped):
        train(run_of(settings, "output=parts", *run), callbacks=[Surgeon("on_fit_start", freeze), Seen(stop_at=9)])
    train(run_of(settings, "output=parts", *run, "resume=auto"), callbacks=[Surgeon("on_fit_start", freeze)])
    whole, parts = (load_file(Path(name, "model", "model.safetensors")) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    begun = LitModule.from_run(run_of(settings), TextData.from_run(run_of(settings))).network.state_dict()
    kept = {name for name in begun if torch.equal(begun[name], whole[name])}
    assert {name for name in begun if name.startswith("embeddings.")} <= kept
    assert "head.weight" not in kept


def test_names_are_imported_when_they_are_used():
    said = "import sys, manyheads; print([name for name in ('torch', 'hydra', 'lightning') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert {"LitModule", "TextData", "compose", "load", "train"} <= set(dir(manyheads))
    first = (
        "from manyheads.training_run import train as of_module; from manyheads import train; print(train is of_module)"
    )
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    with pytest.raises(AttributeError, match="module 'manyheads' has no attribute 'fit'"):
        manyheads.fit  # noqa: B018


def test_what_was_trained_is_tuned_and_judged_in_fp32_on_the_device_of_the_run(settings, monkeypatch):
    """The CPU takes hours for the rows of a large test split, where a GPU takes minutes."""
    device, asked = torch.device("cpu"), []
    logits, on = pipeline.network_logits, Predictor.on

    def logits_on(network, tokens, device):
        asked.append(device)
        return logits(network, tokens, device)

    def placed(self, device, autocast=None):
        asked.append((device, autocast))
        return on(self, device, autocast)

    monkeypatch.setattr(pipeline, "choose_device", lambda hardware: device)
    monkeypatch.setattr(pipeline, "network_logits", logits_on)
    monkeypatch.setattr(Predictor, "on", placed)
    train(run_of(settings, "trainer.max_epochs=1"))
    assert asked == [device, (device, None)]


def test_signals_are_never_lightnings_not_even_while_rows_are_loaded(settings, monkeypatch):
    """Of several processes one that got SIGTERM there waited for the others in its handler, and ended with code 0."""
    seen, load_rows = [], TextData.train_dataloader

    def noted(self):
        seen.append(signal.getsignal(signal.SIGTERM))
        return load_rows(self)

    monkeypatch.setattr(TextData, "train_dataloader", noted)
    train(run_of(settings, "trainer.max_epochs=2"))
    assert [type(getattr(handler, "__self__", handler)) for handler in seen] == [Stop, Stop]
