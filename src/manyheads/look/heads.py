"""What of a classifier can be silenced: its heads, one at a time, and tokens of a text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from manyheads.nn import Classifier
from manyheads.nn.multihead import MultiHeadAttention


class Head(NamedTuple):
    """Where a head is: the layer and its place in it, both counted from 1."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.layer}.{self.head}"


def attentions(classifier: Classifier) -> list[MultiHeadAttention]:
    """The attention of each layer, first layer first, across the texts of a pair last; none in recurrent models."""
    return [one for one in classifier.modules() if isinstance(one, MultiHeadAttention)]


def heads(classifier: Classifier) -> list[Head]:
    """Every head, layer by layer."""
    return [
        Head(layer, head) for layer, one in enumerate(attentions(classifier), 1) for head in range(1, one.n_heads + 1)
    ]


@contextmanager
def without_head(classifier: Classifier, head: Head) -> Iterator[None]:
    """While the classifier answers, the context of one head is zero: Michel et al. (2019), "Are Sixteen Heads Really
    Better than One?", equation 3. It is as if its columns of W^O were zero.
    """
    attention = attentions(classifier)[head.layer - 1]
    slice_of_head = slice((head.head - 1) * attention.d_v, head.head * attention.d_v)

    def hook(output: nn.Module, args: tuple[Tensor]) -> Tensor:
        context = args[0].clone()
        context[..., slice_of_head] = 0.0
        return context

    handle = attention.output.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def silent(ids: Tensor, silence: Tensor) -> Tensor:
    """Token ids of which those where `silence` is true are marked for `with_silence`."""
    return torch.where(silence, ~ids, ids)  # ~id = -id - 1: negative, and the id is not lost


@contextmanager
def with_silence(classifier: Classifier) -> Iterator[None]:
    """While the classifier answers, ids that `silent` has marked have a word vector of zero.

    Position and segment stay, as with `model.dropout_tokens` in training: a model trained so has met such texts.
    """
    words = classifier.embeddings.words
    marked: list[Tensor] = []

    def before(embedding: nn.Module, args: tuple[Tensor]) -> Tensor:
        marked.append(args[0] < 0)
        return torch.where(marked[0], ~args[0], args[0])

    def after(embedding: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        return output.masked_fill(marked.pop()[..., None], 0.0)

    hooks = [words.register_forward_pre_hook(before), words.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
