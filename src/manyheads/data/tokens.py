"""Text to token ids. Torch and tokenizers only, so that a shipped model needs no more.

N tokens of all rows, end to end; row i is `ids_N[offsets[i]:offsets[i + 1]]`
"""

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.data.rows import Rows

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")  # their ids are 0 to 4
ROWS_AT_ONCE = 4096
MOST_BYTES = 2**28  # of a tokenizer.json
MOST_IDS = 2_000_000  # as of tokenizer.vocab_size
PROBE = "a b\u2603 \U0001f642 zzqx"  # words, and what no tokenizer has an entry for


@dataclass(slots=True)
class Tokens:
    """Token ids of all rows of a split: `ids_N` int32, `offsets` int64 of n_rows + 1, `segments_N` uint8 or None
    (0 the first text, 1 the second), `labels` int64 class ids. `n_truncated` rows were cut to the length allowed."""

    ids_N: Tensor
    offsets: Tensor
    segments_N: Tensor | None
    labels: Tensor
    n_truncated: int = 0

    def __len__(self) -> int:
        return self.offsets.numel() - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row: `(n_rows,)` int64."""
        return self.offsets.diff()


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


class Reach(NamedTuple):
    """How many ids (0, 1, ...) and segments a tokenizer may give; gaps count."""

    ids: int
    segments: int


def reach(tokenizer: Tokenizer, *, pairs: bool = False) -> Reach:
    """Ids of all entries and of the marks around a text: a stranger's tokenizer may give more ids than it has entries.

    Raises:
        ValueError: it fails on a text.
    """
    try:
        probe = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    except BaseException as problem:  # a panic of the library is no Exception, and its errors are nothing narrower
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise ValueError(f"it fails on a text ({problem})") from problem
    largest = max([*tokenizer.get_vocab(with_added_tokens=True).values(), *probe.ids], default=0)
    return Reach(largest + 1, max(probe.type_ids, default=0) + 1)


def load_tokenizer(path: str | Path, *, pairs: bool = False) -> Tokenizer:
    """A tokenizer from a `tokenizer.json`, or from a folder that holds one; its padding and truncation are reset.

    Raises:
        ValueError: no such file, not a tokenizer, one that puts no marks such as [CLS] and [SEP] around a text,
            fails on one, or gives more ids or, to `pairs`, segments than a model has.
    """
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"tokenizer.path={path} does not exist: name a tokenizer.json, or leave it empty to train one")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"tokenizer.path={path} is larger than {MOST_BYTES // 2**20} MiB: name a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as problem:  # the library raises nothing narrower
        raise ValueError(f"tokenizer.path={path} is not a tokenizer.json ({problem}): name one, or train one") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.num_special_tokens_to_add(False) == 0:
        raise ValueError(
            f"tokenizer.path={path} puts no marks such as [CLS] and [SEP] around a text: "
            "give one with a post-processor, or leave it empty to train one"
        )
    _check_reach(tokenizer, path, pairs=pairs)
    return tokenizer


def _check_reach(tokenizer: Tokenizer, path: str | Path, *, pairs: bool) -> None:
    remedy = "give another one, or leave it empty to train one"
    try:
        reached = reach(tokenizer, pairs=pairs)
    except ValueError as problem:
        raise ValueError(f"tokenizer.path={path} cannot be used, as {problem}: {remedy}") from problem
    if reached.ids > MOST_IDS:
        raise ValueError(
            f"tokenizer.path={path} gives the id {reached.ids - 1:,}, but ids must be below {MOST_IDS:,}: {remedy}"
        )
    if reached.segments > 2:
        raise ValueError(
            f"tokenizer.path={path} marks texts by segment {reached.segments - 1}, but a pair has segments 0 and 1: "
            f"{remedy}"
        )


def encode(
    tokenizer: Tokenizer, texts: list[str], pairs: list[str] | None, labels: list[int] | None, max_length: int
) -> Tokens:
    """Token ids of `texts`, each cut to `max_length` tokens, special ones included.

    Of a pair the longer text is cut first. Without `labels` all are 0.
    """
    room = max_length - tokenizer.num_special_tokens_to_add(pairs is not None)
    if room < 1:
        raise ValueError(f"data.max_length={max_length} leaves no room beside the special tokens: use a larger one")
    ids, segments, lengths = array("i"), bytearray(), [0]
    n_truncated = 0
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        for start in range(0, len(texts), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            batch = texts[rows] if pairs is None else list(zip(texts[rows], pairs[rows], strict=True))
            for encoding in tokenizer.encode_batch_fast(batch):
                ids.extend(encoding.ids)
                lengths.append(len(encoding))
                if pairs is not None:
                    segments += bytes(encoding.type_ids)
                if len(encoding) == max_length and encoding.overflowing:
                    n_truncated += 1
    finally:
        tokenizer.no_truncation()
    return Tokens(
        ids_N=torch.frombuffer(ids, dtype=torch.int32) if ids else torch.empty(0, dtype=torch.int32),
        offsets=torch.tensor(list(accumulate(lengths)), dtype=torch.int64),
        segments_N=None if pairs is None else torch.tensor(segments, dtype=torch.uint8),
        labels=torch.tensor(labels if labels is not None else [0] * len(texts), dtype=torch.int64),
        n_truncated=n_truncated,
    )


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
    tokenizer = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN, max_input_chars_per_word=100))
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


_LEARN: dict[TokenizerKind, Callable[[Rows, TokenizerConfig], Tokenizer]] = {
    TokenizerKind.wordpiece: _learn_wordpiece,
    TokenizerKind.bpe: _learn_bpe,
    TokenizerKind.unigram: _learn_unigram,
}


def _letters(rows: Rows, normalizer: Any, most: int) -> list[str]:
    """The most frequent letters of the normalised texts."""
    counts: Counter[str] = Counter()
    for texts in _texts(rows):
        counts.update(normalizer.normalize_str("\n".join(texts)))
    found = [letter for letter in counts if not letter.isspace()]
    return sorted(sorted(found, key=lambda letter: (-counts[letter], letter))[:most])


def _texts(rows: Rows) -> Iterator[list[str]]:
    for column in (rows.texts, rows.pairs or []):
        for start in range(0, len(column), ROWS_AT_ONCE):
            yield column[start : start + ROWS_AT_ONCE]
