"""How rows are learnt whose label is a node: as any of the classes below it.

n rows . B rows of a batch . C classes
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.data.rows import Rows, Splits
from manyheads.linear.blend import best_temperature, label_tensor
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import linear_logits
from manyheads.plugins.hierarchy.config import typed_levels
from manyheads.training.objectives import label_losses

MOST_ROWS = 20_000  # by which likely classes are found
SHARPER = 4.0  # more says nothing more on banking77, less costs accuracy: docs/results/hierarchy.md


def loss_of(run: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The hook `Section.loss`."""
    return partial(node_losses, smoothing=run.optim.label_smoothing) if typed_levels(run.data) else None


def node_losses(logits_BC: Tensor, wanted: Tensor, is_node_B: Tensor | None = None, *, smoothing: float) -> Tensor:
    """The loss of each row `(B,)`: cross-entropy; of a node -log of the sum of the probabilities of the classes below
    it, one of which is right. Jin and Ghahramani (2002), "Learning with Multiple Labels".

    Args:
        wanted: class ids `(B,)`, or probabilities `(B, C)`, of a node above 0 for the classes below it alone.
        is_node_B: which rows are labelled by a node; None: none.
        smoothing: probability mass that is shared among all classes.
    """
    losses_B = label_losses(logits_BC, wanted, smoothing, multi=False)
    if is_node_B is None:
        return losses_B
    is_outside_BC, logs_BC = (wanted == 0) & is_node_B[:, None], logits_BC.log_softmax(-1)
    of_nodes_B = -logs_BC.masked_fill(is_outside_BC, -torch.inf).logsumexp(-1)
    return torch.where(is_node_B, (1 - smoothing) * of_nodes_B - smoothing * logs_BC.mean(-1), losses_B)


def likely_below(splits: Splits, rows: Rows) -> Any:
    """A class of each row `(n,)` for what learns from one, such as the linear model: one of those below its node, drawn
    by a linear model of the rows with a class, whose odds are taken to the power `SHARPER`. So it is the likeliest,
    unless others are about as likely. Without such a model all are."""
    logits_nC = torch.zeros(rows.probabilities.shape)
    linear = fit_linear(splits.train.sample(MOST_ROWS, 0), logits_nC.shape[1])
    if linear is not None:
        validation = splits.validation.sample(MOST_ROWS, 0)
        of_validation_nC = linear_logits(linear, validation.texts, validation.pairs)
        temperature = best_temperature(of_validation_nC, label_tensor(validation, logits_nC.shape[1]), torch.ones(()))
        logits_nC = linear_logits(linear, rows.texts, rows.pairs) * SHARPER / temperature
    chances_nC = logits_nC.masked_fill(torch.tensor(rows.probabilities == 0), -torch.inf).double().softmax(-1).numpy()
    drawn_n = np.random.default_rng(0).random(len(rows))
    return (chances_nC.cumsum(1) > drawn_n[:, None]).argmax(1).astype(np.int32)
