"""Texts that are read word by word have the ids that the tokenizers give whole texts, whatever is typed in them."""

from array import array
from collections import Counter
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from manyheads.config import Cutting, Long, TokenizerConfig, TokenizerKind
from manyheads.data.ids import words as table
from manyheads.data.ids.words import Parting, Words, parting_of
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import MAX_LETTERS, SPECIAL, _count_words, read_marks_as_text, train_tokenizer
from manyheads.data.tokens import encode
from tests.conftest import word_tokenizer

LEARNT = [
    *["The Film was très bien, naïve & GREAT! don't stop; it's über-good 12.50 [SEP] <mask> Ġa ▁b x_y"] * 9,
    *["日本語 の 文, ไทย שלום مرحبا Ελλάδα İstanbul \u017ft ﬁ ½ ² 🙂 e\u0301 한국어 \u1112\u1161\u11ab"] * 9,
]
ROWS = Rows(LEARNT, None, [0] * len(LEARNT), "test", range(len(LEARNT)))


def trained(kind: TokenizerKind, **more) -> Tokenizer:
    return train_tokenizer(ROWS, TokenizerConfig(kind=kind, vocab_size=500, **more))


def given_away(normalizer, pre_tokenizer, model=None) -> Tokenizer:
    """A stranger's tokenizer, with the pieces of our own or of a `model`."""
    own = trained(TokenizerKind.wordpiece)
    tokenizer = Tokenizer(own.model if model is None else model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = own.post_processor
    read_marks_as_text(tokenizer)
    return tokenizer


N, P = normalizers, pre_tokenizers
FAMILIES = {
    "ours": (lambda: trained(TokenizerKind.wordpiece), Parting.signs),
    "ours, exact": (lambda: trained(TokenizerKind.wordpiece, lowercase=False), Parting.signs),
    "ours, bpe": (lambda: trained(TokenizerKind.bpe), Parting.marks),
    "ours, unigram": (lambda: trained(TokenizerKind.unigram), Parting.marks),
    "ours, characters": (lambda: trained(TokenizerKind.characters), Parting.unknown),
    "bert": (lambda: given_away(N.BertNormalizer(), P.BertPreTokenizer()), Parting.signs),
    "nfkc": (
        lambda: given_away(
            N.Sequence([N.Strip(), N.NFKC(), N.StripAccents(), N.Sequence([N.Lowercase()])]),
            P.Sequence([P.Whitespace(), P.Digits(True), P.Split(Regex("(?<=a)b"), "isolated")]),
        ),
        Parting.spaces,
    ),
    "white space": (lambda: given_away(None, P.Sequence([P.WhitespaceSplit(), P.Punctuation()])), Parting.spaces),
    "across words": (lambda: given_away(N.Replace("a b", "ab"), P.BertPreTokenizer()), Parting.unknown),
    "after the first": (lambda: given_away(N.NFC(), P.Metaspace(prepend_scheme="first")), Parting.unknown),
    "not parted": (lambda: given_away(N.NFC(), P.Metaspace(split=False)), Parting.unknown),
    "no space before": (lambda: given_away(N.NFC(), P.ByteLevel(add_prefix_space=False)), Parting.unknown),
    "not at spaces": (lambda: given_away(N.NFC(), P.Sequence([P.Punctuation(), P.Whitespace()])), Parting.unknown),
    "nothing": (lambda: given_away(None, None), Parting.unknown),
    "marks are read": (word_tokenizer, Parting.unknown),
}


@cache
def made(family: str) -> Tokenizer:
    return FAMILIES[family][0]()


ODD = (
    *(
        "",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\x00",
        "\x1c",
        "\x85",
        "\xa0",
        "\xad",
        "\u00a8",
        "\u2003",
        "\u2028",
        "\u3000",
        "\ufeff",
    ),
    *(
        "\u0301",
        "\u0345",
        "\u200d",
        "\u200b",
        "\u2581",
        "▁b",
        "Ġa",
        "Ċ",
        "[SEP]",
        "[CLS]x",
        "<mask>",
        "</s>",
        "##a",
        "=\u0338",
        "a<\u0338b",
        "x\x0by",
        "(a)-b_c",
        "a b",
    ),
    *(
        "The",
        "film",
        "FILM",
        "don't",
        "'s",
        "...",
        "1.5",
        "é",
        "e\u0301",
        "İ",
        "\u017f",
        "ﬁ",
        "½",
        "²",
        "日本語",
        "한",
        "\u1112\u1161",
        "ไทย",
        "🙂",
        "👩\u200d🚀",
    ),
    *("ab" * 40, "x" * 70),
)
TEXTS = st.lists(
    st.lists(st.sampled_from(ODD) | st.text(max_size=3), max_size=9).flatmap(
        lambda parts: st.sampled_from(["", " "]).map(lambda between: between.join(parts))
    ),
    max_size=6,
)


def alone(tokenizer: Tokenizer, text: str) -> bytes:
    return array("i", tokenizer.encode(text, add_special_tokens=False).ids).tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_steps_say_where_texts_are_parted(family):
    assert parting_of(made(family)) is FAMILIES[family][1]


@pytest.mark.parametrize("family", FAMILIES)
def test_words_have_the_ids_that_they_have_in_texts(family):
    tokenizer = made(family)
    kept = Words(tokenizer)

    @given(TEXTS)
    def check(texts: list[str]) -> None:
        assert kept.read(texts) == [alone(tokenizer, text) for text in texts]

    check()
    assert kept.parting is FAMILIES[family][1], "words were found to differ"


@pytest.mark.parametrize(
    ("family", "pair"),
    [
        pytest.param(family, pair, marks=[pytest.mark.slow] * (at % 2 == pair))
        for at, family in enumerate(["ours", "ours, bpe", "ours, unigram", "marks are read"])
        for pair in (False, True)
    ],
)
def test_texts_are_framed_and_cut_as_the_tokenizers_do_it(family, pair):
    tokenizer = made(family)
    kept = Words(tokenizer)

    @given(TEXTS, st.randoms(use_true_random=False), st.integers(5, 12))
    def check(texts: list[str], drawn, max_length: int) -> None:
        pairs = drawn.sample(texts, len(texts)) if pair else None
        found = encode(tokenizer, texts, pairs, None, max_length, look_up=kept.look_up)
        tokenizer.enable_truncation(max_length, strategy="longest_first")
        expected = tokenizer.encode_batch(texts if pairs is None else list(zip(texts, pairs, strict=True)))
        tokenizer.no_truncation()
        assert found.ids_N.tolist() == [id for one in expected for id in one.ids]
        assert found.lengths.tolist() == [*map(len, expected)]
        assert found.n_truncated == sum(bool(one.overflowing) for one in expected)
        if pairs is not None:
            assert found.segments_N is not None
            assert found.segments_N.tolist() == [segment for one in expected for segment in one.type_ids]

    check()


@pytest.mark.parametrize("long", Long)
def test_with_a_table_of_words_or_without_all_is_the_same(long):
    tokenizer, cutting = made("ours"), Cutting(long, stride=5, windows=3)
    texts = [" ".join(LEARNT[0].split()[: n % 11] * (n % 5)) for n in range(200)]
    with_words, without = (
        encode(tokenizer, texts, None, None, 12, cutting, one) for one in (Words(tokenizer).look_up, None)
    )
    assert with_words.ids_N.tolist() == without.ids_N.tolist()
    assert with_words.offsets.tolist() == without.offsets.tolist()
    assert with_words.n_truncated == without.n_truncated > 0
    assert (with_words.windows is None) is (without.windows is None) is (long is not Long.windows)


def test_a_tokenizer_of_which_the_steps_say_too_much_reads_whole_texts(monkeypatch, warned):
    tokenizer = made("ours, characters")  # reads spaces
    monkeypatch.setattr(table, "parting_of", lambda _: Parting.spaces)  # it is not
    kept = Words(tokenizer)
    for _ in range(2):
        assert kept.read(["a b", "c"]) == [alone(tokenizer, "a b"), alone(tokenizer, "c")]
    assert kept.parting is Parting.unknown
    assert warned == ["the tokenizer reads words otherwise in texts: texts are read as a whole, which is slower"]


def test_the_table_holds_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(table, "MOST_WORDS", 50)
    tokenizer = made("ours")
    kept = Words(tokenizer)
    for start in range(0, 400, 20):
        texts = [f"film {at} {'x' * 70}{at}" for at in range(start, start + 20)]
        assert kept.read(texts) == [alone(tokenizer, text) for text in texts]
        assert len(kept.known) <= 50 + 2 * 20
        assert max(map(len, kept.known)) <= table.LONGEST, "a text without spaces is no word"


def test_words_that_are_known_are_not_read_again(monkeypatch):
    kept = Words(made("ours"))
    expected = kept.read(LEARNT)
    monkeypatch.setattr(table, "read_whole", None)
    assert kept._read(LEARNT) == expected


STRANGE = {  # single and pair
    "repeated": "[CLS] $A [SEP] $A",
    "a mark between": "$A [SEP] $A [SEP]",
}


@pytest.mark.parametrize("template", STRANGE.values(), ids=STRANGE)
def test_a_tokenizer_that_repeats_a_text_reads_whole_texts(template):
    twice = Tokenizer.from_str(made("ours").to_str())
    twice.encode_special_tokens = True
    twice.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    assert Words(twice).frame(pairs=False) is None
    found = encode(twice, ["a film", "", "bien"], None, None, 30, look_up=Words(twice).look_up)
    assert found.ids_N.tolist() == [id for text in ("a film", "", "bien") for id in twice.encode(text).ids]


def test_a_tokenizer_without_a_letter_of_the_probe_reads_whole_texts():
    bare = Tokenizer(models.BPE({"<": 0, ">": 1, "\u0436": 2}, []))
    bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    bare.post_processor = processors.TemplateProcessing(single="< $A >", special_tokens=[("<", 0), (">", 1)])
    texts = ["\u0436\u0436", "a", "\u0436"]
    assert encode(bare, texts, None, None, 9, look_up=Words(bare).look_up).ids_N.tolist() == [0, 2, 2, 1, 0, 1, 0, 2, 1]


NORMALIZER = normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False, lowercase=True)])


