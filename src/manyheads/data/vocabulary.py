"""What a tokenizer's entries are: marks, words, and pieces that go on with a word. Torch and tokenizers only.

V entries, gaps between ids counted
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.data.tokens import reach

MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`mask` is the id that stands for a hidden token. Marks such as [CLS] are `special_V`, as are ids without an
    entry; a token of `begins_V` is not the rest of a word. A text has `n_marks` of them around."""

    mask: int
    special_V: Tensor
    begins_V: Tensor
    n_marks: int


def vocabulary(tokenizer: Tokenizer, *, pairs: bool) -> Vocabulary:
    """Read it.

    Raises:
        ValueError: there is no token that could stand for a hidden one.
    """
    mask = next((found for name in MASKS if (found := tokenizer.token_to_id(name)) is not None), None)
    if mask is None:
        raise ValueError(
            "tokenizer.path names a tokenizer without a token such as [MASK], which stands where a word is hidden: "
            "give another one, or leave it empty to train one"
        )
    entries = tokenizer.get_vocab(with_added_tokens=True)
    special = {at for at, one in tokenizer.get_added_tokens_decoder().items() if one.special} | {mask}
    special_V = torch.ones(reach(tokenizer, pairs=pairs).ids, dtype=torch.bool)
    special_V[[at for at in entries.values() if at not in special]] = False
    goes_on = _rest_of_word(tokenizer, [name for name, at in entries.items() if at not in special])
    begins_V = torch.ones_like(special_V)
    begins_V[[at for name, at in entries.items() if at not in special and goes_on(name)]] = False
    return Vocabulary(mask, special_V, begins_V, tokenizer.num_special_tokens_to_add(pairs))


def _rest_of_word(tokenizer: Tokenizer, names: list[str]) -> Callable[[str], bool]:
    """Tells whether a token goes on with the word before it, as this kind of tokenizer writes that."""
    model = json.loads(tokenizer.to_str())["model"]
    prefix = model.get("continuing_subword_prefix")
    if prefix:
        return lambda name: name.startswith(prefix)
    opening = next((one for one in ("\u0120", "\u2581") if any(name.startswith(one) for name in names)), None)
    if opening:
        return lambda name: not name.startswith(opening) and name[:1].isalnum()
    if all(len(name) == 1 for name in names):  # characters
        return str.isalnum
    return lambda name: False
