"""Token ids and trained tokenizers on disk, so that the second start tokenizes nothing.

A file is named by a hash of everything it depends on and is put in place whole. Of processes that start together one
computes it, under a lock, and the others wait and read; where there are no locks two may write it, and either file is
right. A damaged file is made again.
"""

import hashlib
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import safetensors
import safetensors.torch
import tokenizers
import torch
from filelock import FileLock
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.config import Cutting, DataConfig, Long, RunConfig, Task, TokenizerConfig
from manyheads.config.data import CUT
from manyheads.data.batches import WHOLE, held_out, in_pieces
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokenizer import check_lengths, check_marks, check_spelling, train_tokenizer, vocabulary
from manyheads.data.tokens import Tokens, Windows, encode, load_tokenizer, marks_of
from manyheads.runs.atomic import replace_file

PATIENCE = 600.0  # seconds
FORMAT = f"3 tokenizers {tokenizers.__version__}"
log = logging.getLogger(__name__)


def prepare_tokens(splits: Splits, run: RunConfig) -> tuple[Tokenizer, dict[str, Tokens]]:
    """The tokenizer of a run and the tokens of its train, validation and test (if any) splits.

    Adds the share of texts that were cut to `splits.notes`.

    Raises:
        ValueError: the tokenizer cannot be used, or not for the target texts.
    """
    folder, patience = cache_folder(run.data), float(run.hardware.timeout)
    if run.tokenizer.path:
        tokenizer = _given_tokenizer(run, pairs=splits.train.pairs is not None)
    else:
        tokenizer = cached_tokenizer(splits.train, run.tokenizer, folder, patience)
    if run.task is Task.pretrain:
        return tokenizer, _in_pieces(splits, tokenizer, run.data.max_length, folder, patience)
    if splits.train.targets is not None:
        check_marks(tokenizer)
    tokens: dict[str, Tokens] = {}
    for name, rows in splits.by_name().items():
        tokens[name] = cached_tokens(rows, tokenizer, run.data.max_length, folder, patience, run.data.cutting)
        splits.notes += long_texts(name, tokens[name], run.data)
        if rows.sets is not None:
            tokens[name].labels = marks_of(rows.sets, len(splits.labels))
        if rows.targets is not None:
            texts, longest = rows.as_targets(), run.data.max_length
            tokens[name].targets = targets = cached_tokens(texts, tokenizer, longest, folder, patience)
            check_lengths(rows, targets, tokenizer, run.data.max_length)
            splits.notes += check_spelling(rows, targets, tokenizer, name)
    return tokenizer, tokens


def _in_pieces(
    splits: Splits, tokenizer: Tokenizer, max_length: int, folder: Path, patience: float
) -> dict[str, Tokens]:
    """All that the texts hold, in pieces in which words can be hidden; pairs are cut. Of validation a part will do."""
    pairs = splits.train.pairs is not None
    known, tokens = vocabulary(tokenizer, pairs=pairs), {}
    for name, rows in splits.by_name().items():
        tokens[name] = cached_tokens(rows, tokenizer, max_length if pairs else WHOLE, folder, patience)
        tokens[name] = tokens[name] if pairs else in_pieces(tokens[name], tokenizer, max_length)
        tokens[name].vocabulary = known
    tokens["validation"] = held_out(tokens["validation"])
    return tokens


def long_texts(name: str, tokens: Tokens, data: DataConfig) -> list[str]:
    """Notes on the texts of a split that are longer than `data.max_length`."""
    notes, n_rows, limit = [], len(tokens), f"data.max_length={data.max_length} tokens"
    if tokens.windows is not None:
        many = tokens.windows.firsts.diff()
        n_long = int((many > 1).sum())
        notes.append(
            f"{name}: {n_long:,} of {n_rows:,} texts ({n_long / n_rows:.1%}) are read in 2 to {int(many.max())} "
            f"windows of {limit}"
        )
    if cut := tokens.n_truncated:
        what = {
            Long.cut: f"are cut to {limit}",
            Long.both: f"keep head and tail, {limit} in all",
            Long.windows: f"are longer than data.windows={data.windows} windows, which leave some of it out",
        }
        notes.append(f"{name}: {cut:,} of {n_rows:,} texts ({cut / n_rows:.1%}) {what[data.long]}")
    return notes


def _given_tokenizer(run: RunConfig, *, pairs: bool) -> Tokenizer:
    """The tokenizer that is named by its path, or comes with the weights to begin with.

    Raises:
        ValueError: as of `load_tokenizer`, in the words that were typed.
    """
    try:
        return load_tokenizer(run.tokenizer.path, pairs=pairs)
    except ValueError as problem:
        if not run.init_from:
            raise
        what = str(problem).removeprefix(f"tokenizer.path={run.tokenizer.path} ").partition(": ")[0]
        raise ValueError(
            f"init_from={run.init_from} comes with a tokenizer, {run.tokenizer.path}, that {what}: "
            "begin with other weights"
        ) from problem


