"""Token ids and trained tokenizers on disk, so that the second start tokenizes nothing.

A file is named by a hash of everything it depends on and is put in place whole. Of processes that start together one
computes it, under a lock, and the others wait and read; the tokens of many rows they make together, part by part. Where
there are no locks two may write a file, and either is right. A damaged file is made again.
"""

import hashlib
import json
import logging
import mmap
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from shutil import copyfileobj, rmtree
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.torch
import tokenizers
import torch
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.config import Cutting, Long, TokenizerConfig
from manyheads.config.data import CUT
from manyheads.data.column import Column
from manyheads.data.disk_cache import cached_on_disk, file_lock, fingerprint, warn_unwritable
from manyheads.data.ids.words import Words
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import load_tokenizer, tokenizer_sizes, train_tokenizer
from manyheads.data.tokens import Tokens, Windows, drop_pages, encode
from manyheads.runs.files import replace_file

PATIENCE = 600.0  # seconds
PART, PART_BYTES = 2**17, 2**26  # rows, and bytes of them, that a process tokenizes before they are written
HEADER = 1024  # bytes
TYPES = {"I32": torch.int32, "I64": torch.int64, "U8": torch.uint8}
MOST_SEGMENT = 7  # see `tokens.segments_of`
AT_ONCE = 2**26  # bytes of tokens that are checked before their pages are let go
FORMAT = f"6 tokenizers {tokenizers.__version__}"
log = logging.getLogger(__name__)


def cached_tokenizer(
    rows: Rows, config: TokenizerConfig, folder: Path, patience: float = PATIENCE, *, fields: bool = False
) -> Tokenizer:
    """The tokenizer trained on `rows`, from the cache if it was trained before. Where another process is training it,
    that is waited for, at most `patience` seconds."""
    settings = f"{FORMAT} {config.kind.name} {config.vocab_size} {config.lowercase}{' fields' * fields}"
    path = folder / f"tokenizer-{_key([settings], rows)}.json"
    with file_lock(path, patience):
        if path.is_file():
            try:
                return load_tokenizer(path)
            except ValueError:
                log.warning("%s is damaged and is made again", path)
        tokenizer = train_tokenizer(rows, config, fields=fields)
        _put(path, lambda part: part.write_text(tokenizer.to_str(), encoding="utf-8"))
        return tokenizer


