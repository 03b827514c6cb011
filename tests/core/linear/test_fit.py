"""The linear model beside a network: as scikit-learn has it."""

import random
import sys
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.stats import entropy
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from manyheads.config import Terms
from manyheads.data.ids.terms import number_of
from manyheads.data.rows import Rows, Splits
from manyheads.linear import fit as linear
from manyheads.linear.fit import MANY, OF_LABELS, STRENGTH, TOLERANCE, cached_linear, fit_counted, fit_linear, simplest
from manyheads.linear.model import counted, linear_logits, terms_of

TEXTS = ["a good film", "so bad", "The awful film, bad!", "good good fun", "a film", "an awful bore so bad"] * 4
LABELS = [0, 1, 1, 0, 2, 1] * 4
SHARES = np.eye(3, dtype=np.float32)[LABELS]
MORE = [  # facts of training rows
    {"pairs": [""] * 24}, {"probabilities": SHARES}, {"probabilities": SHARES, "voters": np.ones(24, np.float32)},
    {"weights": np.arange(24, dtype=np.float32)},
]  # fmt: skip
SOLVER = {"C": STRENGTH, "solver": "liblinear", "dual": True, "tol": TOLERANCE, "random_state": 0}
ASKED = ["good", "bad bad film", "never seen words", "", "The awful film"]


def rows(labels=LABELS, texts=TEXTS, pairs=None, sets=None) -> Rows:
    return Rows(texts, pairs, labels, "x.csv", range(1, 1 + len(texts)), sets=sets)


class Weights:
    """What each term weighs, term by term: rare ones more, and those whose rows have other classes than all rows."""

    def __init__(self, marks) -> None:
        self.marks_nC = np.array(marks, dtype=float)

    def fit(self, counts_nU, _) -> "Weights":
        share_C = self.marks_nC.sum(0) / self.marks_nC.sum()
        weights = []
        for count_n in counts_nU.toarray().T:
            found_C = self.marks_nC[count_n > 0].sum(0)
            chance_C = (found_C + share_C) / (found_C.sum() + 1)
            rarity = np.log((1 + len(count_n)) / (1 + (count_n > 0).sum())) + 1
            weights.append(rarity * (0.5 + entropy(chance_C[share_C > 0], share_C[share_C > 0])))
        self.weight_U = np.array(weights)
        return self

    def transform(self, counts_nU) -> np.ndarray:
        return counts_nU.toarray() * self.weight_U

    def fit_transform(self, counts_nU, marks_n) -> np.ndarray:
        return self.fit(counts_nU, marks_n).transform(counts_nU)


def reference(sets, **more):
    """Pipeline of scikit-learn; `sets` are the classes of each row."""
    marks = [[label in one for label in range(5)] for one in sets]
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\w+")
    return make_pipeline(words, Weights(marks), Normalizer(), LogisticRegression(**more))


def test_each_class_has_the_logits_of_scikit_learn_against_the_rest():
    model = fit_linear(rows(), 3)
    assert model is not None
    found = linear_logits(model, ASKED, None).numpy()
    for label in range(3):
        own = [one == label for one in LABELS]
        theirs = reference([[one] for one in LABELS], **SOLVER).fit(TEXTS, own).decision_function(ASKED)
        np.testing.assert_allclose(found[:, label], theirs, atol=1e-4)


def test_of_two_classes_one_regression_tells():
    labels = [one % 2 for one in LABELS]
    model = fit_linear(rows(labels), 3)
    assert model is not None
    found = linear_logits(model, ASKED, None).softmax(-1).numpy()
    theirs = reference([[one] for one in labels], **SOLVER).fit(TEXTS, labels).predict_proba(ASKED)
    np.testing.assert_allclose(found[:, :2], theirs, atol=2e-4)


def test_labels_have_each_its_own():
    sets = [(0,), (1, 2), (1,), (0, 2), (), (1,)] * 4
    model = fit_linear(rows([0] * 24, sets=sets), 5)
    assert model is not None
    found = linear_logits(model, ASKED, None).sigmoid().numpy()
    for label in range(3):
        marks = [label in one for one in sets]
        theirs = reference(sets, **SOLVER | {"C": OF_LABELS}).fit(TEXTS, marks).predict_proba(ASKED)[:, 1]
        np.testing.assert_allclose(found[:, label], theirs, atol=1e-4)
    assert (found[:, 3:] < 1e-4).all(), "labels that no row has"


