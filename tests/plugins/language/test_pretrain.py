"""What hidden words cost, beside NumPy; and that a model learns to tell them."""

import numpy as np
import pytest
import torch

from manyheads.config import BatchConfig, ModelConfig, OptimConfig
from manyheads.data.batches import Planned, gather
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import encode
from manyheads.plugins.language.config import PretrainConfig
from manyheads.plugins.language.masks import vocabulary
from manyheads.plugins.language.networks import assemble_masked
from manyheads.plugins.language.objectives import Pretrain
from manyheads.plugins.language.pieces import WHOLE, check_held_out, in_pieces
from manyheads.training.module import LitModule

SHAPE = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=8, d_v=8, d_ff=24, dropout=0.0, dropout_tokens=0.0)
TEXTS = ["good film", "a very bad film so awful", "the fine film not good the bad film", "so so so not a fine film"]


@pytest.fixture(scope="module")
def tokenizer():
    from tests.conftest import word_tokenizer

    return word_tokenizer()


@pytest.fixture(scope="module")
def tokens(tokenizer):
    return in_pieces(encode(tokenizer, TEXTS * 4, None, None, WHOLE), tokenizer, 8)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return assemble_masked(SHAPE, vocab_size=15, max_length=8)


def lesson(tokenizer, **more):
    return Pretrain(PretrainConfig(**more), vocabulary(tokenizer, pairs=False))


def batch_of(tokens, rows=None, scale=1.0):
    return gather(
        tokens, Planned(torch.arange(len(tokens)) if rows is None else torch.tensor(rows, dtype=torch.int64), scale)
    )


@pytest.mark.parametrize("more", [{}, {"mask_share": 0.4}])
def test_losses_are_cross_entropies_of_the_hidden_words_alone(more, tokens, tokenizer, network):
    task, batch = lesson(tokenizer, **more), batch_of(tokens)
    torch.manual_seed(3)
    losses = task.training_loss(network.eval(), batch)
    torch.manual_seed(3)
    hidden = task.hidden(batch.ids_N, batch.layout)
    n_words = batch.ids_N.numel() - 2 * len(tokens)
    assert losses.shape == hidden.words_P.shape == (round(task.config.mask_share * n_words),)
    assert (hidden.words_P >= 5).all(), "marks are never hidden"
    logits = network(hidden.ids_N, batch.layout, None, hidden.places_P).detach().double().numpy()
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wanted = -np.log(shares[np.arange(len(shares)), hidden.words_P])
    np.testing.assert_allclose(losses.detach(), wanted, rtol=1e-5)
    right = float((logits.argmax(1) == hidden.words_P.numpy()).mean())
    assert float(task.train_metrics.compute()["masked_accuracy"]) == pytest.approx(right)


def test_held_out_figures_do_not_hang_on_batches_or_on_what_training_hides(tokens, tokenizer, network):
    found = []
    for rows, more in (
        ([*range(len(tokens))], {}),
        ([*range(len(tokens))][::-1], {"mask_share": 0.8}),
    ):
        task = lesson(tokenizer, **more)
        parts = [
            task.validation_loss(network.eval(), batch_of(tokens, rows[at : at + 5])) for at in range(0, len(rows), 5)
        ]
        found.append((sorted(torch.cat(parts).tolist()), float(task.validation_metrics["masked_accuracy"].compute())))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4)
    assert found[0][1] == found[1][1]


def test_a_step_follows_the_mean_over_hidden_words(tokens, tokenizer, network, monkeypatch):
    module = LitModule(network, lesson(tokenizer), optim=OptimConfig(), n_steps=1)
    module.log = lambda *args, **more: None
    monkeypatch.setattr(LitModule, "global_step", 0)
    batch = batch_of(tokens, scale=1 / len(tokens))
    torch.manual_seed(5)
    total = module.training_step(batch, 0)
    torch.manual_seed(5)
    losses = module.objective.training_loss(network, batch)
    torch.testing.assert_close(total, losses.mean())


