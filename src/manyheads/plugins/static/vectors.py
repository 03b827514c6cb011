"""Word vectors and the tokenizer of their words, from a text file (word2vec, GloVe, fastText) or a folder of model2vec.

V ids of the tokenizer . n words of a file . D width
"""

import logging
import warnings
from codecs import BOM_UTF8
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.nn import functional as F

from manyheads.config.sentences import format_value
from manyheads.data.tokenizer import load_tokenizer, names_of_marks
from manyheads.errors import UserError
from manyheads.inference.origin import Origin
from manyheads.plugins.static.origins import MARKS, SUFFIXES, TextShape, is_number, open_text, quoted_line, text_shape
from manyheads.training.weights import WORDS, Sizes

LONGEST_LINE = 2**20  # bytes of a line: a file without ends of lines does not fill the memory
LARGEST = float(np.finfo(np.float32).max)
AT_ONCE = 4096  # lines whose numbers are read together
log = logging.getLogger("manyheads")


class WordVectors(NamedTuple):
    """Words, each once, and their vectors `(n, D)`."""

    words: list[str]
    vectors_nD: np.ndarray


def read_table_of_words(origin: Origin, wanted: Sizes) -> dict[str, Tensor]:
    """The table of words that `wanted` names, scaled to a mean square of 1 an element once the network reads it. Marks
    such as [CLS] and words without a vector have zeros.

    Raises:
        UserError: the file or folder is broken, or not of the width that is wanted.
    """
    if origin.folder.is_file():
        vectors_VD = F.pad(torch.from_numpy(read_text(origin.folder).vectors_nD), (0, 0, len(MARKS), 0))
    else:
        vectors_VD = read_folder(origin.folder)
    return {WORDS: scaled(vectors_VD, origin, wanted[WORDS][0])}


def scaled(vectors_VD: Tensor, origin: Origin, n_rows: int) -> Tensor:
    """A table of `n_rows` whose rows, multiplied by √D, have a mean square of 1 an element. Rows of zeros do not count:
    those of marks, of what no word is, and of ids without a vector."""
    tokenizer = load_tokenizer(origin.tokenizer)
    marks = (tokenizer.token_to_id(name) for name in names_of_marks(tokenizer))
    table_VD = F.pad(vectors_VD, (0, 0, 0, max(0, n_rows - len(vectors_VD))))[:n_rows].clone()
    table_VD[[one for one in marks if one is not None and one < n_rows]] = 0
    n_held = int(table_VD.any(1).sum())
    return table_VD * (max(1, n_held) / table_VD.square().sum().clamp(min=1e-12)).sqrt()


def tokenizer_of(path: Path) -> Tokenizer:
    """The tokenizer of a text file of vectors, or of a folder of model2vec, whose own puts no marks around a text."""
    if path.suffix.lower() in SUFFIXES:
        return word_tokenizer(read_text(path).words)
    tokenizer = Tokenizer.from_file(str(path))
    add_marks(tokenizer)
    return tokenizer


