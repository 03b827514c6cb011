"""Training on rows with any number of labels, against scikit-learn and a plain formula."""

import math

import pytest
import torch
from sklearn.metrics import f1_score, log_loss

from manyheads.config import BatchConfig, CheckpointConfig, ModelConfig, RunConfig
from manyheads.data.batches import Batch, Batches, plan_epoch
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens, multi_hot
from manyheads.inference.batching import network_logits
from manyheads.layout import Packed
from manyheads.linear.blend import tune
from manyheads.nn import assemble
from manyheads.training.build import make_objective
from manyheads.training.objectives import Classify, LabelFigures, class_logits, class_weights, label_losses

LENGTHS = [3, 9, 4, 7, 1, 5, 6]
SETS = [(0,), (0, 2), (), (1,), (0, 1, 2), (2,), ()]


@pytest.fixture
def tokens() -> Tokens:
    torch.manual_seed(0)
    return Tokens(
        ids_N=torch.randint(0, 20, (sum(LENGTHS),), dtype=torch.int32),
        offsets=torch.tensor([0, *LENGTHS]).cumsum(0),
        segments_N=None,
        labels=multi_hot(SETS, 3),
    )


@pytest.fixture
def classifier():
    torch.manual_seed(1)
    shape = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, dropout=0.0, dropout_tokens=0.0)
    made = assemble(shape, vocab_size=20, n_classes=3, max_length=16)
    torch.nn.init.normal_(made.head.weight)
    return made


def whole(tokens: Tokens):
    (batch,) = Batches(tokens, plan_epoch(tokens.lengths, tokens=100, rows=100, seed=0, epoch=0))
    return batch


def test_marks_have_a_one_for_each_label_of_a_row():
    assert multi_hot(SETS, 3).tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert multi_hot([(), ()], 2).tolist() == [[0, 0], [0, 0]]


def test_the_focal_loss_weighs_each_label_by_what_it_lacks(tokens, classifier):
    batch, task = whole(tokens), Classify(torch.ones(3), label_smoothing=0.0, focal_gamma=2.0, multi=True)
    given_BC = class_logits(classifier, batch).sigmoid().detach().double()
    true_BC = torch.where(batch.labels_B > 0, given_BC, 1 - given_BC)
    expected_B = (-((1 - true_BC) ** 2) * true_BC.log()).sum(1)
    torch.testing.assert_close(task.training_loss(classifier, batch).double(), expected_B, atol=1e-6, rtol=1e-5)


def test_the_loss_of_a_row_is_the_log_likelihood_of_its_labels(tokens, classifier):
    batch, task = whole(tokens), Classify(torch.ones(3), label_smoothing=0.0, multi=True)
    losses_B = task.training_loss(classifier, batch)
    torch.testing.assert_close(task.validation_loss(classifier, batch), losses_B)
    probabilities_BC = class_logits(classifier, batch).sigmoid().detach().double()
    for row, loss in enumerate(losses_B.tolist()):
        per_label = [
            log_loss([int(mark)], [float(p)], labels=[0, 1])
            for mark, p in zip(batch.labels_B[row], probabilities_BC[row], strict=True)
        ]
        assert loss == pytest.approx(sum(per_label), rel=1e-5)


def test_smoothing_and_weights_as_they_are_written_out(tokens, classifier):
    batch, weights_C = whole(tokens), torch.tensor([1.0, 3.0, 0.5])
    losses_B = Classify(weights_C, label_smoothing=0.3, multi=True).training_loss(classifier, batch)
    p_BC = class_logits(classifier, batch).sigmoid()
    wanted_BC = 0.7 * batch.labels_B + 0.1
    losses_BC = -(wanted_BC * p_BC.log() + (1 - wanted_BC) * (1 - p_BC).log())
    expected_BC = torch.where(batch.labels_B > 0, weights_C, 1.0) * losses_BC
    torch.testing.assert_close(losses_B, expected_BC.sum(1))


def test_free_logits_of_weighted_and_smoothed_rows_answer_as_they_are_labelled():
    marks_nC = torch.zeros(4000, 2, dtype=torch.uint8)
    marks_nC[:, 0], marks_nC[:40, 1] = 1, 1
    weights_C = class_weights({"rare": 100.0}, marks_nC, ["every", "rare"])
    kinds = torch.tensor([0, 3999])  # one row with both labels, one with the first alone
    logits_BC = free_optimum(Classify(weights_C, label_smoothing=0.1, multi=True), marks_nC[kinds])
    expected_BC = torch.tensor([[0.95, 0.95], [0.95, 0.05]])  # the smoothed targets, whatever the weights
    torch.testing.assert_close(logits_BC.sigmoid(), expected_BC, atol=1e-3, rtol=0)


