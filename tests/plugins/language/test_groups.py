"""Rates by depth of networks that answer by tokens, and of recurrent ones, which have none."""

import pytest

from manyheads.cli.compose import compose
from manyheads.config import OptimConfig, RunConfig
from manyheads.config.conversion import from_plain
from manyheads.plugins.language.networks import assemble_masked, assemble_seq2seq
from tests.core.training.test_groups import SHAPE, rates


@pytest.mark.parametrize(
    ("make", "tables"),
    [
        (assemble_seq2seq, ["source.words.weight", "target.words.weight"]),
        (assemble_masked, ["embeddings.words.weight"]),
    ],
)
def test_so_may_those_of_any_network(make, tables):
    """The words may change as slowly as all else."""
    other = make(SHAPE, vocab_size=20, max_length=8)
    plain = rates(other, OptimConfig(lr=0.1))
    assert rates(other, OptimConfig(lr=0.1, scale_embedding_lr=True)) == {
        name: pytest.approx(rate / (8**0.5 if name in tables else 1)) for name, rate in plain.items()
    }


def test_a_pace_that_nothing_has_is_refused():
    with pytest.raises(ValueError, match=r"optim\.layer_decay=0\.9 does nothing with model\.encoder=gru: remove it"):
        from_plain(RunConfig, {"optim": {"layer_decay": 0.9}, "model": {"encoder": "gru"}})


def test_a_translator_has_no_head_to_begin_with():
    with pytest.raises(ValueError, match=r"optim\.few=9 does nothing with task=seq2seq: remove it"):
        compose("train", ["experiment=dates", "optim.few=9"])