@given(TEXTS)
def test_words_are_counted_as_they_are_in_whole_texts(texts: list[str]):
    rows, parts = Rows(texts, None, [0] * len(texts), "test", range(len(texts))), pre_tokenizers.BertPreTokenizer()
    whole = [parts.pre_tokenize_str(NORMALIZER.normalize_str(text)) for text in texts]
    assert _count_words(rows, NORMALIZER, parts) == Counter(word for words in whole for word, _ in words)


@pytest.mark.parametrize("most", [1, 2**20])
def test_wordpiece_learns_what_it_would_learn_from_whole_texts(most, monkeypatch):
    monkeypatch.setattr("manyheads.data.tokenizer.MAX_HELD", most)
    texts = [*LEARNT, *(" ".join(ODD[at % 7 : at % 50]) for at in range(300))]
    letters = Counter("".join(map(NORMALIZER.normalize_str, texts)))
    alphabet = [letter for letter in letters if not letter.isspace()]
    kept = sorted(sorted(alphabet, key=lambda letter: (-letters[letter], letter))[:125])
    learner = Tokenizer(models.BPE())
    learner.normalizer, learner.pre_tokenizer = NORMALIZER, pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[*SPECIAL, *kept, *(f"##{letter}" for letter in kept)],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    rows = Rows(texts, None, [0] * len(texts), "test", range(len(texts)))
    assert train_tokenizer(rows, TokenizerConfig(vocab_size=500)).get_vocab() == learner.get_vocab()


