"""The figures of a dry run of models whose answers are tokens, and of recurrent ones."""

from types import SimpleNamespace

import torch

from manyheads.config import BatchConfig, ModelConfig, RunConfig
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.plugins.language.config import PretrainConfig
from manyheads.plugins.language.decoder import flops_per_answer
from manyheads.plugins.language.networks import assemble_masked, assemble_seq2seq
from manyheads.plugins.language.objectives import pretrain, translate
from manyheads.training.dry_run import activation_bytes
from tests.core.training.test_dry import LENGTHS, assert_same_padding, counted, given, make_classifier, make_tokens


def test_a_recurrent_network_is_weighed_too():
    batch = TextData({"train": make_tokens()}, BatchConfig(), 0).largest_batch()
    assert activation_bytes(make_classifier(encoder="lstm"), given(batch), precision="32-true") > 0


def test_padding_is_that_of_the_run():
    tokens, lengths = make_tokens(), torch.tensor([5, 2, 9, 3, 3, 4, 8, 2])
    offsets = torch.cat([torch.zeros(1), lengths.cumsum(0)]).long()
    tokens.targets = Tokens(torch.ones(36, dtype=torch.int32), offsets, None, tokens.labels)
    model = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32)
    assert_same_padding("seq2seq", assemble_seq2seq(model, vocab_size=9, max_length=16), tokens)


def test_a_token_of_pretraining_costs_its_share_of_the_head_and_no_pooling():
    model = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, encoder="gru", n_heads=4, pooling="attention")
    length, n_words = 12, 10  # two marks a text
    ids, layout = torch.ones(length, dtype=torch.int64), Packed.of_lengths([length])
    total = counted(assemble_masked(model, vocab_size=9, max_length=16), ids, layout, None, torch.arange(n_words // 5))
    vocabulary = SimpleNamespace(n_marks=length - n_words, mask=1, special_V=torch.zeros(9, dtype=torch.bool))
    tokens = Tokens(ids.int(), torch.tensor([0, length]), None, torch.zeros(1), vocabulary=vocabulary)
    run = RunConfig(task="pretrain", model=model, pretrain=PretrainConfig(mask_share=0.2))
    assert (
        pretrain(run, tokens, []).plan(run, tokens, [], 9)["FLOPs a token"].startswith(f"{total / length:,.0f} forward")
    )


def test_a_text_is_told_with_its_target():
    tokens = make_tokens()
    tokens.targets = make_tokens()
    length = sum(LENGTHS) / len(LENGTHS)
    flops = flops_per_answer(ModelConfig(), length, length, 9)
    told = translate(RunConfig(), tokens, []).plan(RunConfig(), tokens, [], 9)["FLOPs a text"]
    assert told == f"{flops:,.0f} forward with its target, {3 * flops:,.0f} with backward"
