"""Every initialisation, in one place.

words, positions, segments   normal, standard deviation d_model^-1/2; words are multiplied by √d_model
                             when read, so a word vector has unit variance (Vaswani et al., 2017, section 3.4)
W^Q, W^K, W^V, W1, W3        Xavier uniform, each matrix by itself although they are stored side by side
W, U and v of a score        Xavier uniform, each head's matrix by itself
W^O, W2                      the same, divided by √(2 n_layers): the residual stream keeps its size
                             (Radford et al., 2019, "GPT-2", section 2.3)
the classifier's head        Xavier uniform
biases zero, norms one
"""

import math

import torch
from torch import Tensor, nn

from manyheads.nn.classifier import Classifier
from manyheads.nn.feedforward import FeedForward
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.scores import Cosine


@torch.no_grad()
def initialise(classifier: Classifier) -> None:
    """Draw all weights anew from torch's global generator."""
    shrink = 1 / math.sqrt(2 * len(classifier.encoder.layers))
    for module in classifier.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, MultiHeadAttention):
            if module.project is not None:
                _draw(module.project, blocks=module.widths)
            if isinstance(module.output, nn.Linear):
                _draw(module.output, gain=shrink)
            _draw_score(module.score)
        elif isinstance(module, FeedForward):
            width = module.widen.out_features
            _draw(module.widen, blocks=(width // 2, width // 2) if module.is_gated else (width,))
            _draw(module.narrow, gain=shrink)
    _draw(classifier.head)
    score = getattr(classifier.pooling, "score", None)
    if isinstance(score, nn.Linear):
        _draw(score)


def _draw_score(score: nn.Module) -> None:
    """Matrices `(heads, K, K)` and vectors `(heads, K)`; the factor of the cosine starts where its config says."""
    for parameter in score.parameters():
        if isinstance(score, Cosine):
            parameter.fill_(math.log(score.first))
        elif parameter.ndim == 3:
            for weight_KK in parameter:
                nn.init.xavier_uniform_(weight_KK)
        else:
            nn.init.uniform_(parameter, -math.sqrt(6 / (parameter.size(1) + 1)), math.sqrt(6 / (parameter.size(1) + 1)))


def _draw(linear: nn.Linear, *, blocks: tuple[int, ...] | None = None, gain: float = 1.0) -> None:
    weights: tuple[Tensor, ...] = linear.weight.split(blocks or (linear.out_features,))
    for weight in weights:
        nn.init.xavier_uniform_(weight, gain=gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