def cache_folder(data: DataConfig) -> Path:
    """`data.cache`, else $MANYHEADS_CACHE, else ~/.cache/manyheads."""
    return Path(data.cache or os.environ.get("MANYHEADS_CACHE") or "~/.cache/manyheads").expanduser()


def cached_tokenizer(rows: Rows, config: TokenizerConfig, folder: Path, patience: float = PATIENCE) -> Tokenizer:
    """The tokenizer trained on `rows`, from the cache where it was trained before, or is just being trained: that is
    waited for, `patience` seconds at the most."""
    settings = f"{FORMAT} {config.kind.name} {config.vocab_size} {config.lowercase}"
    path = folder / f"tokenizer-{_key([settings], rows)}.json"
    with _turn(path, patience):
        if path.is_file():
            try:
                return load_tokenizer(path)
            except ValueError:
                log.warning("%s is damaged and is made again", path)
        tokenizer = train_tokenizer(rows, config)
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
    """The tokens of `rows`, from the cache where the same texts met the same tokenizer and length before, or just now
    meet them: that is waited for, `patience` seconds at the most."""
    settings = [FORMAT, tokenizer.to_str(), str(max_length)]
    if cutting.long is not Long.cut:
        settings.append(f"{cutting.long.name} {cutting.stride} {cutting.windows}")
    path = folder / f"tokens-{_key(settings, rows)}.safetensors"
    labels = torch.tensor(rows.labels, dtype=torch.int64)
    with _turn(path, patience):
        if path.is_file():
            found = _read(path, labels, paired=rows.pairs is not None)
            if found is not None:
                return found
            log.warning("%s is damaged and is made again", path)
        tokens = encode(tokenizer, rows.texts, rows.pairs, rows.labels, max_length, cutting)
        _put(path, lambda part: _write(part, tokens))
        return tokens


def cached_logits(
    rows: Rows, model: str, n_classes: int, make: Callable[[], Tensor], folder: Path, patience: float = PATIENCE
) -> Tensor:
    """What `model`, told by its digest, answers `rows`: `(n, C)` as `make` computes it, or as was computed before."""
    path = folder / f"logits-{_key([FORMAT, model], rows)}.safetensors"
    with _turn(path, patience):
        if path.is_file():
            try:
                found = safetensors.torch.load_file(path).get("logits")
            except (OSError, safetensors.SafetensorError):
                found = None
            if found is not None and found.shape == (len(rows), n_classes) and found.isfinite().all():
                return found
            log.warning("%s is damaged and is made again", path)
        logits_nC = make().contiguous()
        _put(path, lambda part: safetensors.torch.save_file({"logits": logits_nC}, part))
        return logits_nC


@contextmanager
def _turn(path: Path, patience: float) -> Iterator[None]:
    """One process at a time computes `path`, unless it is there. The kernel holds the lock, on a file beside it, so
    that a process that is killed leaves it free. Who has waited for `patience` seconds goes on all the same, as does
    everybody on a disk without locks."""
    lock = FileLock(path.with_suffix(".lock"), timeout=patience, fallback_to_soft=False)
    if not path.is_file():
        with suppress(OSError):  # no locks, no patience, or a cache that cannot be written, which is said later
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):
                Path(lock.lock_file).unlink()  # who waits for it finds the file in place
            lock.release()


def _key(settings: Iterable[str], rows: Rows) -> str:
    """Hash of settings and texts. Lengths are hashed beside the texts, so that no two lists run together alike.

    SHA-256, for which processors have instructions: a second start spends most of its time here.
    """
    digest = hashlib.sha256()
    for part in (list(settings), rows.texts, rows.pairs or [], rows.targets or []):
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
        log.warning("the cache %s cannot be written (%s): choose another folder by data.cache", path.parent, problem)


def _write(path: Path, tokens: Tokens) -> None:
    tensors = {"ids": tokens.ids_N, "offsets": tokens.offsets}
    if tokens.segments_N is not None:
        tensors["segments"] = tokens.segments_N
    if tokens.windows is not None:
        tensors |= {"bounds": tokens.windows.bounds, "firsts": tokens.windows.firsts}
    facts = {"n_truncated": str(tokens.n_truncated), "checksum": _checksum(tensors)}
    safetensors.torch.save_file(tensors, path, metadata=facts)


def _read(path: Path, labels: Tensor, *, paired: bool) -> Tokens | None:
    """None for a file that is cut short, altered, or of other rows."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        n_truncated = int(facts["n_truncated"])
    except (OSError, ValueError, KeyError, safetensors.SafetensorError):
        return None
    names = {"ids", "offsets", "segments"} if paired else {"ids", "offsets"}
    windows = Windows(tensors["bounds"], tensors["firsts"]) if {"bounds", "firsts"} <= set(tensors) else None
    if set(tensors) - {"bounds", "firsts"} != names or facts.get("checksum") != _checksum(tensors):
        return None
    if tensors["offsets"].numel() != labels.numel() + 1:
        return None
    return Tokens(tensors["ids"], tensors["offsets"], tensors.get("segments"), labels, n_truncated, windows=windows)


def _checksum(tensors: dict[str, Tensor]) -> str:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].contiguous().numpy().data, total)
    return str(total)
