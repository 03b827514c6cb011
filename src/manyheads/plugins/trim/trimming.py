"""A tokenizer with fewer entries, which reads the training texts as before.

All letters and bytes are kept, so any other text can be read: a word whose entry is gone becomes smaller pieces. What
is [UNK] is the same for both tokenizers, as each entry can be spelt by letters that have entries of their own:

- WordPiece takes the longest entry that fits. It gives up on a word if a letter has no entry, which no longer entry
  holds then, either.
- BPE starts with letters and merges pairs. An entry is kept with all pairs that it can be merged from, so that each
  merge that leads to it happens as before, and in the same order.
- Unigram takes the likeliest path. With fewer entries there are fewer paths, but the likeliest of a training text is
  among them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import manyheads.plugin as plugin
from manyheads.config.sentences import format_value
from manyheads.data.ids.words import Words
from manyheads.data.prepare_tokens import splits_as_read
from manyheads.data.rows import ROWS_AT_ONCE, Rows, Splits
from manyheads.data.tokenizer import kept_ids, names_of_marks, tokenizer_errors, tokenizer_sizes
from manyheads.errors import UserError
from manyheads.plugins.trim.config import Trim

Content = dict[str, Any]  # of a tokenizer.json, or of a part of it
OF_PIECES = ("WordPiece", "BPE", "Unigram")
UNUSED = "[unused"  # entries of BERT that no text has, among the most frequent ones
BYTE = re.compile("<0x[0-9A-F]{2}>")  # what a letter without an entry falls back to
N_BYTES = 256
COMPARED = 256  # training rows that are read by both tokenizers
REMEDY = "remove tokenizer.trim=train, or begin with other weights"


def trim(run: Any, splits: Splits, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of a run whose weights come with `tokenizer`. Adds a note to the splits.

    Raises:
        UserError: it is of a kind that has no smaller pieces, or cannot be trimmed.
    """
    if run.tokenizer.trim is Trim.none or not plugin.task(run.task).has_classes:
        return tokenizer
    train = splits_as_read(splits).train
    used = used_names(tokenizer, train)
    small = with_entries(tokenizer, used, run.tokenizer.reserve)
    if not _reads_alike(tokenizer, small, train):
        raise UserError(f"tokenizer.trim=train would change how the training texts are read: {REMEDY}")
    before, after = (tokenizer_sizes(one).n_ids for one in (tokenizer, small))
    splits.notes.append(
        f"tokenizer.trim=train keeps {after:,} of {before:,} entries, {len(used):,} of which the training texts have"
    )
    return small


def used_names(tokenizer: Tokenizer, rows: Rows) -> set[str]:
    """The entries that the tokens of the texts are, uncut and without marks."""
    words, used = Words(tokenizer), set[int]()
    for column in (rows.texts, rows.pairs or []):
        for start in range(0, len(column), ROWS_AT_ONCE):
            with tokenizer_errors("the tokenizer fails on a text: use another one"):
                ids = b"".join(words.read(column[start : start + ROWS_AT_ONCE]))
            used.update(np.unique(np.frombuffer(ids, dtype=np.int32)).tolist())
    return {str(tokenizer.id_to_token(id)) for id in used}


def with_entries(tokenizer: Tokenizer, used: set[str], reserve: int) -> Tokenizer:
    """A tokenizer with the entries `used`, the first `reserve` others, and all letters, bytes and marks. Entries are
    numbered anew, in the order that they had.

    Raises:
        UserError: it has no pieces, or an entry that letters cannot spell.
    """
    content = json.loads(tokenizer.to_str())
    model = content["model"]
    if model["type"] not in OF_PIECES:
        raise UserError(
            f"tokenizer.trim=train needs a tokenizer of pieces ({', '.join(OF_PIECES)}), but that of init_from is of "
            f"kind {format_value(model['type'])}, whose words would be unknown: {REMEDY}"
        )
    kept = used | _always_kept(content, names_of_marks(tokenizer))
    usual = [name for name in entries_of(model) if name not in kept and not name.startswith(UNUSED)]
    kept |= {*usual[:reserve]}
    if model["type"] == "BPE":
        _keep_merged_from(model, kept)
    with tokenizer_errors(f"the tokenizer of init_from cannot be trimmed: {REMEDY}"):
        small = Tokenizer.from_str(json.dumps(_reduced(content, kept)))
    small.encode_special_tokens = tokenizer.encode_special_tokens
    return small


def entries_of(model: Content) -> list[str]:
    """The names of the entries of a model, by id: those that were most frequent where it was trained come first."""
    if model["type"] == "Unigram":
        return [name for name, _ in model["vocab"]]
    return sorted(model["vocab"], key=model["vocab"].__getitem__)


