"""A tokenizer: its entries, learning one from the training texts, and holding it against target texts.

Entries are marks, words, and pieces that continue a word. There is one way to learn for each `tokenizer.kind`. Target
texts must fit, and come back from their tokens as they were written.

V entries, gaps between ids counted
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.config.sentences import format_value
from manyheads.data.rows import Rows
from manyheads.data.tokens import MARKS, ROWS_AT_ONCE, SPECIAL, UNKNOWN, Tokens, reach, read_as_text
from manyheads.errors import UserError

MOST_LETTERS = 1000  # of a word; BERT's 100 is a short sentence of Thai, which has no spaces: all of it would be [UNK]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`mask` is the id of a hidden token. Marks such as [CLS] are `special_V`, as are ids without an
    entry. A text has `n_marks` of them around."""

    mask: int
    special_V: Tensor
    n_marks: int


def vocabulary(tokenizer: Tokenizer, *, pairs: bool) -> Vocabulary:
    """Read it.

    Raises:
        UserError: there is no token that could stand for a hidden one.
    """
    mask = next((found for name in MARKS["mask"] if (found := tokenizer.token_to_id(name)) is not None), None)
    if mask is None:
        raise UserError(
            "tokenizer.path names a tokenizer without a token such as [MASK], which stands where a word is hidden: "
            "give another one, or leave it empty to train one"
        )
    entries = tokenizer.get_vocab(with_added_tokens=True)
    special = {at for at, one in tokenizer.get_added_tokens_decoder().items() if one.special} | {mask}
    special_V = torch.ones(reach(tokenizer, pairs=pairs).ids, dtype=torch.bool)
    special_V[[at for at in entries.values() if at not in special]] = False
    return Vocabulary(mask, special_V, tokenizer.num_special_tokens_to_add(pairs))


def reading_mask(tokenizer: Tokenizer, mask: str) -> Tokenizer:
    """A copy for which `mask`, alone of all marks, is the mark where it is typed in a text."""
    content = json.loads(tokenizer.to_str())
    for one in content["added_tokens"]:
        one["special"] &= one["content"] != mask
    copy = Tokenizer.from_str(json.dumps(content))
    copy.add_tokens([AddedToken(mask, normalized=False)])  # where the model has it, but nothing says that it is a mark
    copy.encode_special_tokens = True
    assert copy.token_to_id(mask) == tokenizer.token_to_id(mask)
    return copy


def train_tokenizer(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """A tokenizer learned from `rows` alone: [CLS] text [SEP], or [CLS] text [SEP] second text [SEP].

    The same rows and settings give the same tokenizer. bpe starts from the 256 bytes, so it may hold more entries
    than a smaller `vocab_size` asks for.
    """
    tokenizer = _LEARN[config.kind](rows, config)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    as_marks = read_as_text(tokenizer)
    assert not as_marks
    return tokenizer


def _learn_wordpiece(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """Merges as in BPE, words cut greedily from the left.

    The library's own trainer numbers the letters in the order of a random hash; naming them first makes the result
    the same every time. Each letter takes two entries, alone and inside a word: rare letters of a large alphabet
    become [UNK].
    """
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False, lowercase=config.lowercase)]
    )
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = _letters(rows, learner.normalizer, most=max(config.vocab_size // 4, 1))
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[*SPECIAL, *letters, *(f"##{letter}" for letter in letters)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    learner.train_from_iterator(_texts(rows), trainer)
    tokenizer = Tokenizer(
        models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN, max_input_chars_per_word=MOST_LETTERS)
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = learner.normalizer, learner.pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _learn_bpe(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    lower = [normalizers.Lowercase()] if config.lowercase else []
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *lower])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(rows), trainer)
    return tokenizer


def _learn_unigram(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """Pieces by the library, scores made the same every time: see `_settled`."""
    learner = Tokenizer(models.Unigram())
    lower = [normalizers.Lowercase()] if config.lowercase else []
    learner.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower])
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=config.vocab_size, special_tokens=list(SPECIAL), unk_token=UNKNOWN, show_progress=False
    )
    try:
        learner.train_from_iterator(_texts(rows), trainer)
    except Exception as problem:  # the library raises nothing narrower
        raise UserError(
            f"tokenizer.vocab_size={config.vocab_size} is too small for tokenizer.kind=unigram, which has an entry for "
            f"every letter of the training texts ({problem}): use a larger one, or tokenizer.kind=wordpiece"
        ) from problem
    learned = json.loads(learner.to_str())["model"]["vocab"]
    vocab = [(name, 0.0) for name in SPECIAL] + _settled([piece for piece in learned if piece[0] not in SPECIAL])
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=SPECIAL.index(UNKNOWN)))
    tokenizer.normalizer, tokenizer.pre_tokenizer = learner.normalizer, learner.pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _settled(learned: list[list[Any]]) -> list[tuple[str, float]]:
    """Scores without the two accidents of the library's random hash order, likeliest piece first.

    Sums of floats differ in the 11th digit: they are rounded. Letters it never chose get the lowest score plus
    0.0001, 0.0002, ... as they happen to come: they get the lowest.
    """
    lowest = min((score for _, score in learned), default=0.0)
    n_letters = sum(len(piece) == 1 for piece, _ in learned)
    settled = [
        (piece, round(lowest if len(piece) == 1 and score < lowest + 1e-4 * (n_letters + 1) else score, 6))
        for piece, score in learned
    ]
    return sorted(settled, key=lambda one: (-one[1], one[0]))