@pytest.mark.parametrize("more", [{}, {"accumulate": 4}, {"accumulate": 4, "split": 2}])
def test_a_word_counts_the_same_in_each_batch_of_a_step(more, tokenizer, network, monkeypatch):
    """However long its text is: batches of few long texts hold about as many words as those of many short ones."""
    texts = ["good film" if at % 3 else " ".join(["so awful"] * 5) for at in range(24)]
    tokens = encode(tokenizer, texts, None, None, WHOLE)
    tokens.vocabulary = vocabulary(tokenizer, pairs=False)
    split = more.get("split", 1)
    data = TextData({"train": tokens}, BatchConfig(tokens=48, accumulate=more.get("accumulate", 1)), 0, split=split)
    module = LitModule(network, lesson(tokenizer), optim=OptimConfig(), n_steps=1)
    module.log = lambda *args, **more: None
    monkeypatch.setattr(LitModule, "global_step", 0)
    monkeypatch.setattr(module.objective, "training_loss", lambda network, batch: batch.ids_N[batch.ids_N > 4].float())
    each, plan = data.per_step(), data.plan(0)
    for at in range(0, len(plan), each):
        batches = [gather(tokens, one) for one in plan[at : at + each]]
        words_P = torch.cat([batch.ids_N[batch.ids_N > 4] for batch in batches]).float()
        found = sum(float(module.training_step(batch, 0)) for batch in batches) / each
        assert found == pytest.approx(float(words_P.mean()), rel=1e-5)


def test_hidden_words_are_learnt(tokens, tokenizer, network):
    task, batch = lesson(tokenizer), batch_of(tokens)
    adam = torch.optim.AdamW(network.parameters(), lr=0.01)
    before = task.validation_loss(network, batch).mean().item()
    for _ in range(80):
        adam.zero_grad()
        task.training_loss(network, batch).mean().backward()
        adam.step()
    assert task.validation_loss(network, batch).mean().item() < 0.6 * before


def test_pairs_have_their_marks_counted(tokenizer):
    tokens = encode(tokenizer, ["good film"] * 10, ["a very bad film"] * 10, None, 12)
    batch = batch_of(tokens)
    task = Pretrain(PretrainConfig(mask_share=0.5), vocabulary(tokenizer, pairs=True))
    assert task.hidden(batch.ids_N, batch.layout).places_P.numel() == 30


def test_a_batch_without_rows_adds_zeros_to_the_gradient(tokens, tokenizer, network):
    """A rank gets such a batch where there are too few rows."""
    losses = lesson(tokenizer).training_loss(network, batch_of(tokens, []))
    assert losses.shape == (0,)
    losses.sum().backward()
    assert all((one.grad == 0).all() for one in network.parameters() if one.grad is not None)
    assert network.head.bias.grad is not None


def test_a_tail_behind_the_texts_hides_no_more_of_them(tokens, tokenizer):
    task, plan = lesson(tokenizer, mask_share=0.4), Planned(torch.arange(len(tokens)), 1.0)
    alone, tailed = gather(tokens, plan), gather(tokens, plan, few_counts=True)
    assert tailed.ids_N.numel() > alone.ids_N.numel()
    hidden = task.hidden(tailed.ids_N, tailed.layout)
    assert hidden.words_P.numel() == task.hidden(alone.ids_N, alone.layout).words_P.numel()
    assert (hidden.places_P < alone.ids_N.numel()).all()


def test_validation_texts_in_which_nothing_can_be_hidden_are_refused(tokens, tokenizer):
    few = in_pieces(encode(tokenizer, ["so"], None, None, WHOLE), tokenizer, 8)
    for one in (few, tokens):
        one.vocabulary = vocabulary(tokenizer, pairs=False)
    with pytest.raises(ValueError, match="hold 3 tokens, marks included, too few to hide one"):
        check_held_out(few)
    check_held_out(tokens)
