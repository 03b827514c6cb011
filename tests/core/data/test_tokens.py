"""Tokenizers are learned the same way every time; tokens are what the tokenizer says, flat."""

import json
import time
from itertools import chain
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from manyheads.config import Cutting, Long, TokenizerConfig, TokenizerKind
from manyheads.data.formats.demo import demo_splits
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import (
    SPECIAL,
    copy_tokenizer,
    load_tokenizer,
    names_of_marks,
    prefix_of,
    tokenizer_sizes,
    train_tokenizer,
)
from manyheads.data.tokens import encode


def rows_of(texts: list[str], pairs: list[str] | None = None) -> Rows:
    return Rows(texts, pairs, [0] * len(texts), "test", range(1, len(texts) + 1))


DEMO = rows_of([text for text, _ in demo_splits()["train"][:800]])
KINDS = list(TokenizerKind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_spaces_is_cut_into_pieces(kind):
    syllables = ["สวัส", "ดี", "ครับ", "ผม", "ชอบ", "อา", "หาร", "ไทย"]
    texts = ["".join(syllables[(at * by) % 8] for at in range(60)) for by in (1, 3, 5, 7)]  # 130 letters and more
    tokenizer = train_tokenizer(rows_of(texts), TokenizerConfig(kind=kind, vocab_size=400))
    pieces = tokenizer.encode("".join(syllables[at * at % 8] for at in range(60))).tokens[1:-1]
    assert len(pieces) > 1
    assert "[UNK]" not in pieces


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_frame_a_text(kind):
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(kind=kind, vocab_size=600))
    assert [tokenizer.token_to_id(name) for name in SPECIAL] == [0, 1, 2, 3, 4]
    one, two = tokenizer.encode("The check cleared."), tokenizer.encode("The check", "the station")
    assert (one.ids[0], one.ids[-1]) == (2, 3)
    assert (two.ids[0], two.ids[-1], two.ids.count(3)) == (2, 3, 2)
    middle = two.ids.index(3)
    assert two.type_ids == [0] * (middle + 1) + [1] * (len(two.ids) - middle - 1)
    assert tokenizer.get_vocab_size() <= 600
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


TYPED = ["a [SEP] b", "[SEP]", "x[MASK][CLS]y", "the [PAD] film [UNK]", "</s><s>", "<mask> a<pad>"]


def unnamed(tokenizer: Tokenizer) -> Tokenizer:
    """The same, with marks whose names are in no text, so that in `TYPED` it can but read text."""
    content = json.loads(tokenizer.to_str())
    for step in (content["pre_tokenizer"] or {}).get("pretokenizers", []):
        if "(?=" in str(step):
            content["pre_tokenizer"]["pretokenizers"].remove(step)
    text = json.dumps(content)
    for name in names_of_marks(tokenizer):
        text = text.replace(json.dumps(name), json.dumps(f"\ue000{name[1:-1]}\ue000"))
    return Tokenizer.from_str(text)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_marks_that_are_typed_in_a_text_are_text(kind, lowercase, tmp_path):
    """[SEP] and others, in our own tokenizers, alone and in pairs, learnt here or read from a file."""
    rows = rows_of([*DEMO.texts, *["[ ] < / > A C D E K L M N P S U"] * 9])
    learnt = train_tokenizer(rows, TokenizerConfig(kind=kind, vocab_size=700, lowercase=lowercase))
    learnt.save(str(tmp_path / "tokenizer.json"))
    for tokenizer in (learnt, load_tokenizer(tmp_path), copy_tokenizer(learnt)):
        expected = [one.ids for one in unnamed(learnt).encode_batch(TYPED)]
        tokens = encode(tokenizer, TYPED, None, None, 512)
        assert [ids.tolist() for ids in tokens.ids_N.split(tokens.offsets.diff().tolist())] == expected
        pair = encode(tokenizer, ["a [SEP] b"], ["[CLS][SEP]"], None, 512)
        assert pair.ids_N.tolist() == unnamed(learnt).encode("a [SEP] b", "[CLS][SEP]").ids
        assert pair.ids_N.tolist().count(SPECIAL.index("[SEP]")) == 2
    assert load_tokenizer(tmp_path, reads_marks=True).encode("[SEP]").ids == [2, 3, 3]


