"""Training steps of texts answered by texts against plain torch and brute force."""

import pytest
import torch
from torch.nn import functional as F

from manyheads.config import ModelConfig, OptimConfig
from manyheads.data.batches import Batches, plan_epoch
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.plugins.language.networks import assemble_seq2seq
from manyheads.plugins.language.objectives import Translate, exact_matches, following, target_logits
from manyheads.training.module import LitModule

START, END = 2, 3


def texts(lengths):
    """Rows of random letters between the marks."""
    rows = [torch.tensor([START, *torch.randint(5, 20, (n,)).tolist(), END], dtype=torch.int32) for n in lengths]
    offsets = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return Tokens(torch.cat(rows), offsets, None, torch.zeros(len(rows), dtype=torch.int64))


@pytest.fixture
def tokens():
    torch.manual_seed(0)
    found = texts([3, 9, 4, 7, 1, 5, 6])
    found.targets = texts([2, 4, 0, 5, 3, 1, 4])
    return found


def make_module(label_smoothing=0.0, encoder="transformer"):
    torch.manual_seed(1)
    model = ModelConfig(
        encoder=encoder, n_layers=1, d_model=16, d_k=4, d_v=4, d_ff=32, n_heads=2, dropout=0.0, dropout_tokens=0.0,
    )  # fmt: skip
    seq2seq = assemble_seq2seq(model, vocab_size=20, max_length=16)
    module = LitModule(seq2seq, Translate(label_smoothing=label_smoothing), optim=OptimConfig(), n_steps=10)
    module.log = lambda *args, **kwargs: None
    return module


def batches(tokens, rows=64, accumulate=1):
    plan = plan_epoch(tokens.lengths, tokens=8192, rows=rows, seed=0, epoch=0, accumulate=accumulate)
    return list(Batches(tokens, plan))


def rows_of(batch):
    """Source and target ids of each row."""
    parts = [(one.ids_N.split(one.layout.lengths_B.tolist())) for one in (batch, batch.targets)]
    return list(zip(*parts, strict=True))


def test_a_batch_holds_the_targets_of_its_own_rows(tokens):
    for batch in batches(tokens, rows=3):
        for row, (source, target) in zip(batch.rows_B.tolist(), rows_of(batch), strict=True):
            for ids, whole in ((source, tokens), (target, tokens.targets)):
                assert ids.tolist() == whole.ids_N[whole.offsets[row] : whole.offsets[row + 1]].tolist()


@pytest.mark.parametrize("encoder", ["transformer", "gru"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_of_each_row_alone(tokens, label_smoothing, encoder):
    module = make_module(label_smoothing, encoder)
    (batch,) = batches(tokens)
    logits_NV = target_logits(module.network, batch).split(batch.targets.layout.lengths_B.tolist())
    losses = [
        F.cross_entropy(logits_LV[:-1], target[1:], label_smoothing=label_smoothing)
        for logits_LV, (_, target) in zip(logits_NV, rows_of(batch), strict=True)
    ]
    torch.testing.assert_close(module.training_step(batch, 0), torch.stack(losses).mean())


def test_accumulated_micro_batches_have_the_gradient_of_the_whole_batch(tokens):
    whole, parts = make_module(), make_module()
    (batch,) = batches(tokens)
    whole.training_step(batch, 0).backward()
    for index, one in enumerate(batches(tokens, rows=2, accumulate=4)):
        (parts.training_step(one, index) / 4).backward()
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("encoder", ["transformer", "gru"])
def test_a_batch_without_rows_adds_zeros(tokens, encoder):
    module = make_module(encoder=encoder)
    many = batches(tokens, rows=1, accumulate=8)
    empty = next(one for one in many if not len(one.rows_B))
    module.training_step(empty, 0).backward()
    grads = [p.grad for p in module.network.parameters()]  # none of them None: a rank would wait for it
    assert all(grad is not None and (grad == 0).all() for grad in grads)
    module.validation_step(empty, 0)
    assert module.objective.train_metrics["token_accuracy"].weight == 0


def test_nothing_follows_the_last_token(tokens):
    (batch,) = batches(tokens)
    next_N = following(batch)
    for target, after in zip(
        batch.targets.ids_N.split(batch.targets.layout.lengths_B.tolist()),
        next_N.split(batch.targets.layout.lengths_B.tolist()),
        strict=True,
    ):
        assert after.tolist() == [*target.tolist()[1:], -100]


@pytest.mark.parametrize("encoder", ["transformer", "gru"])
def test_exact_match_is_that_of_answers_spelt_out_token_by_token(tokens, encoder):
    module = make_module(encoder=encoder).eval()
    with torch.no_grad():
        module.network.head.bias[END] = 1.0  # so that some answers end
    (batch,) = batches(tokens)
    answers = {
        row: spelt_out(module, source) for row, (source, _) in zip(batch.rows_B.tolist(), rows_of(batch), strict=True)
    }
    wanted = {row: answer if row % 2 else [7, *answer] for row, answer in answers.items()}
    rows = [torch.tensor([START, *wanted[row], END], dtype=torch.int32) for row in range(len(wanted))]
    tokens.targets = Tokens(torch.cat(rows), torch.tensor([0, *map(len, rows)]).cumsum(0), None, torch.zeros(len(rows)))
    (batch,) = batches(tokens)
    assert exact_matches(module.network, batch).tolist() == [row % 2 for row in batch.rows_B.tolist()]


def spelt_out(module, source, most=8):
    """The greedy answer to one source by whole forward passes, without any cache."""
    said = [START]
    with torch.no_grad():
        while len(said) <= most:
            layouts = [Packed.of_lengths([len(source)]), Packed.of_lengths([len(said)])]
            logits_NV = module.network(source, layouts[0], torch.tensor(said), layouts[1])
            said.append(int(logits_NV[-1].argmax()))
            if said[-1] == END:
                return said[1:-1]
    return said[1:]
