"""A tokenizer: read from a file that may be anybody's and checked, or trained on the training texts.

Entries are marks such as [CLS], words, and pieces that continue a word. There is one way to train for each
`tokenizer.kind`. Torch and tokenizers only, so that a shipped model needs no more.

V entries, gaps between ids counted
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import manyheads.plugin as plugin
from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.config.sentences import format_value, older_tokenizer
from manyheads.data.formats.fields import FIELD
from manyheads.data.ids.terms import UNIT
from manyheads.data.rows import ROWS_AT_ONCE, Rows
from manyheads.errors import UserError

PROBE = "a b\u2603 \U0001f642 zzqx"  # words, and what no tokenizer has an entry for
UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")  # their ids are 0 to 4
MAX_BYTES = 2**27  # of a tokenizer.json
MAX_IDS = 1_000_000  # the bound of tokenizer.vocab_size; each takes the library and us some 400 bytes
MAX_SIGNS = {b":": 1.25 * MAX_IDS, b"[": 1.25 * MAX_IDS, b",": 3.25 * MAX_IDS}  # of entries and merges, in any form
MAX_GROWTH = 64  # times longer that a tokenizer's replacements may make a text
MAX_SPLIT = 1000  # names of marks that are split where they are typed
MAX_HELD = 2**20  # letters of the pieces of texts that are counted before they are parted: 20 MB
PIECE = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")  # what is between spaces and signs of ASCII; or a sign
MAX_LETTERS = 1000  # of a word; BERT's 100 is a short sentence of Thai, which has no spaces: all of it would be [UNK]
# How words are cut that bpe and unigram learn from, and which are left out: merges of one of 3 MB would take hours.
CUT = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(r"\A(?m:.{100000,})"), "removed"), pre_tokenizers.FixedLength(MAX_LETTERS)]
)
OTHERWISE = "give another one, or leave it empty to train one"
MARKS = {  # a tokenizer's own names of them: BERT's, RoBERTa's
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
}


def load_tokenizer(
    path: str | Path, *, pairs: bool = False, reads_marks: bool = False, prefix: str = "", fields: bool = False
) -> Tokenizer:
    """A tokenizer from a `tokenizer.json`, or from a folder that holds one; its padding and truncation are reset.

    Args:
        pairs: it is to encode pairs of texts.
        reads_marks: the name of a mark that is typed in a text is that mark, as models were trained before.
        prefix: from here on put before each text that is not empty, also where the tokenizer is saved.
        fields: from here on it has an entry for `FIELD`, also where it is saved.

    Raises:
        UserError: no such file, not a tokenizer, one that puts no marks such as [CLS] and [SEP] around a text,
            fails on one, gives more ids or, to `pairs`, segments than a model has, cannot but read marks, or has a
            prefix already.
    """
    setting = f"tokenizer.path={path}"
    tokenizer = _read_tokenizer(Path(path).expanduser(), setting)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if hasattr(tokenizer.model, "dropout"):
        tokenizer.model.dropout = None  # of bpe: a text has the same tokens every time
    for step in (tokenizer.normalizer, tokenizer.decoder):
        # Replacements that are replaced again double a text with each line of the file, up to any size.
        if step is not None and _growth(json.loads(step.__getstate__())) > MAX_GROWTH:
            raise UserError(
                f"{setting} makes texts more than {MAX_GROWTH} times longer by what it replaces: {OTHERWISE}"
            )
    if tokenizer.num_special_tokens_to_add(False) == 0:
        raise UserError(
            f"{setting} puts no marks such as [CLS] and [SEP] around a text: give one with a post-processor, or leave "
            "it empty to train one"
        )
    _check_sizes(tokenizer, setting, pairs=pairs)
    if not reads_marks:
        with tokenizer_errors(f"{setting} fails on a text: {OTHERWISE}"):
            names = read_marks_as_text(tokenizer)
        if names:
            raise UserError(
                f"{setting} reads '{format_value(names[0])}' that is typed in a text as its mark of that name: "
                f"{OTHERWISE}"
            )
    if fields:
        add_field_mark(tokenizer, normalized=bool(prefix or prefix_of(tokenizer)))
    if prefix:
        _put_before_texts(tokenizer, prefix)
    return tokenizer


def add_field_mark(tokenizer: Tokenizer, *, normalized: bool = False) -> None:
    """Give `FIELD` an entry of its own, with the spaces around it: it parts the columns of a text.

    Args:
        normalized: it is looked for after the text was normalized: of a tokenizer with a prefix, which else each part
            would have.
    """
    tokenizer.add_tokens([AddedToken(FIELD, lstrip=True, rstrip=True, normalized=normalized, special=False)])


def _put_before_texts(tokenizer: Tokenizer, prefix: str) -> None:
    """As the first step of the tokenizer itself, so that whatever opens its file reads texts alike."""
    if earlier := prefix_of(tokenizer):
        raise UserError(
            f"tokenizer.prefix='{format_value(prefix)}', but the tokenizer puts '{format_value(earlier)}' before each "
            "text already: type tokenizer.prefix= with nothing after it"
        )
    added = [token for token in tokenizer.get_added_tokens_decoder().values() if not token.special]
    texts = [PROBE, *(text for token in added for text in (f"a {token.content} b", f"{token.content} b"))]
    expected = [one.ids for one in tokenizer.encode_batch([prefix + text for text in texts])]
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(prefix)]
    if names := [re.escape(token.content) for token in added if token.normalized]:
        # The library looks for these in texts as normalized as they are themselves: alone, they have no prefix.
        steps.append(normalizers.Replace(Regex(rf"\A{re.escape(prefix)}(?=(?:{'|'.join(names)})\z)"), ""))
    if tokenizer.normalizer is not None:
        steps.append(tokenizer.normalizer)
    tokenizer.normalizer = normalizers.Sequence(steps)
    # Others part a text before it is normalized: each part would have the prefix.
    if [one.ids for one in tokenizer.encode_batch(texts)] != expected:
        raise UserError(
            f"tokenizer.prefix='{format_value(prefix)}', but the tokenizer would not put it at the beginning of texts "
            "alone: type tokenizer.prefix= with nothing after it, and write it into the texts"
        )


def prefix_of(tokenizer: Tokenizer) -> str:
    """What a tokenizer puts before each text. To the library these tokens are of the first letter of the text."""
    if tokenizer.normalizer is None:
        return ""
    state = json.loads(tokenizer.normalizer.__getstate__())
    first, *_ = state.get("normalizers") or [state]
    return first.get("prepend", "")


def _read_tokenizer(path: Path, setting: str) -> Tokenizer:
    """The tokenizer in a file, which may be built to fill the memory: it is looked through before the library is."""
    file = path / "tokenizer.json" if path.is_dir() else path
    for part in plugin.parts("tokenizer").values():
        if (made := plugin.resolve(part.make)(file)) is not None:
            return made
    older = older_tokenizer(file.parent)
    if not file.is_file():
        what = f"has no {file.name}" if path.is_dir() else "does not exist"
        raise UserError(f"{setting} {what}: {older or 'name a tokenizer.json, or leave it empty to train one'}")
    if file.stat().st_size > MAX_BYTES:
        raise UserError(f"{setting} is larger than {MAX_BYTES // 2**20} MiB: name a tokenizer.json")
    content = file.read_bytes()
    if any(content.count(sign) > most for sign, most in MAX_SIGNS.items()):
        raise UserError(f"{setting} lists more than {MAX_IDS:,} entries: name another one, or train one")
    with tokenizer_errors(f"{setting} is not a tokenizer.json: {older or 'name one, or train one'}"):
        if b"charsmap" in content or b"\\u" in content:  # spelt out or not
            _check_tables(json.loads(content))
        return Tokenizer.from_buffer(content)


def _check_tables(part: Any) -> None:
    """A table of characters says how long it is, and the library takes the memory for that before it looks."""
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            _check_tables(inner)
    table = part.get("precompiled_charsmap") if isinstance(part, dict) else None
    if isinstance(table, str):
        table = base64.b64decode(table)
        if int.from_bytes(table[:4], "little") > len(table):
            raise UserError("a table of characters is cut short")


def _growth(step: Any) -> float:
    """How many times longer a text may become by the replacements of a normalizer or decoder."""
    inner = step.get("normalizers") or step.get("decoders") or []
    pattern = step.get("pattern")
    replaced = pattern.get("String", "") if isinstance(pattern, dict) else ""
    put = step.get("content", step.get("prepend")) or ""
    growth = len(put) / len(replaced) if replaced else 1 + len(put)
    if step.get("type") == "Prepend":  # once a text, however long it is
        growth = 1 + len(put) / MAX_GROWTH
    return prod([max(growth, 1.0), *map(_growth, inner)])


def _check_sizes(tokenizer: Tokenizer, setting: str, *, pairs: bool) -> None:
    try:
        sizes = tokenizer_sizes(tokenizer, pairs=pairs)
    except ValueError as problem:
        raise UserError(f"{setting} cannot be used, as {problem}: {OTHERWISE}") from problem
    if sizes.n_ids > MAX_IDS:
        raise UserError(f"{setting} gives the id {sizes.n_ids - 1:,}, but ids must be below {MAX_IDS:,}: {OTHERWISE}")
    if sizes.n_segments > 2:
        raise UserError(
            f"{setting} marks texts by segment {sizes.n_segments - 1}, but a pair has segments 0 and 1: {OTHERWISE}"
        )


class TokenizerSizes(NamedTuple):
    """How many ids (0, 1, ...) and segments a tokenizer may give; gaps count."""

    n_ids: int
    n_segments: int


def tokenizer_sizes(tokenizer: Tokenizer, *, pairs: bool = False) -> TokenizerSizes:
    """Ids of all entries and of the marks around a text: a stranger's tokenizer may give more ids than it has entries.

    Raises:
        UserError: it fails on a text.
    """
    with tokenizer_errors("it fails on a text"):
        probe = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    ids = [*tokenizer.get_vocab(with_added_tokens=True).values(), *probe.ids]
    return TokenizerSizes(max(ids, default=0) + 1, max(probe.type_ids, default=0) + 1)


@contextmanager
def tokenizer_errors(what: str) -> Iterator[None]:
    """Say in a sentence that begins with `what` how the library failed. Its panics are no Exception."""
    try:
        yield
    except BaseException as problem:  # its errors are nothing narrower
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise UserError(f"{what} ({format_value(problem)})") from problem


def read_marks_as_text(tokenizer: Tokenizer) -> list[str]:
    """From here on the name of a mark, such as [SEP], is text where it is typed in one. Returns the names that are read
    as the marks all the same.

    The library can leave marks unread, which tokenizer.json does not keep. Where the model itself has the name as a
    piece, as Unigram has, its first letter is split off before, which the file does keep.
    """
    tokenizer.encode_special_tokens = True
    names = _names_read_as_marks(tokenizer)
    if not names:
        return []
    plain = {token.content for token in tokenizer.get_added_tokens_decoder().values() if not token.special}
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names if name in plain])
    if _names_read_as_marks(tokenizer):
        names = names_of_marks(tokenizer)[:MAX_SPLIT]
        first_letters = "|".join(f"{re.escape(name[:1])}(?={re.escape(name[1:])})" for name in names)
        split = pre_tokenizers.Split(Regex(first_letters), "merged_with_previous")
        before = tokenizer.pre_tokenizer
        tokenizer.pre_tokenizer = split if before is None else pre_tokenizers.Sequence([before, split])
    return _names_read_as_marks(tokenizer)


def names_of_marks(tokenizer: Tokenizer) -> list[str]:
    """Of those around a text, of all that are special, and of those that are called as such are."""
    probe = tokenizer.encode(PROBE)
    names = [name for name, text in zip(probe.tokens, probe.sequence_ids, strict=True) if text is None]
    names += [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    for usual_names in MARKS.values():
        names += [name for name in usual_names if tokenizer.token_to_id(name) is not None]
    return [name for name in dict.fromkeys(names) if name]


def _names_read_as_marks(tokenizer: Tokenizer) -> list[str]:
    """Names of marks that are the mark where they are typed, but for that of all without an entry."""
    unknown = tokenizer.encode(PROBE, add_special_tokens=False).ids
    names = names_of_marks(tokenizer)
    found: list[str] = []
    for name, encoding in zip(names, tokenizer.encode_batch_fast(names, add_special_tokens=False), strict=True):
        mark = tokenizer.token_to_id(name)
        if mark in encoding.ids and mark not in unknown:
            found.append(name)
    return found


def copy_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """One of its own, without padding and truncation, which reads texts alike: the library's own copies do not."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = tokenizer.encode_special_tokens
    copy.no_padding()
    copy.no_truncation()
    return copy