def test_classes_that_no_row_has_are_not_answered():
    model = fit_linear(rows(), 5)
    assert model is not None
    assert linear_logits(model, ASKED, None).softmax(-1)[:, 3:].max() < 1e-3


def test_a_term_says_more_the_further_its_rows_are_from_all_rows():
    """Of eight rows, half of them of each class."""
    presence_nU = csr_array(np.array([[1, 1, 1, 0]] * 4 + [[1, 0, 0, 0]] * 3 + [[1, 0, 0, 1]], dtype=float))
    one = rows([0] * 4 + [1] * 4, texts=["x"] * 8)
    found = linear.information(presence_nU, one, 3)
    assert found[0] == pytest.approx(0.0, abs=1e-12), "a term of all rows says nothing"
    assert found[1] == found[2] == pytest.approx(entropy([4.5 / 5, 0.5 / 5], [0.5, 0.5]))
    assert found[1] > found[3] > 0, "one row is less than four"
    several = rows([0] * 8, texts=["x"] * 8, sets=[(0,)] * 4 + [(1,)] * 3 + [()])
    of_labels = linear.information(presence_nU, several, 3)
    assert of_labels[3] == pytest.approx(0.0, abs=1e-12), "its row has no label"
    assert of_labels[1] > 0
    assert linear.information(presence_nU, rows([0] * 8, texts=["x"] * 8, sets=[()] * 8), 3).tolist() == [0] * 4


def test_pairs_are_told_by_what_they_share():
    firsts = [f"the {one} runs" for one in ("dog", "cat", "cow", "hen")] * 6
    seconds = [
        f"the {one} runs" if at % 2 else "a boat is still" for at, one in enumerate(("dog", "cat", "cow", "hen") * 6)
    ]
    model = fit_linear(rows([at % 2 for at in range(24)], texts=firsts, pairs=seconds), 2)
    assert model is not None
    asked = linear_logits(
        model, ["the pig sings loud", "the pig sings loud"], ["the pig sings loud", "no more of it here"]
    )
    assert asked.argmax(-1).tolist() == [1, 0]


@pytest.mark.parametrize("rows", [rows([1] * 24), rows(texts=["!", "?"] * 12)])
def test_without_two_classes_or_a_term_there_is_none(rows):
    assert fit_linear(rows, 3) is None


def test_terms_of_a_single_row_count_where_rows_are_few():
    texts = [f"{'good' if at % 2 else 'bad'} word{at}" for at in range(MANY + 2)]
    labels = [at % 2 for at in range(MANY + 2)]
    few = fit_linear(rows(labels[:100], texts=texts[:100]), 2)
    many = fit_linear(rows(labels, texts=texts), 2)
    assert few is not None
    assert many is not None
    assert (len(few.terms_U), len(many.terms_U)) == (2 + 200, 2)


def test_of_very_many_rows_and_terms_a_part_will_do(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 5)
    monkeypatch.setattr(linear, "MOST_VOTES", 12)
    model = fit_linear(rows(), 3)
    assert model is not None
    assert model.votes_UC.shape == (4, 3)
    assert model.terms_U.numel() <= len({number_of(term) for text in TEXTS for term in terms_of(text)})


def test_rows_of_a_part_are_drawn_as_classes_may_come_in_turn(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 50)
    texts, labels = ["good", "bad", "dull", "great"] * 25, [0, 1, 2, 3] * 25
    model = fit_linear(rows(labels, texts=texts), 4)
    assert model is not None
    assert linear_logits(model, texts[:4], None).argmax(-1).tolist() == [0, 1, 2, 3]


def test_fitting_draws_nothing():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = fit_linear(rows(), 3), fit_linear(rows(), 3)
    assert first is not None
    assert second is not None
    assert all(one.equal(other) for one, other in zip(first.buffers(), second.buffers(), strict=True))
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("multi", [False, True])
def test_classes_count_by_their_weights(multi):
    """As if the rows of a class, or what rows have of a label, were there as often."""
    weights_C = np.array([3.0, 1.0, 2.0])
    sets = [(label,) for label in LABELS] if multi else None
    weighed = fit_linear(rows(sets=sets), 3, weights_C)
    assert weighed is not None
    found = linear_logits(weighed, ASKED, None)
    for label in range(3):
        own = [int(one == label) for one in LABELS]
        each = [weights_C[label] if one else 1.0 for one in own] if multi else weights_C[LABELS]
        theirs = reference([[one] for one in LABELS], **SOLVER | {"C": OF_LABELS if multi else STRENGTH})
        theirs.fit(TEXTS, own, logisticregression__sample_weight=each)
        np.testing.assert_allclose(found[:, label].numpy(), theirs.decision_function(ASKED), atol=1e-4)


