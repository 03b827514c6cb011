"""What is said of words: the made task, and cosines, vectors and weights against the model itself."""

from collections import Counter

import pytest
import torch

import manyheads
from manyheads.config import ExplainConfig
from manyheads.data.demo import demo_splits
from manyheads.data.sources import read_rows
from manyheads.explain import words
from manyheads.explain.words import (
    FOODS,
    NAMES,
    PLACES,
    SEED_SENTENCES,
    STATES,
    agreement,
    cosines,
    pair_weights,
    read_text,
    sentence_splits,
    untrained,
)
from manyheads.layout import Packed


@pytest.fixture(scope="module")
def model(model_folder):
    return manyheads.load(model_folder)


def broken(bonds: dict[str, tuple[str, str]]) -> list[str]:
    """The bonds that do not hold, looked up by hand."""
    holds = {
        "place": lambda vehicle, place: PLACES[vehicle] == place,
        "pronoun": lambda name, pronoun: name in NAMES[pronoun],
        "origin": lambda food, country: food in FOODS[country],
        "state": lambda state, food: any(foods[STATES.index(state)] == food for foods in FOODS.values()),
    }
    return [bond for bond, pair in bonds.items() if not holds[bond](*pair)]


def test_a_label_is_the_one_broken_bond():
    for sentence in sentence_splits(0)["train"]:
        assert broken(sentence.bonds) == ([] if sentence.label == "fits" else [sentence.label])
        said = sentence.text.replace(",", "").replace("'", " ").split()
        assert all(one in said and other in said for one, other in sentence.bonds.values())


def test_no_sentence_occurs_twice_and_those_of_the_seeds_never():
    texts = [one.text for split in sentence_splits(1).values() for one in split]
    assert len(set(texts)) == len(texts)
    assert not set(SEED_SENTENCES) & set(texts)
    assert sentence_splits(1) == sentence_splits(1)
    assert sentence_splits(1)["test"] != sentence_splits(2)["test"]


def test_a_word_is_as_frequent_where_all_fits_as_where_its_bond_is_broken():
    counts = {"fits": Counter(), "place": Counter()}
    for sentence in sentence_splits(0)["train"]:
        if "place" in sentence.bonds:
            counts[sentence.label].update(sentence.bonds["place"])
    total = {label: sum(found.values()) for label, found in counts.items()}
    for word in (*PLACES, *PLACES.values()):
        assert abs(counts["fits"][word] / total["fits"] - counts["place"][word] / total["place"]) < 0.03


@pytest.mark.drawn
def test_senses_are_measured_on_sentences_that_no_model_was_trained_on(monkeypatch):
    """Also where the seed is not that of `data=demo`."""
    whole, seen = demo_splits(1), {"train": set(), "measured": set()}
    assert not {text for text, _ in whole["train"]} & {text for text, _ in whole["test"]}
    few = {split: rows[:200] for split, rows in whole.items()}
    really = words.train

    def train(run):
        seen["train"] |= set(read_rows(run, with_test=False).train.texts)
        return really(run)

    def measured(model, classifier, rows, word, at):
        seen["measured"] |= {text for text, _ in rows}
        return agreement(model, classifier, rows, word, at)

    monkeypatch.setattr(words, "demo_splits", {1: few}.__getitem__)
    monkeypatch.setattr(words, "train", train)
    monkeypatch.setattr(words, "agreement", measured)
    monkeypatch.setattr("manyheads.evaluation.report.png", lambda figure: b"\x89PNG")  # nobody sees that of the run
    words.senses(ExplainConfig(seed=1, steps=2))
    assert seen == {"train": {text for text, _ in few["train"]}, "measured": {text for text, _ in few["test"]}}


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
    tokens, _, weights_YHNN = read_text(model, model.network, text)
    film, good = tokens.index("film"), tokens.index("good")
    there = weights_YHNN[:, :, film, good]
    pairs = pair_weights(model, text, (("film", "good"),))
    assert pairs["film to good"]["layer 1"]["most"] == pytest.approx(float(there[0].max()))
    assert pairs["film to good"]["layer 2"]["mean"] == pytest.approx(float(there[1].mean()))


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
