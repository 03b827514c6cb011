"""A linear model of the terms of a text: what is counted, how it answers, and its file.

data/ids/terms.py says what the terms of a text are.

Rare terms weigh more: Salton and Buckley (1988), "Term-weighting approaches in automatic text retrieval". The weight of
a term is how often the text has it, times its inverse document frequency, over the length of the text's vector.

U known terms . E terms of all texts, end to end; text i has those from `bounds[i]` to `bounds[i + 1] - 1`
B, n texts . C classes
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import Terms
from manyheads.config.conversion import from_plain, to_plain
from manyheads.config.facts import check_ranges, setting
from manyheads.data.ids.terms import number_of, split_units, split_words, terms_by_sort
from manyheads.errors import UserError
from manyheads.runs.files import read_json

FILE = "linear.safetensors"
BASELINE = ("baseline.safetensors", "baseline.json")  # of a run whose model/ holds no linear model
KINDS = {"terms_U": "I64", "rarity_U": "F32", "votes_UC": "F32", "bias_C": "F32"}
MOST = 1e6  # of a value in the file: sums of larger ones may overflow
AT_ONCE, LETTERS_AT_ONCE = 4096, 2_000_000  # texts, and letters in all of them: 400 MB
UNSPACED = re.compile(  # Thai, Lao, Burmese, Khmer, kana and Han, Javanese and Tai scripts, rare Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua980-\ua9df\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Counted(NamedTuple):
    """The numbers of the terms of each text, each once (int64), and how often it has them (float)."""

    terms_E: "array[int]"
    counts_E: "array[float]"
    bounds: "array[int]"


def terms_of(text: str, pair: str | None = None, kind: Terms = Terms.words) -> Iterator[str]:
    """The terms of a text; of a pair what both texts have, what one of them has alone, and how many terms of each sort
    these are. Their order is the same in every process."""
    if pair is None:
        for terms in terms_by_sort(text, kind.name).values():
            yield from terms
        return
    others = terms_by_sort(pair, kind.name)
    for sort, terms in terms_by_sort(text, kind.name).items():
        one, other = set(terms), set(others.get(sort, ()))
        yield from (f"both {term}" for term in sorted(one & other))
        for side, alone in (("first", one - other), ("second", other - one)):
            yield from (f"{side} {term}" for term in sorted(alone))
            yield f"{len(alone)}{sort} alone in {side}"


def counted(texts: Sequence[str], pairs: Sequence[str] | None, kind: Terms = Terms.words) -> Counted:
    """The terms of many texts by their numbers: those of two terms are the same about once in four thousand million."""
    found = Counted(array("q"), array("f"), array("q", [0]))
    for text, pair in zip(texts, pairs or [None] * len(texts), strict=True):
        counts = Counter(map(number_of, terms_of(text, pair, kind)))
        found.terms_E.extend(counts)
        found.counts_E.extend(counts.values())
        found.bounds.append(len(found.terms_E))
    return found


def unspaced(texts: Sequence[str]) -> bool:
    """Whether a tenth of the letters are of scripts that put no spaces between words."""
    texts = [split_units(text)[0] for text in texts]
    n_letters = sum(len(word) for text in texts for word in split_words(text))
    return 10 * sum(len(UNSPACED.findall(text)) for text in texts) > n_letters


class LinearModel(nn.Module):
    """Terms are known by their numbers, `terms_U`, which ascend; a term that is not among them counts for nothing.
    `rarity_U` are the inverse document frequencies. `terms` says what is counted in a text."""

    terms_U: Tensor
    rarity_U: Tensor
    votes_UC: Tensor
    bias_C: Tensor

    def __init__(self, terms_U: Tensor, rarity_U: Tensor, votes_UC: Tensor, bias_C: Tensor, terms: Terms) -> None:
        super().__init__()
        self.terms = terms
        self.register_buffer("terms_U", terms_U)
        self.register_buffer("rarity_U", rarity_U)
        self.register_buffer("votes_UC", votes_UC)
        self.register_buffer("bias_C", bias_C)

    def forward(self, terms_E: Tensor, counts_E: Tensor, bounds: Tensor) -> Tensor:
        """Logits `(B, C)` of texts that have the terms between `bounds`, int64 of B + 1."""
        at_E = torch.searchsorted(self.terms_U, terms_E).clamp(max=len(self.terms_U) - 1)
        weight_E = counts_E * self.rarity_U[at_E] * (self.terms_U[at_E] == terms_E)
        text_E = torch.arange(len(bounds) - 1).repeat_interleave(bounds.diff())
        squares_B = torch.zeros(len(bounds) - 1).index_add(0, text_E, weight_E.square())
        weight_E = weight_E * squares_B.clamp(min=1e-12).rsqrt()[text_E]
        votes_BC = F.embedding_bag(at_E, self.votes_UC, bounds[:-1], mode="sum", per_sample_weights=weight_E)
        return votes_BC + self.bias_C

    def of(self, counted: Counted) -> Tensor:
        """Logits `(B, C)` of counted texts."""
        terms_E, counts_E, bounds = counted
        return self(torch.tensor(terms_E, dtype=torch.int64), torch.tensor(counts_E), torch.tensor(bounds))

    def over(self, temperature: float) -> "LinearModel":
        """The one whose logits are those of this over `temperature`."""
        return LinearModel(
            self.terms_U, self.rarity_U, self.votes_UC / temperature, self.bias_C / temperature, self.terms
        )


@torch.inference_mode()
def linear_logits(linear: LinearModel, texts: Sequence[str], pairs: Sequence[str] | None) -> Tensor:
    """Its logits `(n, C)`."""
    found = [torch.empty(0, len(linear.bias_C))]
    for chunk in _chunks(texts, pairs):
        chunk_pairs = None if pairs is None else pairs[chunk]
        found.append(linear.of(counted(texts[chunk], chunk_pairs, linear.terms)))
    return torch.cat(found)


def _chunks(texts: Sequence[str], pairs: Sequence[str] | None) -> Iterator[slice]:
    """Rows that are answered at once: at most `AT_ONCE`, of at most `LETTERS_AT_ONCE`, or a single longer one."""
    start = n_letters = 0
    for at, text in enumerate(texts):
        more = len(text) + (len(pairs[at]) if pairs else 0)
        if at > start and (at - start == AT_ONCE or n_letters + more > LETTERS_AT_ONCE):
            yield slice(start, at)
            start, n_letters = at, 0
        n_letters += more
    if start < len(texts):
        yield slice(start, len(texts))


class LinearBaseline(NamedTuple):
    """The linear model alone, which a network has to beat. It is fitted once a run; with `thresholds` a text has any
    number of labels. Where `linear=true` it is the very model that is blended with the network."""

    linear: LinearModel
    thresholds: list[float] | None = None

    def logits(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Tensor:
        """`(n, C)`, fp32 on the CPU."""
        return linear_logits(self.linear, texts, pairs)


@dataclass(kw_only=True, slots=True)
class BaselineFile:
    """What baseline.json says of the tensors in baseline.safetensors."""

    terms: Terms = setting(Terms.words, "what is counted in a text")
    thresholds: list[float] = setting(list, "from which probability on each label is given", ge=0.0, le=1.0)


def write_linear(path: Path, linear: LinearModel) -> None:
    """Its tensors, in the same bytes for the same values."""
    save_file({name: tensor.contiguous() for name, tensor in linear.state_dict().items()}, path)


def read_linear(path: Path, n_classes: int, terms: Terms) -> LinearModel:
    """What `write_linear` has written.

    Raises:
        UserError: not a safetensors file; tensors missing, too many, of another shape or type, not finite, too
            large, or terms that do not ascend.
    """
    held = tensors_in(path)
    n_terms = held.get("terms_U", ("", [0]))[1][0:1]
    sizes = {"terms_U": n_terms, "rarity_U": n_terms, "votes_UC": [*n_terms, n_classes], "bias_C": [n_classes]}
    if held != {name: (kind, sizes[name]) for name, kind in KINDS.items()} or n_terms in ([], [0]):
        raise UserError(f"{path} does not hold the linear model of {n_classes} classes")
    tensors = load_file(path)
    bounded = all((tensors[name].abs() < MOST).all() for name in ("rarity_U", "votes_UC", "bias_C"))
    if not bounded or (tensors["terms_U"].diff() <= 0).any():
        raise UserError(f"{path} holds values that are not finite or not below a million, or terms out of order")
    return LinearModel(**tensors, terms=terms)


def write_baseline(folder: Path, baseline: LinearBaseline) -> None:
    """Both files of a baseline, in a run folder."""
    tensors, about = (folder / name for name in BASELINE)
    write_linear(tensors, baseline.linear)
    plain = to_plain(BaselineFile(terms=baseline.linear.terms, thresholds=baseline.thresholds or []))
    about.write_text(json.dumps(plain) + "\n", encoding="utf-8")


def read_baseline(folder: Path, n_classes: int, *, multi: bool) -> LinearBaseline | None:
    """What `write_baseline` has written; None where there is none."""
    tensors, written = (folder / name for name in BASELINE)
    if not tensors.is_file() or not written.is_file():
        return None
    try:
        about = from_plain(BaselineFile, read_json(written))
        check_ranges(about, "")
    except ValueError as error:
        raise UserError(f"{written}: {error}") from error
    if len(about.thresholds) != (n_classes if multi else 0):
        raise UserError(f"{written} holds {len(about.thresholds)} thresholds for {n_classes} classes")
    return LinearBaseline(read_linear(tensors, n_classes, about.terms), about.thresholds if multi else None)


def tensors_in(path: Path) -> dict[str, tuple[str, list[int]]]:
    """Type and shape of every tensor, from the header of the file alone.

    Raises:
        UserError: it is not a safetensors file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            return {name: (one.get_dtype(), list(one.get_shape())) for name, one in slices.items()}
    except SafetensorError as error:
        raise UserError(f"{path} is not a whole safetensors file: {error}") from error
