"""Logistic regression: the head, fitted before the first step where rows are few.

n rows . D features . C classes
"""

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_STEPS = 100


@torch.enable_grad()
def logistic(x_nD: Tensor, labels: Tensor, n_classes: int, *, strength: float) -> tuple[Tensor, Tensor]:
    """Matrix `(C, D)` and bias `(C,)` that answer `labels`, class ids `(n,)` or marks `(n, C)`.

    The minimum of the mean loss and a pull of the matrix to zero, from zero on by L-BFGS: so nothing is drawn.

    Args:
        strength: of each row against the pull; scikit-learn's C.
    """
    weight_CD = torch.zeros(n_classes, x_nD.shape[1], requires_grad=True)
    bias_C = torch.zeros(n_classes, requires_grad=True)
    solver = torch.optim.LBFGS([weight_CD, bias_C], max_iter=MOST_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        total = mean_loss(F.linear(x_nD, weight_CD, bias_C), labels)
        total = total + weight_CD.square().sum() / (2 * strength * len(x_nD))
        total.backward()
        return total

    solver.step(loss)
    return weight_CD.detach(), bias_C.detach()


def mean_loss(logits_nC: Tensor, labels: Tensor) -> Tensor:
    """Of class ids `(n,)`, or of marks `(n, C)`, of which a row has any number."""
    if labels.ndim == 1:
        return F.cross_entropy(logits_nC, labels)
    return F.binary_cross_entropy_with_logits(logits_nC, labels.float(), reduction="none").sum(1).mean()
