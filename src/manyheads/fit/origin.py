"""Trained weights put into a network; its head, and what else they have not, begin anew."""

import torch
from torch import nn

from manyheads.config import RunConfig
from manyheads.family.origin import Origin, find_origin
from manyheads.family.own import ADDED, POOLING, ROOMS, read_own
from manyheads.family.read import read_family

SEGMENTS = "embeddings.segments.weight"


def origin_of(run: RunConfig) -> Origin | None:
    """The weights that a run begins with, if any.

    Raises:
        ValueError: they cannot be found or used.
    """
    return find_origin(run.init_from) if run.init_from else None


def n_words(origin: Origin | None, n_ids: int, run: RunConfig) -> int:
    """Rows of the embedding for a tokenizer that gives `n_ids` ids: as many as the weights have, if there are any.

    Raises:
        ValueError: they have too few.
    """
    if origin is None:
        return n_ids
    if n_ids > origin.vocab_size:
        raise ValueError(
            f"tokenizer.path={run.tokenizer.path} gives {n_ids:,} ids, but the weights of init_from={run.init_from} "
            f"have {origin.vocab_size:,} words: it is not the tokenizer they were trained with"
        )
    return origin.vocab_size


@torch.no_grad()
def begin_with(network: nn.Module, origin: Origin | None) -> None:
    """Replace the embeddings, the encoder and, where it is the same, the pooling of `network`.

    What is added to the words and the weights lack, such as vectors of segments, is zero: so a text begins as what it
    was to them, a pair as the two texts it is made of.

    Raises:
        ValueError: the weights are not of the network's shape.
    """
    if origin is None:
        return
    own = network.state_dict()
    wanted = {name: list(value.shape) for name, value in own.items() if name.startswith((*ROOMS, POOLING))}
    if origin.own:
        found = read_own(origin.folder, wanted)
    else:
        assert origin.shape is not None
        new = [name for name in ADDED if name != SEGMENTS]
        found = read_family(origin.folder, origin.shape, {name: wanted[name] for name in wanted if name not in new})
    for name in ADDED:
        if name in wanted and name not in found:
            own[name].zero_()
    for name, value in found.items():
        own[name].copy_(value)
