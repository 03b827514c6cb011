"""Which epoch's weights are kept."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from manyheads.config import Metric, ModelConfig, OptimConfig
from manyheads.nn import assemble
from manyheads.training.checkpoint import Best, KeepBest
from manyheads.training.module import LitModule
from manyheads.training.objectives import Classify

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def module():
    classifier = assemble(
        ModelConfig(n_layers=1, d_model=8, d_k=4, d_v=4, d_ff=8), vocab_size=9, n_classes=2, max_length=4
    )
    return LitModule(classifier, Classify(torch.ones(2), label_smoothing=0.0), optim=OptimConfig(), n_steps=1)


@pytest.mark.parametrize(
    ("metric", "epochs", "kept"),
    [
        (Metric.accuracy, [(0.5, 0.9), (0.7, 0.8), (0.6, 0.1)], 2),
        (Metric.accuracy, [(0.5, 0.9), (0.5, 0.8), (0.5, 0.85)], 2),
        (Metric.loss, [(0.5, 0.9), (0.7, 0.8), (0.6, 0.1)], 3),
        (Metric.accuracy, [(0.5, 0.9), (0.9, NAN), (0.9, INF), (0.4, 0.1)], 1),
        (Metric.accuracy, [(0.9, NAN), (0.5, 0.9)], 2),
        (Metric.loss, [(0.9, NAN), (0.9, -INF), (0.5, 0.9)], 3),
        (Metric.accuracy, [(0.9, NAN)], None),
    ],
)
def test_the_best_finite_epoch_is_kept(metric, epochs, kept, module, tmp_path):
    keep = KeepBest(metric, module.network, tmp_path)
    for epoch, (accuracy, loss) in enumerate(epochs):
        figures = {"validation_accuracy": torch.tensor(accuracy), "validation_loss": torch.tensor(loss)}
        trainer = SimpleNamespace(callback_metrics=figures, current_epoch=epoch, global_step=epoch, is_global_zero=True)
        keep.on_validation_end(trainer, module)
    assert (keep.best and keep.best.epoch) == kept
    assert (tmp_path / "best.safetensors").exists() is (kept is not None)


TAMPERED = {
    "no file": lambda path, weights: path.unlink(),
    "no safetensors": lambda path, weights: path.write_bytes(b"none at all"),
    "a shape of its own": lambda path, weights: save_file(weights | {"head.bias": torch.zeros(7)}, path),
    "a name of its own": lambda path, weights: save_file(weights | {"more": torch.zeros(2)}, path),
    "NaN": lambda path, weights: save_file(weights | {"head.bias": torch.full((2,), NAN)}, path),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_weights_of_a_stranger_that_do_not_fit_are_refused_in_a_sentence(how, module, tmp_path):
    keep = KeepBest(Metric.accuracy, module.network, tmp_path / "checkpoints")
    keep.best = Best("accuracy", 0.5, 1, 1)
    keep.path.parent.mkdir()
    save_file(module.network.state_dict(), keep.path)
    assert keep.restore()["epoch"] == 1
    TAMPERED[how](keep.path, module.network.state_dict())
    with pytest.raises(
        ValueError, match="not finite numbers, so that no model" if how == "NaN" else "does not fit this"
    ):
        keep.restore()


def test_weights_that_nothing_has_judged_are_finite_too(module, tmp_path):
    keep = KeepBest(Metric.accuracy, module.network, tmp_path / "checkpoints")
    assert keep.restore() == {}
    torch.nn.init.constant_(module.network.head.weight, INF)
    with pytest.raises(ValueError, match="ends with weights that are not finite numbers"):
        keep.restore()
