"""AdamW that touches only those rows of an embedding that a batch reads.

R rows of a table . U different rows read . D d_model
"""

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

PERIOD = 128
"""Steps after which every row is brought up to date: so what is owed to a row is looked up in a short list."""


class LazyAdamW(torch.optim.AdamW):
    """AdamW whose step costs as much as the rows of a batch, not as all rows of its embeddings.

    While a row is not read its gradient is zero, and AdamW moves it along its fading momentum alone: i steps after
    it was last read, in step s, by lr_s √(1 - β2^s) / (1 - β1^s) (β1 / √β2)^i of m / (√v + ε). Only m and v are the
    row's own. The sum of the factors is the same for all rows last read in the same step: it is kept once, in `owed`,
    and a row is moved by it when it is read again. That is AdamW but for rounding and an ε that fades as √v does.

    A table is read through `nn.Embedding(sparse=True)`, whose gradient names its rows. Read in any other way, it has to
    be brought up to date by `settle` first. Tables do not decay. A step in which `found_inf` is one changes nothing and
    counts for nothing, as with torch's own fused steps.
    """

    found_inf: Tensor | None = None

    def __init__(
        self, groups: list[dict[str, Any]], tables: list[nn.Embedding], *, fused: bool = True, **settings: Any
    ) -> None:
        super().__init__(groups, fused=fused, **settings)
        self.tables = [table.weight for table in tables]
        for table in tables:
            table.sparse = True
            table.register_forward_pre_hook(self._before_reading)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = None if closure is None else closure()
        if self.tables and self.found_inf is not None and bool(self.found_inf):
            return loss
        gradients = [table.grad for table in self.tables]
        for table in self.tables:
            table.grad = None  # AdamW of torch knows no sparse gradients
        super().step()
        for table, gradient in zip(self.tables, gradients, strict=True):
            table.grad = gradient
            if gradient is not None:
                self._step_rows(table, gradient.coalesce())
        return loss

    @torch.no_grad()
    def settle(self) -> None:
        """Move every row to where AdamW would have moved it by now. One that was never read has no momentum."""
        for table in self.tables:
            if self.state.get(table):  # not [table], which would begin a state that a checkpoint holds
                self._catch_up(table, self.state[table]["exp_avg_sq"].amax(1).nonzero().squeeze(1))
                self.state[table]["now"].zero_()
                self.state[table]["since"].zero_()
                self.state[table]["owed"].zero_()

    @torch.no_grad()
    def _before_reading(self, table: nn.Module, ids: tuple[Tensor]) -> None:
        assert isinstance(table, nn.Embedding)
        if self.state.get(table.weight):
            read_R = torch.zeros(table.num_embeddings, dtype=torch.bool).index_fill_(0, ids[0].flatten(), True)
            self._catch_up(table.weight, read_R.nonzero().squeeze(1))

    def _catch_up(self, table: Tensor, rows_U: Tensor) -> None:
        _catch_up(table, rows_U, self.state[table], self._group(table))

    def _step_rows(self, table: Tensor, gradient: Tensor) -> None:
        """One step of AdamW for the rows that the batch read, which are up to date; the others are owed theirs."""
        state, group = self.started(table), self._group(table)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["now"] += 1
        step, now = int(state["step"]), int(state["now"])
        rate = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        missed = now - torch.arange(now)
        state["owed"][:now] += rate * (beta1 / beta2**0.5) ** missed
        rows_U, g_UD = gradient.indices()[0], gradient.values()
        m_UD = state["exp_avg"].index_select(0, rows_U).lerp_(g_UD, 1 - beta1)
        v_UD = state["exp_avg_sq"].index_select(0, rows_U).mul_(beta2).addcmul_(g_UD, g_UD, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows_U, m_UD)
        state["exp_avg_sq"].index_copy_(0, rows_U, v_UD)
        table.index_add_(0, rows_U, _direction(m_UD, v_UD, state, group), alpha=-rate)
        state["since"][rows_U] = state["now"]
        if now == PERIOD:
            self.settle()

    def started(self, table: Tensor) -> dict[str, Tensor]:
        """The table's state, all of it in the table's type: torch makes it so when a state is loaded."""
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        if "owed" not in state:  # as in the state of a plain AdamW
            state["now"] = table.new_zeros(())  # steps since all rows were up to date
            state["since"] = table.new_zeros(table.size(0))  # the step, of those, in which a row was read last
            state["owed"] = table.new_zeros(PERIOD + 1)  # by that step
        return state

    def _group(self, table: Tensor) -> dict[str, Any]:
        return next(group for group in self.param_groups if any(one is table for one in group["params"]))


def _catch_up(table: Tensor, rows_U: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """What AdamW does with zero gradients, for all the steps since the rows were read last."""
    since_U = state["since"].index_select(0, rows_U)
    owed_U1, missed_U1 = state["owed"].index_select(0, since_U.long())[:, None], (state["now"] - since_U)[:, None]
    m_UD, v_UD = (state[moment].index_select(0, rows_U) for moment in ("exp_avg", "exp_avg_sq"))
    table.index_add_(0, rows_U, _direction(m_UD, v_UD, state, group).mul_(-owed_U1))
    beta1, beta2 = group["betas"]
    state["exp_avg"].index_copy_(0, rows_U, m_UD.mul_(beta1**missed_U1))
    state["exp_avg_sq"].index_copy_(0, rows_U, v_UD.mul_(beta2**missed_U1))
    state["since"][rows_U] = state["now"]


def _direction(m_UD: Tensor, v_UD: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """m / (√v + ε), where ε is as large as beside the √v that is free of its bias."""
    unbiased = (1 - group["betas"][1] ** float(state["step"])) ** 0.5
    return m_UD / v_UD.sqrt().add_(group["eps"] * unbiased)


def settle(optimizers: list[Any]) -> None:
    """Bring the weights up to date before they are read by other means than a forward pass."""
    for optimizer in optimizers:
        if isinstance(optimizer, LazyAdamW):
            optimizer.settle()


@torch.no_grad()
def take_over(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimiser go on whose state was loaded from one of the other kind, AdamW or `LazyAdamW`: one process
    updates large embeddings by rows, several do not."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            state = optimizer.state.get(weight, {})
            if isinstance(optimizer, LazyAdamW) and any(weight is table for table in optimizer.tables):
                if state:
                    optimizer.started(weight)
            elif "owed" in state:
                _catch_up(weight, torch.arange(weight.size(0)), state, group)
                for name in ("now", "since", "owed"):
                    del state[name]


class Settle(Callback):
    """Brings the weights up to date before they are judged, kept or averaged: stands before the callbacks that do."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        settle(trainer.optimizers)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        settle(trainer.optimizers)