def sentences(words, n, joint="", seed=0):
    """`n` texts of fifteen of the words: two of the first five are in those of class 1, of the next five in class 0."""
    draw = random.Random(seed)
    texts = []
    for at in range(n):
        told = words[:5] if at % 2 else words[5:10]
        chosen = [*draw.sample(told, 2), *(draw.choice(words[10:]) for _ in range(13))]
        draw.shuffle(chosen)
        texts.append(joint.join(chosen))
    return rows([at % 2 for at in range(n)], texts=texts)


SPOKEN = {
    "Chinese": "好看 喜欢 精彩 满意 推荐 难看 失望 无聊 糟糕 后悔 电影 我们 昨天 故事 演员 觉得 这个 真的 时间 音乐",
    "Japanese": "良い 好き 楽しい 素敵 満足 悪い 嫌い 退屈 最低 残念 映画 昨日 私は 友達 見た 音楽 話が とても これは",
    "Thai": "ดี ชอบ สนุก สวย พอใจ แย่ เกลียด เบื่อ เสียใจ ผิดหวัง หนัง เมื่อวาน เพื่อน ฉัน เพลง เรื่อง นี้ มาก และ แต่",
}
SPACED = "good nice fine great loved bad awful poor dull hated film we yesterday story actor think this time music"


@pytest.mark.parametrize("language", SPOKEN)
def test_where_no_spaces_stand_characters_are_counted(language):
    words = SPOKEN[language].split()
    train, validation, asked = (sentences(words, n, seed=n) for n in (600, 200, 300))
    labels = torch.tensor(asked.labels)
    found, unasked = fit_linear(train, 2, None, validation), fit_linear(train, 2)
    by_words = fit_counted(counted(train.texts, None, Terms.words), train, 2, None, Terms.words)
    right = [
        float((linear_logits(one, asked.texts, None).argmax(-1) == labels).float().mean())
        for one in (found, by_words)
        if one is not None
    ]
    assert found is not None
    assert found.terms in (Terms.characters, Terms.both)
    assert "characters 2-4" in found.terms.value
    assert right[0] > 0.95
    assert right[1] < 0.7
    assert unasked is not None
    assert unasked.terms is Terms.characters


def test_where_words_are_spaced_they_are_enough():
    found = fit_linear(sentences(SPACED.split(), 600, " ", 1), 2, None, sentences(SPACED.split(), 200, " ", 2))
    assert found is not None
    assert found.terms is Terms.words
    assert found.terms.value == "words and pairs of words"


def test_hindi_words_are_whole_and_letters_are_the_same_however_composed():
    texts = ["फ़िल्म बहुत अच्छी है", "यह बहुत बुरी है", "caf\u00e9 cr\u00e8me", "na\u00efve d\u00e9j\u00e0"] * 10
    labels = [0, 1, 0, 1] * 10
    found = [
        fit_linear(rows(labels, texts=[unicodedata.normalize(form, text) for text in texts]), 2)
        for form in ("NFC", "NFD")
    ]
    assert all(one.equal(other) for one, other in zip(found[0].buffers(), found[1].buffers(), strict=True))
    assert number_of("अच्छी") in found[0].terms_U.tolist()
    asked = [linear_logits(found[0], [unicodedata.normalize(form, "caf\u00e9")], None) for form in ("NFC", "NFD")]
    assert asked[0].equal(asked[1])


@pytest.mark.parametrize("multi", [False, True])
def test_terms_that_no_row_of_validation_tells_apart_are_words(multi):
    sets = [(at % 3,) for at in range(24)] if multi else None
    validation = rows(texts=["never seen"] * 24, sets=sets)
    found = fit_linear(rows(sets=sets), 3, np.array([1.0, 2.0, 3.0]), validation)
    assert found is not None
    assert found.terms is Terms.words


def test_a_choice_is_made_beyond_chance():
    draw = torch.Generator().manual_seed(0)
    first_n = torch.randn(400, generator=draw, dtype=torch.float64)
    noise_n = torch.randn(400, generator=draw, dtype=torch.float64)
    assert simplest({"a": first_n, "b": first_n + 0.01 + noise_n}) == "a"
    assert simplest({"a": first_n, "b": first_n + 0.3 + noise_n, "c": first_n + 0.2}) == "b"
    assert simplest({"a": first_n, "b": first_n}) == "a"


