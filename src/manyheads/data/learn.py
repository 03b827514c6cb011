"""A tokenizer learned from the training texts, one way for each `tokenizer.kind`."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.data.rows import Rows
from manyheads.data.tokens import ROWS_AT_ONCE, SPECIAL, UNKNOWN

MOST_LETTERS = 1000  # of a word; BERT's 100 is a short sentence of Thai, which has no spaces: all of it would be [UNK]


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
        raise ValueError(
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
