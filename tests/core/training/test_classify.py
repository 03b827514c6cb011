"""Training steps of a classifier against plain torch and scikit-learn, its figures against torchmetrics' own."""

import math

import pytest
import torch
from sklearn.metrics import f1_score, precision_score, recall_score
from torch.nn import functional as F
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassPrecision, MulticlassRecall

import manyheads.plugin as plugin
from manyheads import TextData, compose
from manyheads.config import BatchConfig, ModelConfig, OptimConfig
from manyheads.data.batches import Batch, Batches, plan_epoch
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.plugin import Part, Plugin
from manyheads.training.module import LitModule
from manyheads.training.objectives import (
    ClassFigures,
    Classify,
    Mean,
    RegisteredFigure,
    class_logits,
    class_weights,
    log_missed,
)

LENGTHS = [3, 9, 4, 7, 1, 5, 6]
N_CLASSES = 3


@pytest.fixture
def tokens():
    torch.manual_seed(0)
    return Tokens(
        ids_N=torch.randint(0, 20, (sum(LENGTHS),), dtype=torch.int32),
        offsets=torch.tensor([0, *LENGTHS]).cumsum(0),
        segments_N=None,
        labels=torch.tensor([0, 1, 2, 0, 1, 2, 0]),
    )


def make_module(weights_C=None, label_smoothing=0.0, focal_gamma=0.0, **model):
    torch.manual_seed(1)
    classifier = assemble(
        ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, dropout=0.0, dropout_tokens=0.0, **model),
        vocab_size=20,
        n_classes=N_CLASSES,
        max_length=16,
    )
    weights_C = torch.ones(N_CLASSES) if weights_C is None else weights_C
    task = Classify(weights_C, label_smoothing=label_smoothing, focal_gamma=focal_gamma)
    module = LitModule(classifier, task, optim=OptimConfig(), n_steps=10)
    module.log = lambda *args, **kwargs: None
    return module


def batches(tokens, **how):
    config = BatchConfig(**how)
    plan = plan_epoch(
        tokens.lengths, tokens=config.tokens, rows=config.rows, seed=0, epoch=0, accumulate=config.accumulate
    )
    return list(Batches(tokens, plan))


def test_an_objective_of_ones_own_is_learnt_from_and_plain_loss_is_validated():
    """With a loss of zeros nothing is learnt; validation is by cross-entropy all the same."""
    asked = []

    def nothing(logits_BC, labels_B):
        asked.append((logits_BC.shape, labels_B.shape))
        return (logits_BC * 0).sum(1)

    plugin.register(Plugin("mine", parts=[Part("objective", "nothing", nothing)]))
    try:
        run = compose("train", ["optim.objective=nothing"])
        tokens = TextData.from_rows([(f"a {at}", "xy"[at % 2]) for at in range(40)], run=run)
        module = LitModule.from_run(run, tokens)
        module.eval()
        batch = next(iter(tokens.val_dataloader()))
        assert module.objective.training_loss(module.network, batch).tolist() == [0.0] * len(batch.rows_B)
        assert asked[0][0] == (len(batch.rows_B), 2)
        logits_BC = module.network(batch.ids_N, batch.layout, batch.segments_N)
        found = module.objective.validation_loss(module.network, batch)
        assert torch.allclose(found, F.cross_entropy(logits_BC, batch.labels_B, reduction="none"))
        with pytest.raises(ValueError, match=r"optim.label_smoothing=0.2 does nothing with optim.objective=nothing"):
            compose("train", ["optim.objective=nothing", "optim.label_smoothing=0.2"])
    finally:
        plugin.unregister("mine")


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_mean_cross_entropy(tokens, label_smoothing):
    module = make_module(label_smoothing=label_smoothing)
    (batch,) = batches(tokens)
    expected = F.cross_entropy(class_logits(module.network, batch), batch.labels_B, label_smoothing=label_smoothing)
    torch.testing.assert_close(module.training_step(batch, 0), expected)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_focal_loss_is_its_formula(tokens, gamma, label_smoothing):
    module = make_module(label_smoothing=label_smoothing, focal_gamma=gamma)
    (batch,) = batches(tokens)
    logits_BC = class_logits(module.network, batch)
    missed_B = 1 - logits_BC.softmax(-1)[torch.arange(len(LENGTHS)), batch.labels_B]
    plain_B = F.cross_entropy(logits_BC, batch.labels_B, label_smoothing=label_smoothing, reduction="none")
    torch.testing.assert_close(module.training_step(batch, 0), (missed_B**gamma * plain_B).mean())


