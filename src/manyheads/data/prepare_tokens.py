"""The tokenizer of a run and the tokens of its splits, from the cache or made now; and what is wrong with them."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

import manyheads.plugin as plugin
from manyheads.config import DataConfig, Long, RunConfig
from manyheads.config.facts import hooks
from manyheads.data.column import zipped
from manyheads.data.disk_cache import cache_folder
from manyheads.data.formats.fields import reader_of
from manyheads.data.rows import Rows, Splits
from manyheads.data.token_cache import cached_tokenizer, cached_tokens
from manyheads.data.tokenizer import load_tokenizer, start_and_end_marks
from manyheads.data.tokens import Tokens, multi_hot
from manyheads.errors import UserError

MAX_TRAINING_ROWS = 1_000_000  # rows that a tokenizer is trained on; of more some, evenly spread


def prepare_tokens(splits: Splits, run: RunConfig) -> tuple[Tokenizer, dict[str, Tokens]]:
    """The tokenizer of a run and the tokens of its train, validation and test (if any) splits.

    Adds the share of texts that were cut to `splits.notes`, and what plugins keep to `splits.kept`.

    Raises:
        UserError: the tokenizer cannot be used, or not for pairs.
    """
    for keep in hooks(run.data, "keep") if splits.labels and not splits.kept else ():
        splits.kept |= keep(run.data, splits)
    read = splits_as_read(splits)
    folder, patience, max_length = cache_folder(run.data), float(run.hardware.timeout), run.data.max_length
    if run.tokenizer.path:
        tokenizer = given_tokenizer(run, pairs=splits.train.pairs is not None)
    else:
        rows = read.train.readable()
        if len(rows) > MAX_TRAINING_ROWS:
            rows = rows.pick(np.arange(MAX_TRAINING_ROWS) * len(rows) // MAX_TRAINING_ROWS)
        if len(rows) < len(splits.train):
            splits.notes.append(
                f"train: the tokenizer is learned from {len(rows):,} of {len(splits.train):,} rows, evenly spread"
            )
        tokenizer = cached_tokenizer(rows, run.tokenizer, folder, patience, fields=isinstance(run.data.text, list))
    for change in hooks(run, "tokenizer"):
        tokenizer = change(run, splits, tokenizer)

    def cut_to(rows: Rows, max_length: int) -> Tokens:
        return cached_tokens(rows, tokenizer, max_length, folder, patience)

    tokens_of_task = plugin.task(run.task).tokens
    if tokens_of_task is not None:
        return tokenizer, plugin.resolve(tokens_of_task)(run, splits, tokenizer, cut_to)
    if run.model.reads_apart:  # the second text gets a copy of the first mark
        check_marks(tokenizer, f"model.pair={run.model.pair.name}")
    tokens: dict[str, Tokens] = {}
    for name, rows in read.by_name().items():
        tokens[name] = cached_tokens(rows, tokenizer, max_length, folder, patience, run.data.cutting)
        splits.notes += long_text_notes(name, tokens[name], run.data)
        if name == "train" and run.tokenizer.path:
            splits.notes += unknown_notes(tokens[name], tokenizer)
        if rows.sets is not None:
            tokens[name].labels = multi_hot(rows.sets, len(splits.labels))
        if rows.probabilities is not None:
            tokens[name].probabilities_nC = torch.from_numpy(rows.probabilities)
        if rows.any_of is not None:
            tokens[name].any_of_n = torch.from_numpy(rows.any_of)
        if rows.weights is not None and name == "train":
            tokens[name].weights_n = torch.from_numpy(rows.weights / rows.weights.mean()).float()
    return tokenizer, tokens


def splits_as_read(splits: Splits) -> Splits:
    """The splits with texts as a classifier reads them, see `Section.read`."""
    read = reader_of(splits.kept)
    if read is None:
        return splits
    parts: dict[str, Any] = {}
    kept = json.dumps(splits.kept, sort_keys=True)  # by which the cache tells readings of one text apart
    for name, rows in splits.by_name().items():
        parts[name] = replace(rows, texts=zipped([rows.texts], lambda cells: read(cells)[0], kept))
    return replace(splits, **parts)


def unknown_notes(tokens: Tokens, tokenizer: Tokenizer) -> list[str]:
    """A warning if more than half of the training texts' tokens are unknown, as those of another language may be."""
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
    n_marks = tokenizer.num_special_tokens_to_add(tokens.segments_N is not None) * len(tokens.documents)
    n_unknown, n_words = int((tokens.ids_N == unknown).sum()) if unknown is not None else 0, len(tokens.ids_N) - n_marks
    if 2 * n_unknown <= n_words:
        return []
    return [
        f"train: {n_unknown:,} of {n_words:,} tokens are unknown to the given tokenizer: is it of the same language?"
    ]


def given_tokenizer(run: RunConfig, *, pairs: bool) -> Tokenizer:
    """The tokenizer that is named by its path, or comes with the weights to begin with."""
    try:
        fields = isinstance(run.data.text, list)
        return load_tokenizer(run.tokenizer.path, pairs=pairs, prefix=run.tokenizer.prefix, fields=fields)
    except ValueError as problem:
        if not run.init_from or not str(problem).startswith("tokenizer.path="):
            raise
        what = str(problem).removeprefix(f"tokenizer.path={run.tokenizer.path} ").partition(": ")[0]
        raise UserError(
            f"init_from={run.init_from} comes with a tokenizer, {run.tokenizer.path}, that {what}: "
            "begin with other weights"
        ) from problem


def long_text_notes(name: str, tokens: Tokens, data: DataConfig) -> list[str]:
    """Notes on the texts of a split that are longer than `data.max_length`."""
    notes: list[str] = []
    n_rows, limit = len(tokens), f"data.max_length={data.max_length} tokens"
    if tokens.windows is not None:
        n_windows = tokens.windows.firsts.diff()
        n_long = int((n_windows > 1).sum())
        notes.append(
            f"{name}: {n_long:,} of {n_rows:,} texts ({n_long / n_rows:.1%}) are read in 2 to {int(n_windows.max())} "
            f"windows of {limit}"
        )
    n_cut = tokens.n_truncated
    if n_cut:
        what = {
            Long.cut: f"are cut to {limit}",
            Long.both: f"keep head and tail, {limit} in all",
            Long.windows: f"are longer than data.windows={data.windows} windows, which leave some of it out",
        }
        notes.append(f"{name}: {n_cut:,} of {n_rows:,} texts ({n_cut / n_rows:.1%}) {what[data.long]}")
    return notes


def check_marks(tokenizer: Tokenizer, what: str) -> None:
    """A target starts from a mark and ends with one; of two texts that are read apart both get the marks of a pair.

    Raises:
        UserError: the tokenizer has not one mark before a text and another after it, as `what` needs.
    """
    if start_and_end_marks(tokenizer) is None:
        raise UserError(
            "tokenizer.path names a tokenizer that does not put one mark before a text and another after it, as "
            f"{what} needs: give another one, or leave it empty to train one"
        )