def _always_kept(content: Content, marks: list[str]) -> set[str]:
    """Marks, letters, bytes, and the least likely entry of Unigram, which its score of unknown letters follows."""
    model = content["model"]
    names = entries_of(model)
    known = {*names}
    kept = {*marks, *(token["content"] for token in content["added_tokens"])}
    for step in _processors(content["post_processor"]):
        kept |= {step[key][0] for key in ("sep", "cls") if key in step}
        for mark in step.get("special_tokens", {}).values():
            kept.update(mark["tokens"])
    if model["type"] == "Unigram":
        kept.add(min(model["vocab"], key=lambda entry: entry[1])[0])
        kept.add(names[model["unk_id"] or 0])
    elif model["unk_token"]:
        kept.add(model["unk_token"])
    of_bytes = {name for name in names if BYTE.fullmatch(name)}
    kept |= of_bytes
    falls_back = bool(model.get("byte_fallback")) and len(of_bytes) == N_BYTES
    for name in names:
        letters = letters_of(name, model)
        if letters == [name]:
            kept.add(name)
        elif not (falls_back or name in kept or known.issuperset(letters)):
            missing = next(letter for letter in letters if letter not in known)
            raise UserError(
                f"tokenizer.trim=train needs an entry for each letter, but the tokenizer of init_from has "
                f"'{format_value(name)}' and no '{format_value(missing)}': {REMEDY}"
            )
    return kept


def _processors(step: Content) -> Iterator[Content]:
    """The steps that put marks around a text: by a template, or as BERT and RoBERTa do."""
    yield step
    for inner in step.get("processors", []):
        yield from _processors(inner)


def letters_of(name: str, model: Content) -> list[str]:
    """The entries of single letters that spell an entry: of "##ing" they are "##i", "##n" and "##g"."""
    inner, last = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
    ends = last != "" and name.endswith(last) and name != last
    word = name.removesuffix(last) if ends else name
    begins = not (inner and word.startswith(inner) and word != inner)
    letters = [f"{inner}{letter}" for letter in (word if begins else word.removeprefix(inner))]
    if begins and letters:
        letters[0] = letters[0].removeprefix(inner)
    if ends:
        letters[-1] += last
    return letters


def _keep_merged_from(model: Content, kept: set[str]) -> None:
    """Add to `kept` all entries that those in it can be merged from."""
    parts: dict[str, list[str]] = {}
    for first, second, merged in _merges(model):
        parts.setdefault(merged, []).extend([first, second])
    todo = [*kept]
    while todo:
        for part in parts.get(todo.pop(), []):
            if part not in kept:
                kept.add(part)
                todo.append(part)


def _merges(model: Content) -> Iterator[tuple[str, str, str]]:
    """Each merge: two entries, and that which they become."""
    n_inner = len(model.get("continuing_subword_prefix") or "")
    for pair in model["merges"]:
        first, second = pair.split(" ") if isinstance(pair, str) else pair
        yield first, second, first + second[n_inner:]


def _reduced(content: Content, kept: set[str]) -> Content:
    """A tokenizer.json with these entries alone. Those that were added to the model's have the last ids."""
    model = content["model"]
    names = [name for name in entries_of(model) if name in kept]
    added = sorted(content["added_tokens"], key=lambda token: token["id"])
    order = dict.fromkeys([*names, *(token["content"] for token in added)])
    ids = {name: id for id, name in enumerate(order)}
    reduced = model | {"vocab": {name: ids[name] for name in names}}
    if model["type"] == "Unigram":
        reduced["vocab"] = [entry for entry in model["vocab"] if entry[0] in kept]
        if model["unk_id"] is not None:
            reduced["unk_id"] = ids[model["vocab"][model["unk_id"]][0]]
    if model["type"] == "BPE":
        merges = [merge for merge in _merges(model) if kept.issuperset(merge)]
        reduced["merges"] = [[first, second] for first, second, _ in merges]
    for step in _processors(content["post_processor"]):
        for mark in step.get("special_tokens", {}).values():
            mark["ids"] = [ids[name] for name in mark["tokens"]]
        for key in ("sep", "cls"):
            if key in step:
                step[key][1] = ids[step[key][0]]
    for token in added:
        token["id"] = ids[token["content"]]
    return content | {"model": reduced, "added_tokens": added}


def _reads_alike(tokenizer: Tokenizer, small: Tokenizer, rows: Rows) -> bool:
    """Whether the first rows have the same tokens as before, marks included."""
    texts = rows.texts[:COMPARED]
    if rows.pairs is not None:
        texts = list(zip(texts, rows.pairs[:COMPARED], strict=True))
    before, after = tokenizer.encode_batch_fast(texts), small.encode_batch_fast(texts)
    ids = kept_ids(small, tokenizer) or range(tokenizer_sizes(tokenizer).n_ids)
    return all(one.ids == [ids[id] for id in other.ids] for one, other in zip(before, after, strict=True))
