"""Tokenizers with fewer entries: read by the library itself, which is the reference."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from manyheads.data.rows import Rows
from manyheads.data.tokenizer import kept_ids, read_marks_as_text
from manyheads.plugins.trim.trimming import letters_of, used_names, with_entries

WORDS = ["the", "theatre", "was", "thin", "then", "other", "bathers", "gathered", "rather", "further", "afar"]
WORDS += ["faring", "fairly", "unfair", "affairs"]
CORPUS = [" ".join(WORDS[at:] + WORDS[:at]) for at in range(len(WORDS))] * 3 + ["q z é ß 語 語語 ##x </w> ▁▁"]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
BYTES = [f"<0x{at:02X}>" for at in range(256)]
TEXT = st.text(alphabet="aefhirtuqzé語☃ǆ \n#▁", max_size=30) | st.lists(st.sampled_from([*WORDS, "[SEP]"])).map(
    " ".join
)


def finished(tokenizer: Tokenizer, kind: str) -> Tokenizer:
    tokenizer.add_special_tokens(MARKS)
    ids = {name: tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")}
    if kind == "bert":
        processor: Any = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    elif kind == "roberta":
        processor = processors.RobertaProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    else:
        processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[*ids.items()]
        )
    tokenizer.post_processor = processors.Sequence([processor]) if kind == "sequence" else processor
    assert not read_marks_as_text(tokenizer)
    return tokenizer


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=MARKS))
    content = json.loads(tokenizer.to_str())  # each letter in both forms, as BERT has them
    letters = sorted({letter for text in CORPUS for letter in text if not letter.isspace()})
    for letter in letters:
        for name in (letter, f"##{letter}"):
            content["model"]["vocab"].setdefault(name, len(content["model"]["vocab"]))
    return finished(Tokenizer.from_str(json.dumps(content)), "bert")


def bpe(kind: str, **options: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", **options))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    shared = {name: value for name, value in options.items() if name.endswith(("prefix", "suffix"))}
    trainer = trainers.BpeTrainer(vocab_size=140, special_tokens=MARKS, **shared)
    tokenizer.train_from_iterator(CORPUS, trainer)
    content = json.loads(tokenizer.to_str())
    for name in BYTES * bool(options.get("byte_fallback")):
        content["model"]["vocab"][name] = len(content["model"]["vocab"])
    return finished(Tokenizer.from_str(json.dumps(content)), kind)


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=360, special_tokens=MARKS, initial_alphabet=alphabet)
    )
    return finished(tokenizer, "roberta")


def unigram(*, byte_fallback: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=110, special_tokens=MARKS, unk_token="[UNK]")
    tokenizer.train_from_iterator(CORPUS, trainer)
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"] += [[name, -20.0] for name in BYTES * byte_fallback]
    content["model"]["byte_fallback"] = byte_fallback
    return finished(Tokenizer.from_str(json.dumps(content)), "sequence")


TOKENIZERS = {
    "wordpiece": wordpiece(),
    "bpe": bpe("template"),
    "bpe with ends of words": bpe("template", end_of_word_suffix="</w>"),
    "bpe with insides of words": bpe("template", continuing_subword_prefix="##"),
    "bpe with bytes": bpe("template", byte_fallback=True, fuse_unk=True),
    "byte-level bpe": byte_level(),
    "unigram": unigram(),
    "unigram with bytes": unigram(byte_fallback=True),
}


def rows(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(texts, pairs, [0] * len(texts), "x.csv", [*range(1, len(texts) + 1)])


def trimmed(whole: Tokenizer, texts: list[str], reserve: int = 0) -> tuple[Tokenizer, list[int]]:
    small = with_entries(whole, used_names(whole, rows(texts)), reserve)
    return small, kept_ids(small, whole) or [*range(whole.get_vocab_size())]


def spelt(tokenizer: Tokenizer, text: str) -> str:
    """What the tokens of a text spell, and how many of them are [UNK]."""
    model = json.loads(tokenizer.to_str())["model"]
    inner = model.get("continuing_subword_prefix") or ""
    found, tokens = "", tokenizer.encode(text, add_special_tokens=False).tokens
    for token in tokens:
        letters = [token] if token in BYTES else letters_of(token, model)
        found += "".join(letter.removeprefix(inner) if letter != inner else letter for letter in letters)
    return f"{found} {tokens.count('[UNK]')}"


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(st.lists(TEXT, min_size=1, max_size=4), st.integers(0, 20), TEXT)
def test_training_texts_are_read_alike_and_no_other_gets_an_unknown_word(kind, texts, reserve, other):
    whole = TOKENIZERS[kind]
    small, ids = trimmed(whole, texts, reserve)
    for text in texts:
        for pair in (None, other):
            before, after = whole.encode(text, pair), small.encode(text, pair)
            if pair is None or pair in texts:
                assert [ids[id] for id in after.ids] == before.ids
    assert spelt(small, other) == spelt(whole, other)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_most_entries_go_and_the_rest_keep_their_order(kind):
    whole = TOKENIZERS[kind]
    small, ids = trimmed(whole, ["the then"])
    assert small.get_vocab_size() < whole.get_vocab_size() - 15
    assert sorted(small.get_vocab().values()) == [*range(small.get_vocab_size())]
    assert ids == sorted(ids)
    assert Tokenizer.from_str(small.to_str()).to_str() == small.to_str()


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if "bpe" in kind])
def test_merges_are_closed_and_in_order(kind):
    whole, (small, _) = TOKENIZERS[kind], trimmed(TOKENIZERS[kind], ["the theatre", "affairs"])
    before, after = (json.loads(one.to_str())["model"] for one in (whole, small))
    inner = len(before["continuing_subword_prefix"] or "")
    merges = [tuple(pair) for pair in after["merges"]]
    assert 0 < len(merges) < len(before["merges"])
    kept = {*merges}
    assert [tuple(pair) for pair in before["merges"] if tuple(pair) in kept] == merges
    assert {name for first, second in merges for name in (first, second, first + second[inner:])} <= {*after["vocab"]}


def test_a_reserve_is_of_the_first_entries():
    whole = TOKENIZERS["byte-level bpe"]
    none, some = (trimmed(whole, [], reserve)[0] for reserve in (0, 7))
    merged = [pair[0] + pair[1] for pair in json.loads(whole.to_str())["model"]["merges"]]
    assert some.get_vocab().keys() - none.get_vocab().keys() == {*merged[:7]}
    everything, _ = trimmed(whole, [], 10**6)
    assert everything.get_vocab().keys() == whole.get_vocab().keys()


def test_what_bert_never_uses_is_no_reserve():
    content = json.loads(TOKENIZERS["wordpiece"].to_str())
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = {"[unused0]": 0, **{name: id + 1 for name, id in vocab.items()}}
    for letter in "[]0sd":
        for name in (letter, f"##{letter}"):
            content["model"]["vocab"].setdefault(name, len(content["model"]["vocab"]))
    whole = finished(Tokenizer.from_str(json.dumps(content)), "bert")
    small, _ = trimmed(whole, [], 10**6)
    assert whole.get_vocab().keys() - small.get_vocab().keys() == {"[unused0]"}


def test_a_letter_without_an_entry_is_refused():
    content = json.loads(TOKENIZERS["wordpiece"].to_str())
    name = next(name for name in content["model"]["vocab"] if name.startswith("##") and "h" in name[3:])
    content["model"]["vocab"]["##h☃"] = content["model"]["vocab"].pop(name)
    with pytest.raises(ValueError, match="an entry for each letter, but the tokenizer of init_from has '##h☃' and no"):
        trimmed(finished(Tokenizer.from_str(json.dumps(content)), "bert"), ["the"])


def test_whole_words_cannot_be_trimmed():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "good": 1}, unk_token="[UNK]"))
    with pytest.raises(ValueError, match=r"needs a tokenizer of pieces .* is of kind WordLevel"):
        trimmed(finished(tokenizer, "template"), ["good"])
