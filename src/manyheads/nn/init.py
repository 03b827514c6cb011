"""Every initialisation, in one place.

words, positions, segments   normal, standard deviation d_model^-1/2; words are multiplied by √d_model
                             when read, so a word vector has unit variance (Vaswani et al., 2017, section 3.4)
W^Q, W^K, W^V, W1, W3        Xavier uniform, each matrix by itself although they are stored side by side
W, U and v of a score        Xavier uniform, each head's matrix by itself
W^O, W2                      the same, divided by √n of the n residual blocks of their stack, 2 a layer in an encoder
                             and 3 in a decoder: the residual stream keeps its size (Radford et al., 2019, "GPT-2",
                             section 2.3)
recurrent layers             each gate by itself: Xavier uniform from the input, orthogonal from the state
                             (Saxe et al., 2014)
the head, other matrices     Xavier uniform
biases zero, that of an LSTM's forget gate one (Jozefowicz et al., 2015, section 2.2); norms one
"""

import math

import torch
from torch import Tensor, nn

from manyheads.nn.classifier import Cross
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.recurrent import Recurrent, StateAttention
from manyheads.nn.scores import Cosine
from manyheads.nn.transformer import Decoder, Encoder, FeedForward, Residual


@torch.no_grad()
def initialise(model: nn.Module, *, zero_output: bool = False) -> None:
    """Draw all weights of a model, or of a block by itself, anew from torch's global generator.

    With `zero_output` W^O and W2 are zero, so that a fresh layer hands on what it gets: Zhang et al. (2019), "Fixup",
    section 3.
    """
    shrink = dict.fromkeys(model.modules(), 0.0) if zero_output else {}
    for stack in model.modules() if not zero_output else ():
        if isinstance(stack, Encoder | Decoder | Cross):
            blocks = [module.block for module in stack.modules() if isinstance(module, Residual)]
            shrink |= dict.fromkeys(blocks, 1 / math.sqrt(len(blocks)))
    drawn: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, MultiHeadAttention):
            if module.project is not None:
                _draw(module.project, blocks=module.widths)
            if isinstance(module.output, nn.Linear):
                _draw(module.output, gain=shrink.get(module, 1.0))
            _draw_score(module.score)
        elif isinstance(module, FeedForward):
            width = module.widen.out_features
            _draw(module.widen, blocks=(width // 2, width // 2) if module.is_gated else (width,))
            _draw(module.narrow, gain=shrink.get(module, 1.0))
        elif isinstance(module, StateAttention):
            _draw_score(module.score)
        elif isinstance(module, Recurrent):
            _draw_cells(module.cells)
        if isinstance(module, MultiHeadAttention | FeedForward):
            drawn.update(module.children())
    for module in reversed(list(model.modules())):  # the head first
        if isinstance(module, nn.Linear) and module not in drawn:
            _draw(module)


def _draw_cells(cells: nn.RNNBase) -> None:
    """Each gate's matrices by themselves; torch keeps an LSTM's gates in the order input, forget, cell, output."""
    for name, parameter in cells.named_parameters():
        if name.startswith("weight_ih"):
            for weight in parameter.split(cells.hidden_size):
                nn.init.xavier_uniform_(weight)
        elif name.startswith("weight_hh"):
            for weight in parameter.split(cells.hidden_size):
                nn.init.orthogonal_(weight)
        else:
            nn.init.zeros_(parameter)
            if isinstance(cells, nn.LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(parameter.split(cells.hidden_size)[1])


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