def test_log_missed_and_its_gradient_stay_finite_where_a_class_is_certain():
    logits_BC = torch.tensor([[200.0, -200.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    found_B = log_missed(logits_BC, torch.tensor([0, 2]))
    torch.testing.assert_close(found_B, torch.tensor([-200.0, math.log(2 / 3)]))
    (0.5 * found_B).exp().sum().backward()
    assert logits_BC.grad.isfinite().all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_micro_batches_of_all_ranks_have_the_gradient_of_the_whole_batch(n_ranks, weighted, tokens):
    """Each counts by its rows: with weights, smoothing and the focal factor as well."""
    how = {"weights_C": torch.tensor([0.4, 3.0, 1.0]), "label_smoothing": 0.1, "focal_gamma": 2.0} if weighted else {}
    whole, parts = make_module(**how), make_module(**how)
    (batch,) = batches(tokens)
    whole.training_step(batch, 0).backward()
    sizes = {"tokens": 1000, "rows": 2, "seed": 0, "epoch": 0, "accumulate": 4}
    for rank in range(n_ranks):
        micro = list(Batches(tokens, plan_epoch(tokens.lengths, **sizes, n_ranks=n_ranks, rank=rank)))
        assert len(micro) == -(-4 // n_ranks)
        for index, one in enumerate(micro):
            (parts.training_step(one, index) / len(micro) / n_ranks).backward()  # as Lightning and DDP do
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-4)


def test_class_weights_scale_each_rows_loss(tokens):
    weights_C = torch.tensor([1.0, 2.0, 0.5])
    module = make_module(weights_C)
    (batch,) = batches(tokens)
    losses_B = F.cross_entropy(class_logits(module.network, batch), batch.labels_B, reduction="none")
    torch.testing.assert_close(module.training_step(batch, 0), (losses_B * weights_C[batch.labels_B]).mean())


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_free_logits_of_weighted_and_smoothed_rows_answer_as_they_are_labelled(label_smoothing):
    labels = torch.tensor([0] * 3960 + [1] * 40)
    weights_C = class_weights("balanced", labels, ["frequent", "rare"])
    task = Classify(weights_C, label_smoothing=label_smoothing)
    logits_BC = torch.zeros(2, 2, requires_grad=True)  # of any row of either class
    layout = Packed(torch.tensor([0, 1, 2]), 1)
    batch = Batch(torch.tensor([0, 1]), None, layout, torch.tensor([0, 1]), torch.tensor([0, 1]), 1.0)
    optimizer = torch.optim.Adam([logits_BC], lr=0.05)
    for _ in range(500):
        optimizer.zero_grad()
        task.training_loss(lambda *_: logits_BC, batch).sum().backward()
        optimizer.step()
    assert logits_BC.argmax(1).tolist() == [0, 1]
    if label_smoothing:
        expected_BC = torch.tensor([[0.95, 0.05], [0.05, 0.95]])  # the smoothed targets, whatever the weights
        torch.testing.assert_close(logits_BC.softmax(1), expected_BC, atol=1e-3, rtol=0)


def test_a_class_without_a_training_row_weighs_as_a_row_of_the_mean():
    labels = torch.tensor([0] * 6 + [1] * 2)
    assert class_weights("balanced", labels, ["a", "b", "none"]).tolist() == pytest.approx([2 / 3, 2.0, 1.0])
    assert class_weights({"none": 9.0}, labels, ["a", "b", "none"]).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_balanced_weights_give_each_class_the_same_total():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    weights_C = class_weights("balanced", labels, ["a", "b", "c"])
    totals_C = weights_C * torch.bincount(labels)
    torch.testing.assert_close(totals_C, totals_C.mean().expand(3))
    torch.testing.assert_close(weights_C[labels].mean(), torch.tensor(1.0))


def test_weights_by_name_keep_their_ratio():
    weights_C = class_weights({"b": 3.0}, torch.tensor([0, 1, 1]), ["a", "b"])
    torch.testing.assert_close(weights_C[1] / weights_C[0], torch.tensor(3.0))


def empty_batch(tokens):
    """What a rank gets where a step has fewer rows than there are ranks."""
    return next(one for one in batches(tokens, rows=1, accumulate=8) if not one.labels_B.numel())


@pytest.mark.parametrize("settings", [{}, {"pooling": "max"}, {"pooling": "attention", "positions": "rotary"}])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_batch_without_rows_adds_zeros_to_every_gradient_and_nothing_to_the_figures(tokens, settings, precision):
    module = make_module(**settings)
    (whole,) = batches(tokens)
    module.training_step(whole, 0).backward()
    module.validation_step(whole, 0)
    before = [p.grad.clone() for p in module.network.parameters()]
    loss, accuracy = module.train_loss.compute(), module.objective.train_metrics.compute()
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        added = module.training_step(empty_batch(tokens), 1)
        module.validation_step(empty_batch(tokens), 1)
    assert float(added.detach()) == 0
    reached = torch.autograd.grad(added, list(module.network.parameters()))  # raises where one has no part in it
    assert all(not gradient.any() for gradient in reached)
    module.training_step(empty_batch(tokens), 1).backward()
    for parameter, old in zip(module.network.parameters(), before, strict=True):
        assert torch.equal(parameter.grad, old)
    assert module.train_loss.compute() == loss
    assert module.validation_loss.compute().isfinite()
    assert module.objective.train_metrics.compute() == accuracy


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_whose_loss_is_no_number_are_left_out_of_the_mean_of_an_epoch(tokens, value, monkeypatch):
    module = make_module()
    (batch,) = batches(tokens)
    learn = Classify.training_loss

    def spoilt(self, classifier, batch):
        losses_B = learn(self, classifier, batch)
        return losses_B.where(batch.rows_B != 2, value)

    losses_B = learn(module.objective, module.network, batch).detach()
    monkeypatch.setattr(Classify, "training_loss", spoilt)
    module.training_step(batch, 0)
    torch.testing.assert_close(module.train_loss.compute(), losses_B[batch.rows_B != 2].mean())


def test_epoch_figures_are_scikit_learns():
    torch.manual_seed(0)
    logits_nC, labels = torch.randn(200, 4), torch.randint(0, 4, (200,))
    metrics = ClassFigures(4)
    for part in range(0, 200, 30):
        metrics.update(logits_nC[part : part + 30], labels[part : part + 30])
    answers, found = logits_nC.argmax(1), metrics.compute()
    assert float(found["accuracy"]) == pytest.approx(float((answers == labels).double().mean()))
    for name, judge in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert float(found[f"macro_{name}"]) == pytest.approx(judge(labels, answers, average="macro"))


def test_gradients_are_clipped_by_norm_or_value(tokens):
    module = make_module()
    (batch,) = batches(tokens)
    (100 * module.training_step(batch, 0)).backward()
    grads = [p.grad for p in module.network.parameters()]
    optimizer = torch.optim.AdamW(module.network.parameters(), fused=True)
    module.configure_gradient_clipping(optimizer, 0.5)
    assert float(torch.stack([g.norm() for g in grads]).norm()) == pytest.approx(0.5, rel=1e-3)
    module.configure_gradient_clipping(optimizer, 0.01, "value")
    assert max(float(g.abs().max()) for g in grads) <= 0.01


@pytest.mark.parametrize("seen", [[0, 1, 2, 3, 4], [0, 2], [3]], ids=["all classes", "two", "one"])
def test_class_figures_are_those_of_torchmetrics_also_of_classes_that_never_occur(seen):
    torch.manual_seed(0)
    ours = ClassFigures(5)
    theirs = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(5, average="micro"),
            "macro_f1": MulticlassF1Score(5, average="macro"),
            "macro_precision": MulticlassPrecision(5, average="macro"),
            "macro_recall": MulticlassRecall(5, average="macro"),
        },
    )
    for n_rows in (7, 1, 30):
        labels_B = torch.tensor(seen)[torch.randint(len(seen), (n_rows,))]
        logits_BC = torch.randn(n_rows, 5).index_fill(1, torch.tensor([1]), -9.0)  # class 1 is never answered
        ours.update(logits_BC, labels_B)
        theirs.update(logits_BC, labels_B)
    expected = theirs.compute()
    torch.testing.assert_close(ours.compute(), expected, check_dtype=False)
    ours.reset()
    assert int(ours.rows_C.sum()) == 0


def test_a_mean_of_many_values_counts_each():
    """From 2^24 on single precision passes over a value alone."""
    mean = Mean()
    mean.total += 2.0**24
    mean.weight += 2.0**24
    for _ in range(1000):
        mean.update(torch.tensor([1001.0]))
    n = 2**24 + 1000
    assert float(mean.compute()) == pytest.approx((2**24 + 1_001_000) / n, rel=1e-7)
    assert float(mean.weight) == n


def test_a_mean_is_that_of_torchmetrics():
    torch.manual_seed(0)
    for weighted in (False, True):
        ours, theirs = Mean(), MeanMetric()
        for n_rows in (7, 1, 30):
            values, weights = torch.randn(n_rows), torch.rand(n_rows)
            ours.update(values, weights if weighted else None)
            theirs.update(values, weights if weighted else 1.0)
        torch.testing.assert_close(ours.compute(), theirs.compute())
    ours.update(torch.tensor([float("nan")]))
    assert ours.compute().isnan()


@pytest.mark.parametrize(("multi", "labels"), [(False, torch.tensor([0, 2])), (True, torch.ones(2, 3).byte())])
def test_a_rank_without_rows_gathers_as_many_axes_of_a_plugins_figure_as_the_others(multi, labels):
    """gloo ends the process where they differ."""
    seen = []
    for rows in (labels, labels[:0]):
        metric, sent = RegisteredFigure("accuracy", 3, multi=multi), []
        if len(rows):
            metric.update(torch.randn(len(rows), 3), rows)
        metric.sync(lambda one, group, sent=sent: sent.append(one) or [one], distributed_available=lambda: True)
        seen.append([(one.dtype, *one.shape[1:]) for one in sent])
    assert seen[0] == seen[1]