def cached_tokens(
    rows: Rows,
    tokenizer: Tokenizer,
    max_length: int,
    folder: Path,
    patience: float = PATIENCE,
    cutting: Cutting = CUT,
) -> Tokens:
    """The tokens of `rows`, from the cache if the same tokenizer cut the same texts to the same length before. Where
    other processes are doing so, these share the work and wait for each other, at most `patience` seconds."""
    settings = [FORMAT, tokenizer.to_str(), str(tokenizer.encode_special_tokens), str(max_length)]
    if cutting.long is not Long.cut:
        settings.append(f"{cutting.long.name} {cutting.stride} {cutting.windows}")
    path = folder / f"tokens-{_key(settings, rows)}.safetensors"
    labels, n_ids = torch.as_tensor(rows.labels, dtype=torch.int32), tokenizer_sizes(tokenizer).n_ids
    weight = rows.texts.bytes_per_cell if isinstance(rows.texts, Column) else 0.0
    n_each = min(PART, int(PART_BYTES // max(1.0, weight)) + 1)
    parts = [(start, min(start + n_each, len(rows))) for start in range(0, len(rows), n_each)]

    look_up = Words(tokenizer).look_up

    def encoded(start: int, stop: int) -> Tokens:
        pairs = None if rows.pairs is None else rows.pairs[start:stop]
        return encode(tokenizer, rows.texts[start:stop], pairs, None, max_length, cutting, look_up)

    folder = _share(path, parts if len(parts) > 1 else [], encoded, patience)
    with file_lock(path, patience):
        if path.is_file():
            found = _read(path, labels, n_ids, paired=rows.pairs is not None)
            if found is not None:
                rmtree(folder, ignore_errors=True)  # a process that came late has made it again
                return found
            log.warning("%s is damaged and is made again", path)

        def made(start: int, stop: int) -> Tokens:
            some = torch.zeros(stop - start, dtype=torch.int32)
            found = _read(_part(folder, start), some, n_ids, paired=rows.pairs is not None)
            return encoded(start, stop) if found is None else found

        if len(parts) > 1:  # its file alone holds it
            _put(path, lambda part: _write(part, starmap(made, parts)))
            rmtree(folder, ignore_errors=True)
            if (found := _read(path, labels, n_ids, paired=rows.pairs is not None)) is not None:
                return found
        tokens = replace(encoded(0, len(rows)), labels=labels)
        _put(path, lambda part: _write(part, iter([tokens])))
        return tokens


def _part(folder: Path, start: int) -> Path:
    return folder / f"{start}.safetensors"


def _share(path: Path, parts: list[tuple[int, int]], make: Callable[[int, int], Tokens], patience: float) -> Path:
    """The folder of the tokens of these parts of rows: each of the processes that are here together makes those that no
    other has begun, and then those that are given up by one that was killed."""
    folder = path.with_suffix(".parts")
    for seconds in (0.0, patience):
        for start, stop in parts:
            part = _part(folder, start)
            if part.is_file() or path.is_file():  # which is in place before its parts are removed
                continue
            with file_lock(part, seconds) as mine:
                if part.is_file() or path.is_file() or not (mine or seconds):
                    continue
                _put(part, lambda file, rows=(start, stop): _write(file, iter([make(*rows)])))
            if not part.is_file():  # nothing can be written here
                return folder
    return folder


def _key(settings: Iterable[str], rows: Rows) -> str:
    """Hash of settings and texts; of a large table of what its files are known by. Lengths are hashed with the texts,
    so that no two lists run together alike.

    SHA-256, for which processors have instructions: a second start spends most of its time here.
    """
    digest = hashlib.sha256()
    for part in (list(settings), rows.texts, rows.pairs or [], rows.targets or []):
        if isinstance(part, Column):
            part = part[:] if part.is_of_small_table else [part.digest]
        digest.update(",".join(map(str, map(len, part))).encode() + b";")
        digest.update("".join(part).encode())
    return digest.hexdigest()[:32]


def _put(path: Path, write: Callable[[Path], object]) -> None:
    """Write `path` whole or not at all. A cache that cannot be written costs time, not the run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as part:
            write(part)
    except (OSError, safetensors.SafetensorError) as problem:
        warn_unwritable(path.parent, str(problem))


def _write(path: Path, parts: Iterator[Tokens]) -> None:
    """Write tokens as they come, in the format of safetensors: the ids first, how many they are when all are known."""
    bounds, firsts = array("q", [0]), array("q", [0])
    n_truncated = n_segments = 0
    with path.open("w+b") as file, TemporaryFile(dir=path.parent) as segments:
        file.seek(HEADER)
        for part in parts:
            windows = part.windows or Windows(part.offsets, torch.arange(len(part) + 1))
            firsts.extend((windows.firsts[1:] + len(bounds) - 1).tolist())
            bounds.extend((windows.bounds[1:] + bounds[-1]).tolist())
            file.write(part.ids_N.numpy().data)
            if part.segments_N is not None:
                n_segments += segments.write(part.segments_N.numpy().data)
            n_truncated += part.n_truncated
        names = {"ids": ("I32", bounds[-1])}
        if bounds[-1] % 2:  # so that what follows lies at multiples of eight bytes
            names["pad"] = ("I32", 1)
            file.write(bytes(4))
        places = np.frombuffer(bounds, dtype=np.int64), np.frombuffer(firsts, dtype=np.int64)
        of_windows = {} if len(bounds) == len(firsts) else {"bounds": places[0], "firsts": places[1]}
        for name, numbers in {"offsets": places[0][places[1]], **of_windows}.items():
            names[name] = ("I64", len(numbers))
            file.write(numbers.data)
        if n_segments:
            names["segments"] = ("U8", n_segments)
            segments.seek(0)
            copyfileobj(segments, file)
        facts = {"n_truncated": str(n_truncated), "checksum": ""}
        _write_header(file, names, facts)
        _, tensors, held = _mapped(path)
        facts["checksum"] = _checksum(tensors, held)
        _write_header(file, names, facts)


def _write_header(file: BinaryIO, names: dict[str, tuple[str, int]], facts: dict[str, str]) -> None:
    header: dict[str, Any] = {"__metadata__": facts}
    end = 0
    for name, (kind, n) in names.items():
        start, end = end, end + n * TYPES[kind].itemsize
        header[name] = {"dtype": kind, "shape": [n], "data_offsets": [start, end]}
    file.seek(0)
    file.write((HEADER - 8).to_bytes(8, "little") + json.dumps(header).encode().ljust(HEADER - 8))
    file.flush()


def _mapped(path: Path) -> tuple[dict[str, str], dict[str, Tensor], mmap.mmap]:
    """What a file says of itself, its tensors, and the memory that it is mapped to: shared by all who read it."""
    with safetensors.safe_open(path, "pt") as checked:
        facts = checked.metadata() or {}
    with path.open("rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = 8 + int.from_bytes(held[:8], "little")
    header = json.loads(held[8:begin])
    tensors = {}
    for name in header.keys() - {"__metadata__", "pad"}:
        kind, (n,), (start, _) = (header[name][key] for key in ("dtype", "shape", "data_offsets"))
        some = torch.frombuffer(held, dtype=TYPES[kind], count=n, offset=begin + start) if n else None
        tensors[name] = torch.empty(0, dtype=TYPES[kind]) if some is None else some
    return facts, tensors, held


def _read(path: Path, labels: Tensor, n_ids: int, *, paired: bool) -> Tokens | None:
    """None for a file that is cut short, altered, or of other rows."""
    try:
        facts, tensors, held = _mapped(path)
        n_truncated = int(facts["n_truncated"])
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        return None
    names = {"ids", "offsets", "segments"} if paired else {"ids", "offsets"}
    windows = Windows(tensors["bounds"], tensors["firsts"]) if {"bounds", "firsts"} <= set(tensors) else None
    if set(tensors) - {"bounds", "firsts"} != names:
        return None
    tokens = Tokens(tensors["ids"], tensors["offsets"], tensors.get("segments"), labels, n_truncated, windows=windows)
    tokens.held = held

    def checked() -> dict[str, Any]:
        whole = facts.get("checksum") == _checksum(tensors, held)
        return {"sound": whole and tokens.offsets.numel() == labels.numel() + 1 and _is_sound(tokens, n_ids)}

    # a large file that was read whole once is known by its fingerprint
    known = path.parent if len(held) > AT_ONCE and path.name.startswith("tokens-") else None
    key = path.name, fingerprint(path), n_ids, labels.numel()
    found = cached_on_disk(known, "checked", key, checked, lambda _: True)
    return tokens if found["sound"] else None


def _is_sound(tokens: Tokens, n_ids: int) -> bool:
    """Whether rows, and windows, follow one another from the first token to the last, and ids are below `n_ids`."""
    n_tokens, segments, windows = tokens.ids_N.numel(), tokens.segments_N, tokens.windows
    spans = [(tokens.offsets, n_tokens)]
    if windows is not None:
        spans += [(windows.bounds, n_tokens), (windows.firsts, windows.bounds.numel() - 1)]
    whole = all(
        one.dtype == torch.int64 and one.numel() and one[0] == 0 and one[-1] == n and (one.diff() > 0).all()
        for one, n in spans
    )
    if not whole or tokens.ids_N.dtype != torch.int32 or (segments is not None and segments.numel() != n_tokens):
        return False
    if segments is not None and bool((segments > MOST_SEGMENT).any()):
        return False
    for part in tokens.ids_N.split(AT_ONCE // 4) if n_tokens else ():
        least, most = part.aminmax()
        drop_pages(tokens)
        if least < 0 or most >= n_ids:
            return False
    return windows is None or torch.equal(windows.bounds[windows.firsts], tokens.offsets)


def _checksum(tensors: dict[str, Tensor], held: mmap.mmap) -> str:
    """Of everything; pages that were read are let go."""
    total = 0
    for name in sorted(tensors):
        content = memoryview(tensors[name].contiguous().numpy()).cast("B")  # pyright: ignore[reportArgumentType]
        for start in range(0, len(content), AT_ONCE):
            total = zlib.crc32(content[start : start + AT_ONCE], total)
            held.madvise(mmap.MADV_DONTNEED)
    return str(total)
