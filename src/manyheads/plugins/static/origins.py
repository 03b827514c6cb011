"""What `init_from=` names, by the first bytes of the files: a folder of model2vec, a text file of word vectors, or any
encoder as a static model reads it. Standard library only.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.inference.origin import Origin, refuse_missing
from manyheads.runs.files import read_json

TOKENIZER = "manyheads.plugins.static.vectors:tokenizer_of"  # imports NumPy
FILES = ("config.json", "tokenizer.json", "model.safetensors")
SUFFIXES = (".txt", ".vec", ".gz")
LONGEST = 2**20  # tokens of a text: there are no positions
WIDEST = 384  # of distilled vectors, unless model.d_model is typed
MOST_WORDS = 400_000  # of a text file, the first, which are the most frequent
MOST_NUMBERS = 2**26  # of these words together: 256 MB
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")  # that are added: their vectors are zero
BLOCK = 2**20
OF_STATIC: dict[str, Any] = {"encoder": "static", "positions": "none", "segments": "never", "d_embedding": 0}


def vector_tokenizer(path: Path) -> Any:
    """The tokenizer of a text file of vectors, or of a folder of model2vec; None if `path` is of neither: then NumPy,
    which opening a finished model does not need, is not imported."""
    config = path.parent / "config.json"
    is_text = path.suffix.lower() in SUFFIXES
    is_in_folder = path.name == "tokenizer.json" and config.is_file()
    if not path.is_file() or not (is_text or (is_in_folder and is_model2vec(read_json(config)))):
        return None
    return plugin.resolve(TOKENIZER)(path)


@dataclass(frozen=True, slots=True)
class TextShape:
    """What a text file of vectors holds: at most how many words are read, numbers of each, and whether its first line
    is a header that says how many there are."""

    n_words: int
    width: int
    has_header: bool


def as_static(name: str, origin: Origin) -> Origin:
    """The vectors of `origin` as a static model begins with them; those of another encoder are distilled."""
    if origin.words_only or origin.model.get("encoder") == "static":
        return replace(origin, words_only=True)
    width = origin.model["d_model"]
    model = OF_STATIC | ({"d_model": width} if width < WIDEST else {})
    ours = Origin("distilled", origin.folder, model, LONGEST, origin.vocab_size, origin.files)
    return replace(ours, shape=origin, words_only=True, free=("d_model",))


def find_folder(name: str, folder: Path, content: Any) -> Origin | None:
    """A folder as model2vec writes it.

    Raises:
        UserError: a file is missing, or config.json does not say how wide the vectors are.
    """
    if not is_model2vec(content):
        return None
    refuse_missing(name, folder, [one for one in FILES if not (folder / one).is_file()])
    tensors = safetensors_header(folder / "model.safetensors")
    shape = tensors.get("embeddings", {}).get("shape")
    is_table = isinstance(shape, list) and len(shape) == 2 and all(isinstance(one, int) and one > 0 for one in shape)
    if not is_table:
        raise UserError(
            f"init_from={name}: model.safetensors has no table of vectors named embeddings, as model2vec writes it: "
            "name another"
        )
    n_ids, width = (tensors.get("mapping", {}).get("shape") or shape)[0], shape[1]
    files = tuple(folder / one for one in FILES)
    model = OF_STATIC | {"d_model": width}
    return Origin("vectors", folder, model, LONGEST, n_ids + len(MARKS), files, words_only=True)


def is_model2vec(content: Any) -> bool:
    """Whether a config.json is one of model2vec."""
    return isinstance(content, dict) and (
        content.get("model_type") == "model2vec" or content.get("architectures") == ["StaticModel"]
    )


def safetensors_header(path: Path) -> dict[str, Any]:
    """What a safetensors file says of its tensors; empty where it says nothing that can be read."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            found = json.loads(file.read(min(size, BLOCK)))
        except ValueError:
            found = {}
    return found if isinstance(found, dict) and all(isinstance(one, dict) for one in found.values()) else {}


def find_file(name: str, path: Path) -> Origin | None:
    """A text file of word vectors: `word 0.1 -0.2 ...`, one a line, maybe with a first line of two numbers.

    Raises:
        UserError: its first line is not of that kind.
    """
    if path.suffix.lower() not in SUFFIXES:
        return None
    shape = text_shape(path)
    model = OF_STATIC | {"d_model": shape.width}
    return Origin("vectors", path, model, LONGEST, shape.n_words + len(MARKS), (path,), shape=shape, words_only=True)


def text_shape(path: Path) -> TextShape:
    """The shape of a text file of vectors; of one that has not changed since, as it was found before."""
    state = path.stat()
    return _text_shape(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)
def _text_shape(path: Path, size: int, changed: int) -> TextShape:
    with open_text(path) as file:
        first = file.readline(BLOCK).removeprefix(BOM_UTF8).split()  # as bytes: no-break spaces are words
        has_header = len(first) == 2 and all(one.isdigit() for one in first)
        second = file.readline(BLOCK).split() if has_header else first
        width = int(first[1]) if has_header else len(second) - 1
        if width < 1 or len(second) <= width or not all(map(is_number, second[-width:])):
            raise UserError(
                f"{path}, line {1 + has_header}: {quoted_line(b' '.join(second))} is not a word and its vector: "
                "word vectors are text, one word a line and its numbers after it, separated by spaces"
            )
        most = max(1, min(MOST_WORDS, MOST_NUMBERS // width))
        n_lines = 2  # the one that was read, and maybe a last one without an end
        while n_lines < most and (block := file.read(BLOCK)):
            n_lines += block.count(b"\n")
    return TextShape(min(most, n_lines), width, has_header)


def quoted_line(line: bytes) -> str:
    """A line of such a file as a sentence quotes it."""
    return format_value(line.decode("utf-8", "replace").strip()[:60]) or "an empty line"


def is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def open_text(path: Path) -> Iterator[GzipFile | BufferedReader]:
    """The bytes of a file, unpacked."""
    try:
        with GzipFile(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file
    except (OSError, EOFError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