def of_roberta() -> Tokenizer:
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120a", "<mask>"]
    tokenizer = Tokenizer(models.BPE({name: at for at, name in enumerate(vocab)}, [("\u0120", "a")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_special_tokens([*vocab[:4], AddedToken("<mask>", lstrip=True)])
    return tokenizer


def of_xlm_roberta() -> Tokenizer:
    """The model has the marks as pieces of the highest score."""
    vocab = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab += [(piece, -float(at)) for at, piece in enumerate(["\u2581", *"abfhilmtexys<>/[]CLSEPMADUNK"], 2)]
    tokenizer = Tokenizer(models.Unigram([*vocab, ("<mask>", 0.0)], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    return tokenizer


def of_words() -> Tokenizer:
    """Words between white space, whose file does not say what is a mark; [CLS] is added, but not as one."""
    vocab = [*SPECIAL, "a", "b", "film"]
    tokenizer = Tokenizer(models.WordLevel({name: at for at, name in enumerate(vocab)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_tokens(["[CLS]"])
    return tokenizer


def of_modernbert() -> Tokenizer:
    """The model does not have the marks, and entries that are none come after them."""
    vocab = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({name: at for at, name in enumerate(vocab)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True)])
    tokenizer.add_tokens(["[unused0]"])
    marks = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
    )
    return tokenizer


TOKENIZERS = {"roberta": of_roberta, "xlm-roberta": of_xlm_roberta, "words": of_words, "modernbert": of_modernbert}


@pytest.mark.parametrize("family", TOKENIZERS)
def test_a_second_mark_between_two_texts_is_known(family):
    """By the tokenizer, not by its id, which a text may hold too, and by which a repeated word would be one."""
    tokenizer = TOKENIZERS[family]()
    one, both = tokenizer.encode("a a", add_special_tokens=False).ids, encode(tokenizer, ["a a"], ["a a"], None, 512)
    n_marks = len(tokenizer.encode("a a")) - len(one)
    surplus = [at for at, segment in enumerate(both.segments_N.tolist()) if segment & 4]
    assert surplus == ([n_marks + len(one)] if "roberta" in family else [])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    assert encode(tokenizer, ["a a"], ["a"], None, 512).segments_N.max() < 4


@pytest.mark.parametrize("family", TOKENIZERS)
def test_marks_that_are_typed_in_a_text_are_text_to_the_tokenizers_of_weights(family, tmp_path):
    given = TOKENIZERS[family]()
    given.save(str(tmp_path / "tokenizer.json"))
    for text in TYPED:
        tokens = encode(load_tokenizer(tmp_path), [text], [text], None, 512)
        expected = unnamed(given).encode(text, text).ids
        if family == "words":  # they end where a mark is parted: both parts of it are unknown
            special = [given.token_to_id(name) for name in names_of_marks(given) if name != "[UNK]"]
            assert sum(at in special for at in tokens.ids_N.tolist()) == 3
        else:
            assert tokens.ids_N.tolist() == expected
    before = load_tokenizer(tmp_path, reads_marks=True)
    assert before.to_str() == given.to_str()
    sep = names_of_marks(given)[1]
    assert before.encode(sep).ids.count(given.token_to_id(sep)) == 2


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "modernbert"])
def test_a_prefix_is_put_before_each_text_wherever_the_tokenizer_goes(family, tmp_path):
    TOKENIZERS[family]().save(str(tmp_path / "tokenizer.json"))
    plain = load_tokenizer(tmp_path)
    prefixed = load_tokenizer(tmp_path, prefix="ab: ")
    texts = ["a film", "[SEP] </s> film", " a", "", "\u00e9", "a [unused0] b", "[unused0] b"]
    expected = [plain.encode(f"ab: {text}" if text else "").ids for text in texts]
    saved = tmp_path / "again"
    saved.mkdir()
    prefixed.save(str(saved / "tokenizer.json"))
    for tokenizer in (prefixed, copy_tokenizer(prefixed), load_tokenizer(saved)):
        assert [tokenizer.encode(text).ids for text in texts] == expected
        assert encode(tokenizer, texts, None, None, 512).ids_N.tolist() == list(chain.from_iterable(expected))
    assert prefixed.encode("a", "b").ids == plain.encode("ab: a", "ab: b").ids
    assert (prefix_of(plain), prefix_of(prefixed)) == ("", "ab: ")
    with pytest.raises(
        ValueError, match=r"^tokenizer\.prefix='x', but the tokenizer puts 'ab: ' before each text already"
    ):
        load_tokenizer(saved, prefix="x")
    load_tokenizer(tmp_path, prefix="x" * 500)


def test_a_mark_that_cannot_but_be_read_is_refused(tmp_path):
    words = {"[UNK]": 0, "|": 1, "a": 2}
    one = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    one.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    one.post_processor = processors.TemplateProcessing(single="| $A |", special_tokens=[("|", 1)])
    one.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"reads '\|' that is typed in a text as its mark of that name: give another"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_text_survives_the_round_trip(kind):
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(kind=kind, vocab_size=1500, lowercase=False))
    for text in DEMO.texts[:50]:
        assert tokenizer.decode(tokenizer.encode(text).ids).strip().replace(" ", "") == text.replace(" ", "")


def learned_here() -> list[str]:
    return [train_tokenizer(DEMO, TokenizerConfig(kind=kind, vocab_size=700)).to_str() for kind in KINDS]


def test_another_process_learns_the_same_tokenizers(python):
    code = "import json; from tests.core.data.test_tokens import learned_here; print(json.dumps(learned_here()))"
    done = python.run("-c", code)
    assert done.returncode == 0, done.stderr
    for there, here in zip(json.loads(done.stdout), learned_here(), strict=True):
        assert json.loads(there) == json.loads(here)


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_text_is_learned_from_too(kind):
    rows = rows_of(["aaa bbb"] * 20, ["zyzzyva quagga"] * 20)
    tokenizer = train_tokenizer(rows, TokenizerConfig(kind=kind, vocab_size=400))
    assert SPECIAL.index("[UNK]") not in tokenizer.encode("zyzzyva").ids


def test_lower_casing_is_a_choice():
    rows = rows_of(["Check the Station"] * 5)
    lower, exact = (train_tokenizer(rows, TokenizerConfig(lowercase=choice)) for choice in (True, False))
    assert lower.encode("STATION Check").ids == lower.encode("station check").ids
    assert exact.encode("Check").ids != exact.encode("check").ids


def test_accents_are_kept():
    tokenizer = train_tokenizer(rows_of(["más mas"] * 5), TokenizerConfig())
    assert tokenizer.encode("más").ids != tokenizer.encode("mas").ids
    assert tokenizer.encode("ma\u0301s").ids == tokenizer.encode("más").ids


def test_tokens_are_the_tokenizers_own_flattened():
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(vocab_size=600))
    texts = [*DEMO.texts[:5000], "U\u0085x and\u2028more"]
    tokens = encode(tokenizer, texts, None, list(range(len(texts))), 512)
    assert len(tokens) == len(texts)
    assert (tokens.ids_N.dtype, tokens.offsets.dtype, tokens.labels.dtype) == (torch.int32, torch.int64, torch.int32)
    assert tokens.segments_N is None
    assert tokens.n_truncated == 0
    for row in (0, 1, len(texts) - 1):
        ids = tokens.ids_N[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
        assert ids == tokenizer.encode(texts[row]).ids
        assert tokens.lengths[row] == len(ids)
    assert tokens.labels.tolist() == list(range(len(texts)))


def test_long_texts_are_cut_and_counted():
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(vocab_size=600))
    exact = "station " * 6
    tokens = encode(tokenizer, [exact, exact + "station", "station"], None, None, 8)
    assert tokens.lengths.tolist() == [8, 8, 3]
    assert tokens.n_truncated == 1
    assert tokens.ids_N[[0, 7]].tolist() == [2, 3]
    assert len(tokenizer.encode("station " * 50).ids) == 52


def test_of_a_pair_the_longer_text_is_cut():
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(vocab_size=600))
    tokens = encode(tokenizer, ["station " * 30], ["check"], [1], 10)
    assert tokens.lengths.tolist() == [10]
    assert tokens.segments_N is not None
    assert tokens.segments_N.tolist() == [0] * 8 + [1, 1]
    assert tokens.n_truncated == 1


def test_no_text_gives_no_tokens():
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(vocab_size=600))
    tokens = encode(tokenizer, [], None, None, 8)
    assert (len(tokens), tokens.ids_N.numel()) == (0, 0)