def kept_ids(tokenizer: Tokenizer, whole: Tokenizer) -> list[int] | None:
    """The ids that the entries of a tokenizer have in another, which it was made of: by its own ids, 0 where they have
    gaps. None: its entries and their ids are all those of the other.

    Where the other has no entry for it, `FIELD` begins as the last mark of a text, such as [SEP], and a unit as
    the last token of its words.

    Raises:
        UserError: it has an entry that the other lacks.
    """
    names, known = (one.get_vocab(with_added_tokens=True) for one in (tokenizer, whole))
    if names == known:
        return None
    found = [0] * (max(names.values()) + 1)
    for name, id in names.items():
        if name == FIELD and name not in known:
            found[id] = whole.encode("").ids[-1]
            continue
        if name.startswith(UNIT) and name not in known:
            found[id] = whole.encode(name.strip(UNIT), add_special_tokens=False).ids[-1]
            continue
        if name not in known:
            raise UserError(f"a plugin gives the tokenizer '{format_value(name)}', which the weights do not know")
        found[id] = known[name]
    return found


def train_tokenizer(rows: Rows, config: TokenizerConfig, *, fields: bool = False) -> Tokenizer:
    """A tokenizer trained on `rows` alone: [CLS] text [SEP], or [CLS] text [SEP] second text [SEP]. With `fields` it
    has an entry for `FIELD`.

    The same rows and settings give the same tokenizer. bpe starts from the 256 bytes, so it may hold more entries
    than a smaller `vocab_size` asks for.
    """
    tokenizer = _TRAIN[config.kind](rows, config)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    still_marks = read_marks_as_text(tokenizer)
    assert not still_marks
    if fields:
        add_field_mark(tokenizer)
    return tokenizer