def test_long_texts_are_counted_by_words_and_a_part_of_the_rows_is_asked(monkeypatch):
    monkeypatch.setattr(linear, "MOST_LETTERS", dict.fromkeys(Terms, 3000))
    asked = []
    monkeypatch.setattr(linear, "fit_counted", lambda found, *given: asked.append((len(found.bounds) - 1, given[3])))
    for words, joint, kinds in ((SPACED.split(), " ", {Terms.words}), (SPOKEN["Thai"].split(), "", set(Terms))):
        asked.clear()
        fit_linear(sentences(words, 200, joint), 2, None, sentences(words, 50, joint, 1))
        assert {kind for _, kind in asked} == kinds
        assert max(n for n, _ in asked) < 200


def test_of_rows_drawn_from_one_class_nothing_is_learnt(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 2)
    one = fit_linear(rows([0] * 23 + [1]), 3)
    assert one is not None
    assert linear_logits(one, ASKED, None).argmax(-1).tolist() == [0] * 5


SCRIPT = """
import sys
from pathlib import Path
from manyheads.config import Terms
from manyheads.linear.model import counted
firsts = [f"the {one} runs over a small hill" for one in ("dog", "cat", "cow", "hen")] * 2
seconds = [f"the {one} sleeps" if at % 2 else "a boat is still" for at, one in enumerate(("dog", "cat") * 4)]
Path(sys.argv[1]).write_bytes(b"".join(bytes(one) for one in counted(firsts, seconds, Terms.both)))
print(hash("a hill"))
"""


def test_terms_of_pairs_come_in_an_order_that_does_not_depend_on_the_hash_seed(python, tmp_path, monkeypatch):
    """All that is fitted follows from them; two sets stand behind them."""
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "here")])
    exec(SCRIPT, {})
    done = python.run("-c", SCRIPT, tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) != hash("a hill")
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def test_far_too_many_classes_are_not_fitted(monkeypatch):
    monkeypatch.setattr(linear, "MOST_FITTED", 3 * len(TEXTS))
    assert fit_linear(rows(), 3) is not None
    assert fit_linear(rows(), 4) is None
    assert linear.too_many(rows(), 4)
    assert not linear.too_many(rows(), 3)


def test_the_same_rows_are_fitted_once(tmp_path, monkeypatch):
    fitted = []

    def counting(*asked):
        fitted.append(asked)
        return fit_linear(*asked)

    monkeypatch.setattr(linear, "fit_linear", counting)
    splits = Splits(rows(), rows(LABELS[::-1]), None, ["a", "b", "c"])
    first = cached_linear(tmp_path, splits, None)
    again = cached_linear(tmp_path, Splits(rows(), rows(LABELS[::-1]), rows(), ["a", "b", "c"]), None)
    assert first is not None
    assert again is not None
    assert len(fitted) == 1
    assert again.terms is first.terms
    assert first.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(first.state_dict()[name], tensor) for name, tensor in again.state_dict().items())

    others = [
        (Splits(rows(LABELS[::-1]), rows(LABELS[::-1]), None, ["a", "b", "c"]), None),
        (Splits(rows(), rows(), None, ["a", "b", "c"]), None),
        (Splits(rows(), rows(LABELS[::-1]), None, ["a", "c", "b"]), None),
        (splits, np.array([1.0, 2.0, 1.0])),
        *((Splits(replace(rows(), **more), rows(LABELS[::-1]), None, ["a", "b", "c"]), None) for more in MORE),
    ]
    for at, other in enumerate(others):
        cached_linear(tmp_path, *other)
        assert len(fitted) == at + 2
    monkeypatch.setattr(linear, "code_digest", lambda: "another formula")
    cached_linear(tmp_path, splits, None)
    assert len(fitted) == len(others) + 2


def test_that_there_is_no_linear_model_is_kept_and_a_damaged_file_is_made_again(tmp_path):
    alone = Splits(rows([0] * 24), rows([0] * 24), None, ["a"])
    assert cached_linear(tmp_path, alone, None) is None
    assert cached_linear(tmp_path, alone, None) is None
    splits = Splits(rows(), rows(), None, ["a", "b", "c"])
    (before,) = tmp_path.glob("linear-*.npz")
    first = cached_linear(tmp_path, splits, None)
    (file,) = set(tmp_path.glob("linear-*.npz")) - {before}
    file.write_bytes(file.read_bytes()[:-40])
    again = cached_linear(tmp_path, splits, None)
    assert first is not None
    assert again is not None
    assert torch.equal(first.votes_UC, again.votes_UC)