def test_a_length_without_room_for_text_is_refused():
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(vocab_size=600))
    sentence = r"^data\.max_length=3 leaves no room next to the special tokens: use a larger one$"
    with pytest.raises(ValueError, match=sentence):
        encode(tokenizer, ["a"], ["b"], None, 3)


def test_a_loaded_tokenizer_neither_pads_nor_cuts(tmp_path):
    tokenizer = train_tokenizer(DEMO, TokenizerConfig(vocab_size=600))
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path / "tokenizer.json", tmp_path):
        assert len(load_tokenizer(path).encode("station " * 20).ids) == 22


@pytest.fixture
def written(tmp_path):
    """Writes a tokenizer of seven entries, changed, as a stranger might."""

    def write(change) -> Path:
        tokenizer = train_tokenizer(rows_of(["a b"]), TokenizerConfig(vocab_size=16))
        content = json.loads(tokenizer.to_str())
        change(content)
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(content))
        return path

    return write


def test_ids_with_gaps_count_as_far_as_they_reach(written):
    def skip(content) -> None:
        content["model"]["vocab"]["far"] = 900

    tokenizer = load_tokenizer(written(skip))
    assert tokenizer.get_vocab_size() < 20
    assert tokenizer_sizes(tokenizer) == (901, 1)
    assert tokenizer_sizes(tokenizer, pairs=True) == (901, 2)


