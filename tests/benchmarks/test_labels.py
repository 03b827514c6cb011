"""What benchmarks/labels.py and hierarchy.py prepare and learn by."""

import pytest
import torch
from ways.rows import read, write

LabelColumn = pytest.importorskip("manyheads.plugins.multitask.columns").LabelColumn
for plugin in ("columns", "hierarchy"):
    pytest.importorskip(f"manyheads.plugins.{plugin}")
hierarchy, labels = pytest.importorskip("hierarchy"), pytest.importorskip("labels")


def test_losses_are_weighted_by_uncertainty_as_published(monkeypatch):
    columns = [LabelColumn("a", ["x", "y"], slice(0, 2), False), LabelColumn("b", ["x", "y", "z"], slice(2, 5), False)]
    learn = labels.LearnByUncertainty(columns, smoothing=0.0)
    logits_BC = torch.tensor([[1.0, -1.0, 0.5, 0.0, 2.0], [0.0, 3.0, 1.0, 1.0, 1.0]])
    marks_BC = torch.tensor([[1, 0, 0, 0, 1], [0, 1, 0, 0, 0]])  # the second row lacks b
    monkeypatch.setattr(labels, "class_logits", lambda classifier, batch: logits_BC)
    batch = type("Batch", (), {"labels_B": marks_BC, "rows_B": [0, 1]})
    s, t = 0.7, -0.4
    learn.log_variance_H.data = torch.tensor([s, t])
    losses_B = learn.training_loss(None, batch)
    a_B = -logits_BC[:, :2].log_softmax(1)[[0, 1], [0, 1]]
    b = -logits_BC[0, 2:].log_softmax(0)[2]
    scale = torch.tensor([s, t]).neg().exp()
    wanted = [scale[0] * a_B[0] + s / 2 + scale[1] * b + t / 2, scale[0] * a_B[1] + s / 2]
    torch.testing.assert_close(losses_B, torch.stack(wanted))
    losses_B.sum().backward()
    gradient = torch.stack([1 - scale[0] * a_B.sum(), 0.5 - scale[1] * b])
    torch.testing.assert_close(learn.log_variance_H.grad, gradient)


@pytest.mark.parametrize("n_held", [0, 2])
def test_held_rows_are_not_learnt_from(n_held, tmp_path, monkeypatch):
    intents = ("card_arrival", "lost_card", "top_up_failed")
    (tmp_path / "banking77").mkdir()
    for split, n in (("train", 9), ("test", 1)):
        rows = [{"text": f"{split} {at} of {intent}", "label": intent} for intent in intents for at in range(n)]
        write(tmp_path / "banking77" / f"{split}.csv", rows)
    monkeypatch.setenv("MANYHEADS_DATA", str(tmp_path))
    hierarchy.prepare(3, 0, tmp_path / "data", with_nodes=True, n_held=n_held)
    train, validation, test = (read(tmp_path / "data" / f"{name}.csv") for name in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (24 - 3 * n_held, 3, 3 * max(1, n_held))
    assert all(row["text"].startswith("train" if n_held else "test") for row in test)
    texts = [row["text"] for row in [*train, *validation, *test]]
    assert len(texts) == len({*texts})
    assert sum("/" in row["label"] for row in train) == 6
