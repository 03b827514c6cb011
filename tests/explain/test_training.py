"""What the layers of a model hold of a text, against the model itself."""

import pytest
import torch

import manyheads
from manyheads.cli.words import plain_settings
from manyheads.config import ExplainConfig, RunConfig
from manyheads.data.demo import N_ROWS
from manyheads.data.texts import read_rows
from manyheads.explain import models as training
from manyheads.explain import relations, senses
from manyheads.explain.models import RECIPE, run_of, untrained, vectors_and_weights
from manyheads.explain.relations import Sentence, bond_figures, pair_weights
from manyheads.explain.senses import agreement, cosines
from manyheads.layout import Packed


@pytest.fixture(scope="module")
def model(model_folder):
    return manyheads.load(model_folder)


def test_the_recipe_names_every_setting():
    """A default that changes must not change what docs/attention.md shows: say in recipe.py what a new setting is."""
    own = {"seed", "output", "data.path", "data.cache", "trainer.max_steps"}
    named = {f"{section}.{key}" for section, of in RECIPE.items() if isinstance(of, dict) for key in of}
    named |= {name for name, value in RECIPE.items() if not isinstance(value, dict)}
    for regularisers in (senses.REGULARISERS, relations.REGULARISERS):
        assert named | own | regularisers.keys() == set(plain_settings(RunConfig()))
        run = run_of({"data.path": "rows", "seed": 3, **regularisers})
        assert (run.seed, run.optim.average) == (3, regularisers["optim.average"])


def test_senses_are_measured_on_sentences_that_no_model_was_trained_on(monkeypatch):
    """Also where the seed is not that of `data=demo`."""
    seen = {"train": set(), "measured": set()}

    def train(run):
        seen["train"] |= set(read_rows(run, with_test=False).train.texts)
        return really(run)

    def measured(model, classifier, rows, word, at):
        seen["measured"] |= {text for text, _ in rows}
        return agreement(model, classifier, rows[:200], word, at)

    really = training.train
    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(senses, "agreement", measured)
    senses.senses(ExplainConfig(seed=1, steps=2))
    assert len(seen["train"]) == N_ROWS["train"]
    assert len(seen["measured"]) == N_ROWS["test"]
    assert not seen["train"] & seen["measured"]


def test_vectors_lead_from_the_words_to_what_the_model_pools(model):
    ids = torch.tensor(model.tokenizer.encode("a very good film").ids)
    layout = Packed.of_lengths([len(ids)])
    vectors_YND, weights_YHNN = vectors_and_weights(model.network, ids)
    torch.testing.assert_close(vectors_YND[0], model.network.embeddings.words.weight[ids])
    torch.testing.assert_close(vectors_YND[1], model.network.embeddings(ids, layout))
    torch.testing.assert_close(vectors_YND[-1], model.network.encode(ids, layout))
    assert weights_YHNN.shape == (2, 2, len(ids), len(ids))
    torch.testing.assert_close(weights_YHNN.sum(-1), torch.ones(2, 2, len(ids)))


def test_an_untrained_model_has_the_same_shape_and_other_weights(model):
    fresh = untrained(model, 0)
    assert {name: one.shape for name, one in fresh.named_parameters()} == {
        name: one.shape for name, one in model.network.named_parameters()
    }
    assert not torch.equal(fresh.embeddings.words.weight, model.network.embeddings.words.weight)


def test_cosines_are_torchs_and_do_not_see_length():
    vectors_YSD = torch.randn(3, 4, 5)
    theirs = torch.nn.functional.cosine_similarity(vectors_YSD[:, :, None], vectors_YSD[:, None], dim=-1)
    torch.testing.assert_close(cosines(vectors_YSD), theirs)
    torch.testing.assert_close(cosines(7 * vectors_YSD), theirs)


def test_agreement_before_the_encoder_is_that_of_one_word_with_itself(model):
    rows = [("good film", "good-a"), ("very good film", "good-a"), ("so good", "good-b"), ("bad film", "bad-a")]
    found = agreement(model, model.network, rows, "good", "good")
    assert found["sentences"] == 3
    assert found["word"]["same_sense"] == pytest.approx(1)
    assert found["word"]["other_sense"] == pytest.approx(1)
    assert found["layer 2"]["same_sense"] < 1


def test_the_weight_on_a_partner_is_read_from_the_row_of_the_word_that_looks(model):
    text = "the film not good"
    encoding = model.tokenizer.encode(text)
    _, weights_YHNN = vectors_and_weights(model.network, torch.tensor(encoding.ids))
    film, good = encoding.tokens.index("film"), encoding.tokens.index("good")
    sentences = [Sentence(text, "fits", {"place": ("film", "good")})]
    found = bond_figures(model, model.network, {"validation": sentences, "test": sentences})
    there, back = weights_YHNN[:, :, film, good], weights_YHNN[:, :, good, film]
    assert found["place from vehicle"]["weight"] == pytest.approx(float(there.max()))
    assert found["vehicle from place"]["weight"] == pytest.approx(float(back.max()))
    assert found["vehicle from place"]["mean_head"] == pytest.approx(float(back.mean()))
    assert found["place from vehicle"]["even"] == pytest.approx(1 / len(encoding.ids))
    pairs = pair_weights(encoding.tokens, weights_YHNN, (("film", "good"),))
    assert pairs["film to good"]["layer 1"]["most"] == pytest.approx(float(there[0].max()))