def test_marks_beyond_the_entries_count_too(written):
    def mark(content) -> None:
        content["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [77]

    assert tokenizer_sizes(load_tokenizer(written(mark))).n_ids == 78


REMEDY = "give another one, or leave it empty to train one"


@pytest.mark.parametrize(
    ("change", "pairs", "sentence"),
    [
        (
            lambda content: content["model"]["vocab"].update(far=1_000_000),
            False,
            f"gives the id 1,000,000, but ids must be below 1,000,000: {REMEDY}",
        ),
        (
            lambda content: content["post_processor"]["pair"][3]["Sequence"].update(type_id=7),
            True,
            f"marks texts by segment 7, but a pair has segments 0 and 1: {REMEDY}",
        ),
        (
            lambda content: content["model"].update(unk_token="gone"),
            False,
            f"cannot be used, as it fails on a text (WordPiece error: Missing [UNK] token from the "
            f"vocabulary): {REMEDY}",
        ),
    ],
)
def test_a_tokenizer_no_model_can_follow_is_refused(written, change, pairs, sentence):
    path = written(change)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        load_tokenizer(path, pairs=pairs)
    assert str(caught.value) == f"tokenizer.path={path} {sentence}"


def test_a_file_too_large_for_a_tokenizer_is_not_read(tmp_path):
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(2**29)  # sparse: it takes no room
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        load_tokenizer(path)
    assert str(caught.value) == f"tokenizer.path={path} is larger than 128 MiB: name a tokenizer.json"


MANY = {  # what stands around so many entries, and one of them
    "entries of one id": ('{"model": {"type": "WordLevel", "vocab": {', '"a": 1', "}}}", 1),
    "added entries": ('{"added_tokens": [', '{"id": 1, "content": ""}', "]}", 1),
    "scores": ('{"model": {"type": "Unigram", "vocab": [', '["a", 0]', "]}}", 1),
    "merges": ('{"model": {"type": "BPE", "vocab": {}, "merges": [', '"a b"', "]}}", 3),
}


@pytest.mark.parametrize("kind", MANY)
def test_millions_of_entries_are_counted_before_they_are_read(tmp_path, kind, monkeypatch):
    path = tmp_path / "tokenizer.json"
    head, entry, tail, times = MANY[kind]
    path.write_text(head + f"{entry}, " * (times * 1_300_000 - 1) + entry + tail)
    monkeypatch.setattr("manyheads.data.tokens.Tokenizer", None)
    began = time.monotonic()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        load_tokenizer(path)
    assert (
        str(caught.value) == f"tokenizer.path={path} lists more than 1,000,000 entries: name another one, or train one"
    )
    assert time.monotonic() - began < 10


def test_a_vocabulary_too_small_for_the_letters_is_one_sentence():
    rows = rows_of([f"{chr(letter)} letter" for letter in range(97, 500)])
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        train_tokenizer(rows, TokenizerConfig(kind=TokenizerKind.unigram, vocab_size=64))
    assert str(caught.value) == (
        "tokenizer.vocab_size=64 is too small for tokenizer.kind=unigram, which has an entry for every letter of the "
        "training texts (The vocabulary is not large enough to contain all chars): use a larger one, "
        "or tokenizer.kind=wordpiece"
    )


def test_what_is_no_tokenizer_is_refused(tmp_path):
    bare = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    bare.save(str(tmp_path / "bare.json"))
    (tmp_path / "broken.json").write_text('{"a": 1}')
    for name, sentence in {
        "missing.json": "does not exist: name a tokenizer.json, or leave it empty to train one",
        "broken.json": "is not a tokenizer.json",
        "bare.json": "puts no marks such as [CLS] and [SEP] around a text: give one with a post-processor, "
        "or leave it empty to train one",
    }.items():
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is checked below
            load_tokenizer(tmp_path / name)
        assert str(caught.value).startswith(f"tokenizer.path={tmp_path / name} {sentence}")
        assert "\n" not in str(caught.value)


def framed(processor) -> Tokenizer:
    """Words a, b and c, framed by RoBERTa's marks as `processor` says."""
    made = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "[UNK]": 2, "a": 3, "b": 4, "c": 5}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processor
    return made


FRAMES = {
    "roberta": (processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), 0),
    "bert": (
        processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s>:1 $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 1)]
        ),
        1,
    ),
}


@pytest.mark.parametrize("long", [Long.cut, Long.both])
@pytest.mark.parametrize("kind", FRAMES)
def test_which_text_a_token_is_of_is_known_whatever_the_type_ids(kind, long):
    tokenizer, second = framed(FRAMES[kind][0]), 1 if FRAMES[kind][1] else 3
    pairs = [("a b", "c"), ("a", ""), ("", "b c"), ("a b c", "a b c a b c")]
    tokens = encode(tokenizer, *map(list, zip(*pairs, strict=True)), None, 9, Cutting(long=long))
    found = [one.tolist() for one in tokens.segments_N.split(tokens.lengths.tolist())]
    between = second if kind == "bert" else 4  # of the two marks between the texts the second
    expected = [(2, 1), (1, 0), (0, 2), (2, 3)]
    assert len(found[3]) == 9
    assert found == [[0] * (1 + n) + [0, between] + [second] * (m + 1) for n, m in expected]
