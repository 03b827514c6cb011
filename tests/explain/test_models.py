"""The small models: the recipe, what their layers hold of a text, and what sees order and what does not."""

import pytest
import torch

import manyheads
from manyheads.config import ModelConfig, Pooling, Positions, RunConfig
from manyheads.config.fields import plain_settings
from manyheads.explain import words
from manyheads.explain.models import CASES, RECIPE, build, differences, read_text, run_of, untrained
from manyheads.layout import Packed


def test_the_recipe_names_every_setting():
    """A default that changes must not change what docs/attention.md shows: say in models.py what a new setting is."""
    own = {"seed", "output", "data.path", "data.cache", "trainer.max_steps"}
    named = {f"{section}.{key}" for section, of in RECIPE.items() if isinstance(of, dict) for key in of}
    named |= {name for name, value in RECIPE.items() if not isinstance(value, dict)}
    for regularisers in (words.OF_SENSES, words.OF_RELATIONS):
        assert named | own | regularisers.keys() == set(plain_settings(RunConfig()))
        run = run_of({"data.path": "rows", "seed": 3, **regularisers})
        assert (run.seed, run.optim.average) == (3, regularisers["optim.average"])


def test_vectors_lead_from_the_words_to_what_the_model_pools(model_folder):
    model = manyheads.load(model_folder)
    tokens, vectors_YND, weights_YHNN = read_text(model, model.network, "a very good film")
    assert tokens == ["[CLS]", "a", "very", "good", "film", "[SEP]"]
    ids, layout = torch.tensor(model.tokenizer.encode("a very good film").ids), Packed.of_lengths([len(tokens)])
    torch.testing.assert_close(vectors_YND[0], model.network.embeddings.words.weight[ids])
    torch.testing.assert_close(vectors_YND[1], model.network.embeddings(ids, layout))
    torch.testing.assert_close(vectors_YND[-1], model.network.encode(ids, layout))
    assert weights_YHNN.shape == (2, 2, len(ids), len(ids))
    torch.testing.assert_close(weights_YHNN.sum(-1), torch.ones(2, 2, len(ids)))
    fresh = untrained(model, 0)
    assert {name: one.shape for name, one in fresh.named_parameters()} == {
        name: one.shape for name, one in model.network.named_parameters()
    }
    assert not torch.equal(fresh.embeddings.words.weight, model.network.embeddings.words.weight)


def measured(case: str) -> dict[str, float]:
    torch.manual_seed(0)
    settings = {
        "positions": Positions.none,
        "pooling": Pooling.mean,
        "d_model": 16,
        "d_k": 4,
        "d_v": 4,
        "d_ff": 16,
    } | CASES[case]
    classifier = build(ModelConfig(**settings)).double()
    return differences(classifier, carried="keeps its own" in case, random=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", ["no positions", "sinusoidal, each token keeps its own"])
def test_without_positions_the_encoder_commutes_with_any_exchange_and_the_logits_stay(case):
    found = measured(case)
    assert found["token_vectors"] < 1e-13
    assert found["logits"] < 1e-13


@pytest.mark.parametrize(
    "case", ["sinusoidal", "learned", "rotary", "alibi", "no positions, causal", "no positions, window of 2"]
)
def test_positions_masks_and_windows_see_order(case):
    found = measured(case)
    assert found["token_vectors"] > 0.05
    assert found["logits"] > 1e-3
