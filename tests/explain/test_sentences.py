"""The made task: labels follow from the bonds, and no single word tells."""

from collections import Counter

from manyheads.explain.relations import FOODS, NAMES, PLACES, SEED_SENTENCES, STATES, sentence_splits


def broken(bonds: dict[str, tuple[str, str]]) -> list[str]:
    """The bonds that do not hold, looked up by hand."""
    holds = {
        "place": lambda vehicle, place: PLACES[vehicle] == place,
        "pronoun": lambda name, pronoun: name in NAMES[pronoun],
        "origin": lambda food, country: food in FOODS[country],
        "state": lambda state, food: any(foods[STATES.index(state)] == food for foods in FOODS.values()),
    }
    return [bond for bond, words in bonds.items() if not holds[bond](*words)]


def test_a_label_is_the_one_broken_bond():
    for sentence in sentence_splits(0)["train"]:
        assert broken(sentence.bonds) == ([] if sentence.label == "fits" else [sentence.label])
        words = sentence.text.replace(",", "").replace("'", " ").split()
        assert all(one in words and other in words for one, other in sentence.bonds.values())


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
