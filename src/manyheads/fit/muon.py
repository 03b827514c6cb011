"""Muon for the matrices of the layers, AdamW for all else.

A, B rows and columns of a block
"""

from typing import Any

import torch
from torch import Tensor, nn

from manyheads.fit.lazy import LazyAdamW
from manyheads.nn.feedforward import FeedForward
from manyheads.nn.multihead import MultiHeadAttention

MOMENTUM = 0.95
FACTORS = (3.4445, -4.7750, 2.0315)  # of x, x³ and x⁵: five rounds bring all from 0.01 to 1 near to 1
ROUNDS = 5
AS_ADAMW = 0.2  # the root mean square of a step of AdamW, in steps of its rate


class Muon(LazyAdamW):
    """Steps of `hidden` go by their momentum made orthogonal: Jordan et al. (2024), "Muon".

    Each block of a matrix by itself, as queries, keys and values lie in one, of A rows and B columns, by a step of
    0.2 √max(A, B) times the rate, which is as large as one of AdamW: Liu et al. (2025), "Muon is Scalable for LLM
    Training", section 2.2. So one rate serves all weights. Whatever `hidden` does not name is AdamW's, the `tables`
    by rows. A group holds parameters of one kind.

    Args:
        hidden: of each matrix the rows of its blocks.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        tables: list[nn.Embedding],
        hidden: dict[Tensor, tuple[int, ...]],
        **settings: Any,
    ) -> None:
        super().__init__(groups, tables, **settings)
        self.hidden = hidden

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = None if closure is None else closure()
        gradients = {matrix: matrix.grad for matrix in self.hidden if matrix.grad is not None}
        for matrix in gradients:
            matrix.grad = None  # so that AdamW leaves it alone
        super().step()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix in gradients:
                    self._step_matrix(matrix, gradients[matrix], group["lr"], group["weight_decay"])
        for matrix, gradient in gradients.items():
            matrix.grad = gradient
        return loss

    def _step_matrix(self, matrix: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
        """Nothing waits for the device: a step in which `found_inf` is one is made with factors of zero."""
        state, goes = self.state[matrix], torch.ones((), device=matrix.device)
        if not state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(matrix)
        state["step"] += 1  # which torch looks for where a state is loaded
        momentum = state["momentum"]
        if self.found_inf is not None:
            goes = goes - self.found_inf.to(matrix.device)
            gradient = torch.where(goes > 0, gradient, momentum)
        momentum.lerp_(gradient, 1 - MOMENTUM)
        ahead = gradient.lerp(momentum, MOMENTUM)  # as Nesterov looks ahead
        matrix.mul_(1 - lr * weight_decay * goes)
        for block_AB, step_AB in zip(matrix.split(self.hidden[matrix]), ahead.split(self.hidden[matrix]), strict=True):
            block_AB.sub_(orthogonal(step_AB) * (AS_ADAMW * lr * max(step_AB.shape) ** 0.5 * goes))


def orthogonal(matrix_AB: Tensor) -> Tensor:
    """U V of the matrix U S V, about: each singular value becomes one between 0.7 and 1.2, tiny ones less.

    A polynomial of the matrix is one of its singular values: Newton and Schulz's iteration with a steeper one
    (Jordan et al., 2024).
    """
    is_tall = matrix_AB.size(0) > matrix_AB.size(1)
    x = matrix_AB.T if is_tall else matrix_AB
    x = x.bfloat16() if x.is_cuda else x
    x = x / x.norm().clamp(min=1e-7)
    a, b, c = FACTORS
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if is_tall else x).to(matrix_AB.dtype)


def hidden_matrices(network: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """The matrices of attention and feed-forward blocks that learn, each with the rows of its blocks."""
    found: dict[Tensor, tuple[int, ...]] = {}
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            if module.project is not None:
                found[module.project.weight] = module.widths
            if isinstance(module.output, nn.Linear):
                found[module.output.weight] = (module.output.out_features,)
        elif isinstance(module, FeedForward):
            rows = module.widen.out_features
            found[module.widen.weight] = (rows // 2, rows // 2) if module.is_gated else (rows,)
            found[module.narrow.weight] = (module.narrow.out_features,)
    return {matrix: blocks for matrix, blocks in found.items() if matrix.requires_grad}


def apart(groups: list[dict[str, Any]], hidden: dict[Tensor, tuple[int, ...]], factor: float) -> list[dict[str, Any]]:
    """Each group parted in two where it holds some of `hidden`, which learn at `factor` times its rate."""
    parted = []
    for group in groups:
        of_muon = [one for one in group["params"] if one in hidden]
        parted.append({**group, "params": [one for one in group["params"] if one not in hidden]})
        if of_muon:
            parted.append({**group, "params": of_muon, "lr": factor * group["lr"]})
    return parted
