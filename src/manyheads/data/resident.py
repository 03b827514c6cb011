"""Tokens that live on a GPU: batches are gathered there, and the host sends it the rows' numbers alone."""

from dataclasses import replace

import torch

from manyheads.data.tokens import Tokens


def n_bytes(tokens: Tokens) -> int:
    """Of what `moved` moves."""
    parts = [one for one in (tokens.ids_N, tokens.segments_N, tokens.labels, tokens.teacher_nC) if one is not None]
    return sum(one.nbytes for one in parts) + (0 if tokens.targets is None else n_bytes(tokens.targets))


def moved(tokens: Tokens, device: torch.device) -> Tokens:
    """The same rows with ids, segments and labels on `device`; offsets stay on the host, where batches are planned."""
    return replace(
        tokens,
        ids_N=tokens.ids_N.to(device),
        segments_N=None if tokens.segments_N is None else tokens.segments_N.to(device),
        labels=tokens.labels.to(device),
        teacher_nC=None if tokens.teacher_nC is None else tokens.teacher_nC.to(device),
        targets=None if tokens.targets is None else moved(tokens.targets, device),
    )
