"""Static vectors of an encoder: what it says of each token of its vocabulary, read alone between the marks of a text,
and the vector that it looks up for the token.

Both are turned into their principal components, and rare words weigh more: Arora et al. (2017), "A Simple but
Tough-to-Beat Baseline for Sentence Embeddings", section 3, with Zipf's law for the frequency of a word, as vocabularies
list frequent tokens first. Tulkens and van Dongen (2024), "Model2Vec", do the same with what is said of a token alone.

V ids . B tokens read at once . L marks and a token . W width . D width of the vectors
"""

import logging

import torch
from tokenizers import Tokenizer
from torch import Tensor

import manyheads.plugin as plugin
from manyheads.config import ModelConfig
from manyheads.config.conversion import from_plain
from manyheads.data.tokenizer import PROBE, load_tokenizer
from manyheads.errors import UserError
from manyheads.inference.origin import Origin
from manyheads.inference.precision import cpu_multiplies_bf16
from manyheads.layout import Packed
from manyheads.plugins.static.vectors import scaled
from manyheads.training.weights import WORDS, Sizes, load_pretrained

AT_ONCE = 1024  # tokens that are read together
RARITY = 1e-4  # a of a / (a + p), p being how frequent a token is
log = logging.getLogger("manyheads")


def distilled_vectors(origin: Origin, wanted: Sizes) -> dict[str, Tensor]:
    """The table of words that `wanted` names, distilled from the encoder `origin.shape`; marks have zeros.

    Raises:
        UserError: the weights of the encoder are broken, or narrower than what is wanted.
    """
    encoder: Origin = origin.shape
    n_rows, width = wanted[WORDS]
    if width > encoder.model["d_model"]:
        raise UserError(
            f"model.d_model={width} is more than the {encoder.model['d_model']} that the encoder {origin.folder} has: "
            f"use {encoder.model['d_model']} at the most"
        )
    tokenizer = load_tokenizer(origin.tokenizer)
    vectors_VD = scaled_by_rarity(principal(token_vectors(encoder, tokenizer), width))
    return {WORDS: scaled(vectors_VD, origin, n_rows)}


@torch.inference_mode()
def token_vectors(encoder: Origin, tokenizer: Tokenizer) -> Tensor:
    """Two vectors of each id, side by side, `(V, W)`: the mean of what the encoder says of it and of the marks around
    it, and the row of the table of words. Each is centred, over the deviation that its elements had before."""
    log.info("each of %s tokens is read by %s", f"{encoder.vocab_size:,}", encoder.folder)
    probe = tokenizer.encode(PROBE)
    texts = probe.sequence_ids
    before = [id for id, text in zip(probe.ids[: texts.index(0)], texts, strict=False) if text is None]
    after = probe.ids[len(texts) - texts[::-1].index(0) :]
    with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and replaced
        network = plugin.resolve(plugin.task("classify").assemble)(
            from_plain(ModelConfig, encoder.model),
            vocab_size=encoder.vocab_size,
            max_length=encoder.max_length,
            n_classes=1,
        )
    load_pretrained(network, encoder)
    network.eval()
    said_VW = torch.empty(encoder.vocab_size, encoder.model["d_model"])
    for start in range(0, encoder.vocab_size, AT_ONCE):
        ids = torch.arange(start, min(start + AT_ONCE, encoder.vocab_size))[:, None]
        marked = [torch.tensor(marks).expand(len(ids), -1) for marks in (before, after)]
        ids_BL = torch.cat([marked[0], ids, marked[1]], dim=1).long()
        layout = Packed.of_lengths([ids_BL.shape[1]] * len(ids))
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu_multiplies_bf16()):
            x = network.encode(ids_BL.flatten(), layout)
        said_VW[start : start + len(ids)] = layout.grid(x.float()).mean(1)
    return torch.cat([(one - one.mean(0)) / one.std() for one in (said_VW, network.words.weight)], dim=1)


def principal(vectors_VW: Tensor, width: int) -> Tensor:
    """The `width` principal components of vectors: `(V, W)` to `(V, D)`. Their signs are fixed: the largest element of
    each direction is above zero."""
    centred_VW = vectors_VW.double() - vectors_VW.double().mean(0)
    _, directions_WW = torch.linalg.eigh(centred_VW.T @ centred_VW)  # ascending
    directions_WD = directions_WW.flip(1)[:, :width]
    largest_D = directions_WD.gather(0, directions_WD.abs().argmax(0, keepdim=True))
    return (centred_VW @ (directions_WD * largest_D.sign())).float()


def scaled_by_rarity(vectors_VD: Tensor) -> Tensor:
    """Vectors times a / (a + p), p being the share of a token in texts by Zipf's law."""
    share_V = 1 / torch.arange(2, len(vectors_VD) + 2, dtype=torch.float64)
    share_V /= share_V.sum()
    return vectors_VD * (RARITY / (RARITY + share_V))[:, None].float()