def test_a_word_that_wordpiece_cannot_read_teaches_it_nothing():
    """Such as a picture in base64: its merges would be learnt for hours."""
    word, config = "xy" * MAX_LETTERS, TokenizerConfig(vocab_size=90)
    rows = Rows(["a good film", "a bad film", word], None, [0, 0, 0], "test", range(3))
    learnt = train_tokenizer(rows, config)
    assert learnt.get_vocab() == train_tokenizer(rows.pick([0, 1]), config).get_vocab()
    assert learnt.encode(word).tokens == ["[CLS]", "[UNK]", "[SEP]"]


@pytest.mark.parametrize("kind", [TokenizerKind.bpe, TokenizerKind.unigram])
def test_a_word_that_is_no_writing_teaches_bpe_and_unigram_nothing_and_long_ones_are_learnt_in_parts(kind):
    random, config = Random(0), TokenizerConfig(kind=kind, vocab_size=400)
    picture, chinese = (
        "".join(random.choices(letters, k=n)) for letters, n in (("goadfilm", 300_000), ("日本語文", 2500))
    )
    rows = Rows(["a good film", "a bad film", chinese, picture], None, [0] * 4, "test", range(4))
    learnt, known = train_tokenizer(rows, config), train_tokenizer(rows.pick([0, 1, 2]), config)
    assert learnt.get_vocab() == known.get_vocab()
    assert learnt.pre_tokenizer.pre_tokenize_str(picture)[0][1] == (0, len(picture))
    assert len(known.encode(chinese).ids) < len(chinese) * (0.8 if kind is TokenizerKind.unigram else 2)
