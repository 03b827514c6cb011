"""Texts to terms, and a linear classifier of them. Terms need the standard library alone.

Texts to the terms that a linear model counts: words and pairs of neighbouring words, runs of characters, or both.
Standard library only.

A text is composed (NFC, as our tokenizers do it: NFKC would also make `²` a `2`) and case-folded first. A word is a run
of letters, digits and the marks that stand on them, so that a word of Hindi, Thai, Arabic or Hebrew stays whole however
it is composed. Where no spaces stand between words, a "word" is a whole clause, and runs of characters are the terms.

E terms of all texts, end to end; text i has those from `bounds[i]` to `bounds[i + 1] - 1`

A linear classifier of the terms of a text, the rare ones weighed more, and how likely its answers are.

Salton and Buckley (1988), "Term-weighting approaches in automatic text retrieval": the weight of a term is how often
the text has it, times its inverse document frequency, over the length of the text's vector.

U known terms . E terms of all texts . B, n texts . C classes
"""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import Terms

SHORTEST, LONGEST = 2, 4  # characters of a run: with one of five as good, and half as many terms again
ZERO_WIDTH_SPACE = 0x200B  # stands between words of Thai, Khmer or Burmese
UNSPACED = re.compile(  # Thai, Lao, Burmese, Khmer, kana and Han, Javanese and Tai scripts, rare Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua980-\ua9df\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Counted(NamedTuple):
    """The numbers of the terms of each text, each once (int64), and how often it has them (float)."""

    terms_E: "array[int]"
    counts_E: "array[float]"
    bounds: "array[int]"


class _Letters(dict[int, int | None]):
    """For str.translate: what is part of a word stays, what cannot be seen goes, anything else becomes a space."""

    def __missing__(self, code: int) -> int | None:
        letter, kind = chr(code), unicodedata.category(chr(code))
        unseen = kind == "Cf" or "VARIATION SELECTOR" in unicodedata.name(letter, "")
        if code == ZERO_WIDTH_SPACE:
            found = ord(" ")
        elif unseen:
            found = None
        else:
            found = code if letter.isalnum() or letter == "_" or kind.startswith("M") else ord(" ")
        self[code] = found
        return found


_LETTERS = _Letters()


def folded(text: str) -> str:
    """What letters a text has, however they were composed and whether they are capital."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def words_of(text: str) -> list[str]:
    """Its words, in their order."""
    return folded(text).translate(_LETTERS).split()


def runs_of(text: str) -> Iterator[str]:
    """All its runs of two to four characters, of which white space is one; a line break before each keeps them apart
    from words. One by one, as those of a long text would fill the memory."""
    letters = f" {' '.join(folded(text).split())} "
    if len(letters) > SHORTEST:
        for n in range(SHORTEST, LONGEST + 1):
            yield from (f"\n{letters[at : at + n]}" for at in range(len(letters) - n + 1))


def terms_of(text: str, pair: str | None = None, kind: Terms = Terms.words) -> Iterator[str]:
    """The terms of a text; of a pair what both texts have, what one of them has alone, and how many terms of each sort
    these are. Their order is the same in every process."""
    if pair is None:
        for terms in _sorts(text, kind).values():
            yield from terms
        return
    others = _sorts(pair, kind)
    for sort, terms in _sorts(text, kind).items():
        one, other = set(terms), set(others[sort])
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


def number_of(term: str) -> int:
    """32 bits that stand for a term, the same everywhere."""
    return crc32(term.encode("utf-8", "surrogatepass"))


def unspaced(texts: Sequence[str]) -> bool:
    """Whether a tenth of the letters are of scripts that put no spaces between words."""
    n_letters = sum(len(word) for text in texts for word in words_of(text))
    return 10 * sum(len(UNSPACED.findall(text)) for text in texts) > n_letters


def _sorts(text: str, kind: Terms) -> dict[str, Iterable[str]]:
    """The terms of a text by their sorts, as how many a pair has alone is said of each."""
    found: dict[str, Iterable[str]] = {}
    if kind is not Terms.characters:
        words = words_of(text)
        found |= {"": words, " neighbours": (f"{one} {other}" for one, other in pairwise(words))}
    if kind is not Terms.words:
        found[" runs"] = runs_of(text)
    return found


TEMPERATURES = [2 ** (at / 4) for at in range(-8, 9)]
LEAST = 1e-30  # of a probability


class LinearModel(nn.Module):
    """Terms are known by their numbers, `terms_U`, which ascend; a term that is not among them counts for nothing.
    `rarity_U` are the inverse document frequencies. `terms` says what is counted in a text: see linear/model.py."""

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

    def of(self, counted: tuple[Any, Any, Any]) -> Tensor:
        """Logits `(B, C)` of texts whose terms are counted as linear/model.py does it."""
        terms_E, counts_E, bounds = counted
        return self(torch.tensor(terms_E, dtype=torch.int64), torch.tensor(counts_E), torch.tensor(bounds))

    def over(self, temperature: float) -> "LinearModel":
        """The one whose logits are those of this over `temperature`."""
        return LinearModel(
            self.terms_U, self.rarity_U, self.votes_UC / temperature, self.bias_C / temperature, self.terms
        )

    @property
    def terms_name(self) -> str:
        """What is counted, as tables and reports say it."""
        return self.terms.value


def counting(labels: Tensor, weights_C: Tensor | None) -> Tensor | None:
    """How much each of what `given` gives counts."""
    if weights_C is None:
        return None
    weights_C = weights_C.double()
    return weights_C[labels] if labels.ndim == 1 else torch.where(labels > 0, weights_C, 1.0)


def likeliest(logits_nC: Tensor, labels: Tensor, weights: Tensor | None) -> float:
    """The temperature with which the labels are likeliest."""
    return max(TEMPERATURES, key=lambda one: likelihood(given(logits_nC / one, labels), weights))


def likelihood(given: Tensor, weights: Tensor | None) -> float:
    """Logarithm of that of all rows."""
    logs = given.clamp(min=LEAST).log()
    return float((logs if weights is None else logs * weights).sum())


def log_given(logits_nC: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """The logarithms of `given`, by how much each counts."""
    logs = given(logits_nC, labels).clamp(min=LEAST).log()
    return logs if weights is None else logs * weights


def given(logits_nC: Tensor, labels: Tensor) -> Tensor:
    """The probabilities of what rows are labelled: of their classes `(n,)`, or of having or not having each label
    `(n, C)`."""
    if labels.ndim == 1:
        return logits_nC.double().softmax(-1).gather(1, labels[:, None]).squeeze(1)
    return (logits_nC.double() * (2 * labels.double() - 1)).sigmoid()