def word_tokenizer(words: list[str]) -> Tokenizer:
    """Whole words; in lower case, unless one of them has a capital letter."""
    vocab = {name: at for at, name in enumerate((*MARKS, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))  # noqa: S106 - no password
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if all(word == word.lower() for word in words):
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    add_marks(tokenizer)
    return tokenizer


def add_marks(tokenizer: Tokenizer) -> None:
    """[CLS] text [SEP], or [CLS] text [SEP] second text [SEP]; marks that it lacks get new ids."""
    tokenizer.add_special_tokens(list(MARKS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )


def read_folder(folder: Path) -> Tensor:
    """Vectors by token id `(V, D)` of a folder of model2vec, times the weights of the tokens where it has them.

    Raises:
        UserError: model.safetensors is broken, or holds other than such vectors.
    """
    path = folder / "model.safetensors"
    try:
        held = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is not a whole safetensors file ({format_value(error)}): fetch it again") from error
    vectors_VD = held["embeddings"].float()
    if "mapping" in held:
        rows_V = held["mapping"].long()
        if rows_V.ndim != 1 or not len(rows_V) or rows_V.min() < 0 or rows_V.max() >= len(vectors_VD):
            raise UserError(f"{path}: mapping names rows that embeddings does not have: fetch it again")
        vectors_VD = vectors_VD[rows_V]
    if "weights" in held:
        weights_V = held["weights"].float()
        if weights_V.shape != vectors_VD.shape[:1]:
            raise UserError(f"{path}: weights has another length than the table of vectors: fetch it again")
        vectors_VD = vectors_VD * weights_V[:, None]
    if not vectors_VD.isfinite().all():
        raise UserError(f"{path} holds values that are not finite numbers: name another")
    return vectors_VD


def read_text(path: Path) -> WordVectors:
    """The first words of a text file of vectors. Of a word that comes again the first vector counts.

    Raises:
        UserError: names the first line that is no word with a vector of the width of the first.
    """
    state = path.stat()
    return _read_text(path, text_shape(path), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1)
def _read_text(path: Path, shape: TextShape, size: int, changed: int) -> WordVectors:
    words: dict[str, int] = {}
    vectors_nD = np.empty((shape.n_words, shape.width), dtype=np.float32)
    with open_text(path) as file:
        every_line = iter(partial(file.readline, LONGEST_LINE), b"")
        number = 1
        if shape.has_header:
            next(every_line)
            number = 2
        while lines := [*islice(every_line, min(AT_ONCE, shape.n_words - len(words)))]:
            if number == 1:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            found, numbers_nD = _parted(path, number, lines, shape.width)
            for word, vector_D in zip(found, numbers_nD, strict=True):
                if word not in words and word not in MARKS:
                    vectors_nD[len(words)] = vector_D
                    words[word] = len(words)
            number += len(lines)
        if len(words) == shape.n_words:
            log.info("%s: its first %s words are read", path, f"{len(words):,}")
    return WordVectors([*words], vectors_nD[: len(words)])


def _parted(path: Path, first: int, lines: list[bytes], width: int) -> tuple[list[str], np.ndarray]:
    """The words of lines and their numbers `(n, D)`; the first line has the number `first`.

    Raises:
        UserError: a line is no word with `width` finite numbers.
    """
    parts = [line.rstrip().split(b" ", 1) for line in lines]
    numbers = np.zeros(0)
    if all(len(part) == 2 and part[1].count(b" ") == width - 1 for part in parts):
        with suppress(ValueError), warnings.catch_warnings(action="ignore"):
            numbers = np.fromstring(b" ".join(part[1] for part in parts), dtype=np.float32, sep=" ")
    if numbers.size != len(lines) * width or not np.isfinite(numbers).all():
        parts = _parted_by_line(path, first, lines, width)
        numbers = np.array([part[1].split() for part in parts], dtype=np.float32)  # Python reads 1_0, NumPy does not
    return [part[0].decode("utf-8", "replace") for part in parts], numbers.reshape(-1, width)


def _parted_by_line(path: Path, first: int, lines: list[bytes], width: int) -> list[list[bytes]]:
    """Word and numbers of each line; the word may have spaces, but not end in a further number."""
    found: list[list[bytes]] = []
    for number, line in enumerate(lines, start=first):
        word, *numbers = line.rsplit(None, width) or [b""]
        has_more = is_number(word.rpartition(b" ")[2]) and b" " in word
        if len(numbers) != width or not all(map(_is_finite, numbers)) or has_more:
            raise UserError(
                f"{path}, line {number}: {quoted_line(line)} is no word with {width} finite numbers, as the first line "
                "has: remove the line, or fetch the file again"
            )
        found.append([word, b" ".join(numbers)])
    return found


def _is_finite(number: bytes) -> bool:
    try:
        return abs(float(number)) <= LARGEST
    except ValueError:
        return False