def _learn_characters(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """Every character is a token, white space too, so that a text is written back as it was; rare ones are [UNK]."""
    lower = [normalizers.Lowercase()] if config.lowercase else []
    normalizer = normalizers.Sequence(lower)
    letters = _letters(rows, normalizer, most=max(config.vocab_size - len(SPECIAL), 1), spaces=True)
    vocab = {name: index for index, name in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


_LEARN: dict[TokenizerKind, Callable[[Rows, TokenizerConfig], Tokenizer]] = {
    TokenizerKind.wordpiece: _learn_wordpiece,
    TokenizerKind.bpe: _learn_bpe,
    TokenizerKind.unigram: _learn_unigram,
    TokenizerKind.characters: _learn_characters,
}


def _letters(rows: Rows, normalizer: Any, most: int, *, spaces: bool = False) -> list[str]:
    """The most frequent letters of the normalised texts, white space among them or not."""
    counts: Counter[str] = Counter()
    for texts in _texts(rows):
        for text in texts if spaces else ["\n".join(texts)]:
            counts.update(normalizer.normalize_str(text))
    found = [letter for letter in counts if spaces or not letter.isspace()]
    return sorted(sorted(found, key=lambda letter: (-counts[letter], letter))[:most])


def _texts(rows: Rows) -> Iterator[list[str]]:
    for column in (rows.texts, rows.pairs or [], rows.targets or []):
        for start in range(0, len(column), ROWS_AT_ONCE):
            yield column[start : start + ROWS_AT_ONCE]


def marks(tokenizer: Tokenizer) -> tuple[int, int] | None:
    """Ids of the marks before and after a text, if there are just these two: a target starts with one and ends with
    the other."""
    ids = tokenizer.encode("").ids
    return (ids[0], ids[1]) if len(ids) == 2 and ids[0] != ids[1] else None


def check_marks(tokenizer: Tokenizer) -> None:
    """A model needs a mark to start from, and one to end with.

    Raises:
        UserError: the tokenizer has not one mark before a text and another after it.
    """
    if marks(tokenizer) is None:
        raise UserError(
            "tokenizer.path names a tokenizer that does not put one mark before a text and another after it, as a "
            "target needs: give another one, or leave it empty to train one"
        )


def decode(tokenizer: Tokenizer, ids: list[list[int]]) -> list[str]:
    """The texts of token ids; special tokens are left out, and white space at both ends."""
    return [text.strip() for text in tokenizer.decode_batch(ids, skip_special_tokens=True)]


def same_text(text: str, other: str) -> bool:
    """Whether two texts read the same: in Unicode's composed form, without white space at both ends."""
    return text == other or _one_spelling(text) == _one_spelling(other)


def check_lengths(rows: Rows, targets: Tokens, tokenizer: Tokenizer, max_length: int) -> None:
    """No target may be cut, as the model would learn to stop in the middle.

    Raises:
        UserError: one is longer than `max_length` tokens; names its row.
    """
    if not targets.n_truncated:
        return
    assert rows.targets is not None
    full = (targets.lengths == max_length).nonzero().flatten().tolist()
    lengths = {at: len(tokenizer.encode(rows.targets[at])) for at in full}
    first = next(at for at in full if lengths[at] > max_length)
    raise UserError(
        f"{rows.source}, row {rows.numbers[first]}: the target has {lengths[first]} tokens with its marks, more than "
        f"data.max_length={max_length}: use data.max_length={max(lengths.values())}, as the longest has, or shorten it"
    )


def check_spelling(rows: Rows, targets: Tokens, tokenizer: Tokenizer, split: str) -> list[str]:
    """Notes on the targets that tokens cannot spell, such as letters that no training text has.

    Raises:
        UserError: there are such targets in the training split.
    """
    assert rows.targets is not None
    spoilt: list[tuple[int, str]] = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = range(start, min(start + ROWS_AT_ONCE, len(rows)))
        bounds = targets.offsets[start : some.stop + 1].tolist()
        ids = [targets.ids_N[a:b].tolist() for a, b in pairwise(bounds)]
        written = decode(tokenizer, ids)
        spoilt += [(at, text) for at, text in zip(some, written, strict=True) if not same_text(rows.targets[at], text)]
    if not spoilt:
        return []
    first, text = spoilt[0]
    found = (
        f"{rows.source}, row {rows.numbers[first]}: the target '{format_value(rows.targets[first])}' comes back from "
        "its "
        f"tokens as '{format_value(text)}' ({len(spoilt):,} of {len(rows):,} targets change)"
    )
    if split == "train":
        raise UserError(
            f"{found}: use tokenizer.kind=bpe or tokenizer.kind=characters with tokenizer.lowercase=false, "
            "or a larger tokenizer.vocab_size"
        )
    return [f"{split}: {found}: such rows cannot be answered right"]


def _one_spelling(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