def _train_wordpiece(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """Merges as in BPE, words cut greedily from the left.

    The library's own trainer numbers the letters in the order of a random hash; naming them first makes the result
    the same every time. Each letter takes two entries, alone and inside a word: rare letters of a large alphabet
    become [UNK]. It also normalises every text, which takes most of the time: it is given words that are, instead.
    """
    normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False, lowercase=config.lowercase)]
    )
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words = _count_words(rows, normalizer, pre_tokenizer)
    # Longer words are read as [UNK]. Of an embedded picture of 3 MB merges would be learnt for hours.
    for word in [word for word in words if len(word) > MAX_LETTERS]:
        del words[word]
    counts = Counter[str]()
    for word, n_times in words.items():
        for letter in word:
            counts[letter] += n_times
    letters = _most_frequent(counts, max(config.vocab_size // 4, 1))
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[*SPECIAL, *letters, *(f"##{letter}" for letter in letters)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(_repeated(words), trainer)
    tokenizer = Tokenizer(
        models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN, max_input_chars_per_word=MAX_LETTERS)
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _count_words(rows: Rows, normalizer: Any, pre_tokenizer: Any) -> Counter[str]:
    """How often each word comes. Each different piece of the texts is normalised and parted into words once."""
    words, pieces = Counter[str](), Counter[str]()

    def part() -> None:
        for piece, n_times in pieces.items():
            for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(piece)):
                words[word] += n_times
        pieces.clear()

    for texts in _texts(rows):
        pieces.update(chain.from_iterable(map(bert_pieces, texts)))
        if sum(map(len, pieces)) > MAX_HELD:
            part()
    part()
    return words


def bert_pieces(text: str) -> list[str]:
    """Parts of a text that do not change one another where a `BertPreTokenizer` comes first. It parts texts at white
    space and punctuation; but a sign of ASCII may be composed (NFC) with one that is not and comes after it."""
    return PIECE.findall(text) if text.isascii() else text.split(" ")


def _repeated(words: Counter[str]) -> Iterator[str]:
    """Each word repeated by its count, since the library counts for itself."""
    for word, n_times in words.items():
        for start in range(0, n_times, ROWS_AT_ONCE):
            yield " ".join([word] * min(ROWS_AT_ONCE, n_times - start))


def _train_bpe(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    lower = [normalizers.Lowercase()] if config.lowercase else []
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *lower])
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, CUT])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(rows), trainer)
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def _train_unigram(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """Pieces by the library, scores made the same every time: see `_reproducible_scores`."""
    learner = Tokenizer(models.Unigram())
    lower = [normalizers.Lowercase()] if config.lowercase else []
    learner.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower])
    pre_tokenizer = pre_tokenizers.Metaspace()
    learner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizer, CUT])
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
    vocab = [(name, 0.0) for name in SPECIAL]
    vocab += _reproducible_scores([piece for piece in learned if piece[0] not in SPECIAL])
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=SPECIAL.index(UNKNOWN)))
    tokenizer.normalizer, tokenizer.pre_tokenizer = learner.normalizer, pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _reproducible_scores(learned: list[list[Any]]) -> list[tuple[str, float]]:
    """Scores without the two accidents of the library's random hash order, likeliest piece first.

    Sums of floats differ in the 11th digit: they are rounded. Letters it never chose get the lowest score plus
    0.0001, 0.0002, ... as they happen to come: they get the lowest.
    """
    lowest = min((score for _, score in learned), default=0.0)
    n_letters = sum(len(piece) == 1 for piece, _ in learned)
    scores: list[tuple[str, float]] = []
    for piece, score in learned:
        if len(piece) == 1 and score < lowest + 1e-4 * (n_letters + 1):
            score = lowest
        scores.append((piece, round(score, 6)))
    return sorted(scores, key=lambda one: (-one[1], one[0]))