def free_optimum(task, labels_B):
    """The logits `(B, C)` at which the loss of each row is least, had each its own."""
    logits_BC = torch.zeros(len(labels_B), len(task.class_weights_C), requires_grad=True)
    layout = Packed(torch.arange(len(labels_B) + 1), 1)
    batch = Batch(layout.offsets[:-1], None, layout, labels_B, layout.offsets[:-1], 1.0)
    solver = torch.optim.LBFGS([logits_BC], max_iter=200, line_search_fn="strong_wolfe", tolerance_change=0.0)

    def loss():
        solver.zero_grad()
        total = task.training_loss(lambda *_: logits_BC, batch).sum()
        total.backward()
        return total

    solver.step(loss)
    return logits_BC.detach()


def test_weights_are_one_on_average_over_the_labels_that_rows_have():
    marks_nC = multi_hot(SETS, 3)
    assert class_weights("none", marks_nC, ["a", "b", "c"]).tolist() == [1, 1, 1]
    balanced_C = class_weights("balanced", marks_nC, ["a", "b", "c"])
    assert (balanced_C * marks_nC.sum(0)).tolist() == pytest.approx([8 / 3] * 3)  # eight labels, three names
    assert class_weights({"b": 4.0}, marks_nC, ["a", "b", "c"]).tolist() == pytest.approx([8 / 14, 32 / 14, 8 / 14])


def test_a_label_that_no_training_row_has_weighs_as_one_of_the_mean():
    marks_nC = multi_hot([(0,), (0, 1)], 3)
    assert class_weights("balanced", marks_nC, ["a", "b", "c"]).tolist() == pytest.approx([0.75, 1.5, 1.0])


def test_an_empty_batch_has_no_loss_and_no_figures(tokens, classifier):
    (batch,) = Batches(tokens, [plan_epoch(tokens.lengths, tokens=1, rows=1, seed=0, epoch=0)[0]._replace(
        rows=torch.empty(0, dtype=torch.int64))])  # fmt: skip
    task = Classify(torch.ones(3), label_smoothing=0.1, multi=True)
    assert task.training_loss(classifier, batch).shape == (0,)
    assert isinstance(task.train_metrics, LabelFigures)
    assert int(task.train_metrics.all_CT.sum()) == 0


def test_epoch_figures_are_scikit_learns_at_the_best_thresholds():
    torch.manual_seed(0)
    marks_nC = (torch.rand(300, 4) < torch.tensor([0.5, 0.3, 0.2, 0.1])).long()
    logits_nC = torch.randn(300, 4) + 2 * marks_nC - 1
    figures = LabelFigures(4)
    for part in range(0, 300, 90):
        figures.update(logits_nC[part : part + 90], marks_nC[part : part + 90])
    found = figures.compute()
    best_alone = [
        max(f1_score(marks_nC[:, label], logits_nC[:, label] >= one) for one in logits_nC[::10, label])
        for label in range(4)
    ]
    assert float(found["macro_f1"]) == pytest.approx(sum(best_alone) / 4, abs=0.05)
    at_zero = f1_score(marks_nC, logits_nC >= 0, average="micro")
    assert at_zero - 0.01 <= float(found["micro_f1"]) < 1
    figures.reset()
    assert int(figures.own_CT.sum()) == 0


def test_thresholds_are_tuned_on_the_models_own_logits(tokens, classifier):
    classifier.eval()
    rows = Rows([""] * 7, None, [0] * 7, "x.csv", range(7), sets=SETS)
    tuned = tune(network_logits(classifier, tokens), None, rows, 3)
    assert (tuned.blend, tuned.baseline) == (None, None)
    thresholds = tuned.thresholds
    assert thresholds is not None
    batch = whole(tokens)
    logits_BC = class_logits(classifier, batch).detach()
    given_BC = logits_BC.double().sigmoid() >= torch.tensor(thresholds, dtype=torch.float64)
    alone = LabelFigures(3)
    alone.update(logits_BC, batch.labels_B)
    assert len(thresholds) == 3
    assert f1_score(batch.labels_B, given_BC, average="micro") == pytest.approx(float(alone.compute()["micro_f1"]))


def test_the_data_says_which_loss_it_is(tokens):
    run = RunConfig(batch=BatchConfig(tokens=64))
    assert make_objective(run, tokens, ["a", "b", "c"]).multi
    tokens.labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    assert not make_objective(run, tokens, ["a", "b", "c"]).multi


@pytest.mark.parametrize(
    ("typed", "multi", "metric"),
    [("auto", True, "micro_f1"), ("auto", False, "accuracy"), ("macro_f1", True, "macro_f1"), ("loss", True, "loss")],
)
def test_the_figure_that_chooses_is_one_of_the_data(typed, multi, metric):
    assert CheckpointConfig(metric=typed).settled("classify", multi=multi).metric == metric


@pytest.mark.parametrize(("typed", "multi"), [("accuracy", True), ("micro_f1", False)])
def test_a_figure_that_such_rows_do_not_have_is_refused(typed, multi):
    with pytest.raises(ValueError, match=rf"checkpoint.metric={typed} .*: use checkpoint.metric="):
        CheckpointConfig(metric=typed).settled("classify", multi=multi)


def test_the_loss_of_one_label_is_the_plain_one():
    one = torch.tensor([[math.log(3.0)]])
    assert float(label_losses(one, torch.ones(1, 1))) == pytest.approx(-math.log(0.75))
