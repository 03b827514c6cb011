"""What the ids of a tokenizer are to a model that fills in masked words.

V entries of a tokenizer, gaps between ids counted
"""

import json
from dataclasses import dataclass

import torch
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from manyheads.data.tokenizer import MARKS, tokenizer_sizes
from manyheads.errors import UserError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the ids of a tokenizer are, for a model that fills in masked words.

    Attributes:
        mask: the id of the mark in the place of a masked token.
        special_V: bool; True for marks such as [CLS] and for ids without an entry.
        n_marks: marks around a text.
    """

    mask: int
    special_V: Tensor
    n_marks: int


def vocabulary(tokenizer: Tokenizer, *, pairs: bool) -> Vocabulary:
    """The vocabulary of a tokenizer.

    Raises:
        UserError: it has no mask.
    """
    masks = [tokenizer.token_to_id(name) for name in MARKS["mask"]]
    mask = masks[0] if masks[0] is not None else masks[1]
    if mask is None:
        raise UserError(
            "tokenizer.path names a tokenizer without a token such as [MASK], which stands where a word is hidden: "
            "give another one, or leave it empty to train one"
        )
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special} | {mask}
    special_V = torch.ones(tokenizer_sizes(tokenizer, pairs=pairs).n_ids, dtype=torch.bool)
    entries = tokenizer.get_vocab(with_added_tokens=True).values()
    special_V[[id for id in entries if id not in special]] = False
    return Vocabulary(mask, special_V, tokenizer.num_special_tokens_to_add(pairs))


def reading_mask(tokenizer: Tokenizer, mask: str) -> Tokenizer:
    """A copy for which `mask`, alone of all marks, is the mark where it is typed in a text."""
    content = json.loads(tokenizer.to_str())
    for one in content["added_tokens"]:
        one["special"] &= one["content"] != mask
    copy = Tokenizer.from_str(json.dumps(content))
    copy.add_tokens([AddedToken(mask, normalized=False)])  # where the model has it, but nothing says that it is a mark
    copy.encode_special_tokens = True
    assert copy.token_to_id(mask) == tokenizer.token_to_id(mask)
    return copy