def _train_characters(rows: Rows, config: TokenizerConfig) -> Tokenizer:
    """Every character is a token, white space too, so that a text is written back as it was; rare ones are [UNK]."""
    lower = [normalizers.Lowercase()] if config.lowercase else []
    normalizer = normalizers.Sequence(lower)
    letters = _letters(rows, normalizer, max(config.vocab_size - len(SPECIAL), 1))
    vocab = {name: index for index, name in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


_TRAIN: dict[TokenizerKind, Callable[[Rows, TokenizerConfig], Tokenizer]] = {
    TokenizerKind.wordpiece: _train_wordpiece,
    TokenizerKind.bpe: _train_bpe,
    TokenizerKind.unigram: _train_unigram,
    TokenizerKind.characters: _train_characters,
}


def _letters(rows: Rows, normalizer: Any, most: int) -> list[str]:
    """The most frequent letters of the normalised texts, white space among them."""
    counts = Counter[str]()
    for texts in _texts(rows):
        for text in texts:
            counts.update(normalizer.normalize_str(text))
    return _most_frequent(counts, most)


def _most_frequent(counts: Counter[str], most: int) -> list[str]:
    """The most frequent letters, in the order of the alphabet."""
    return sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:most])


def _texts(rows: Rows) -> Iterator[list[str]]:
    for column in (rows.texts, rows.pairs or [], rows.targets or []):
        for start in range(0, len(column), ROWS_AT_ONCE):
            yield column[start : start + ROWS_AT_ONCE]


def start_and_end_marks(tokenizer: Tokenizer) -> tuple[int, int] | None:
    """Ids of the marks before and after a text, if there are just these two: a target starts with one and ends with
    the other."""
    ids = tokenizer.encode("").ids
    if len(ids) != 2 or ids[0] == ids[1]:
        return None
    return ids[0], ids[1]
