"""Users' callbacks may watch and steer training, but not turn the network into another one."""

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch.distributed.fsdp import FSDPModule

from manyheads.errors import UserError
from manyheads.training import state


class NetworkGuard(Callback):
    """Refuses users' callbacks that change what a run could not save.

    They may freeze weights, change their values and watch. Refused are another architecture than the settings describe
    (before the first step, and at each epoch and validation), and a state that no checkpoint can hold. It comes after
    these callbacks.

    Args:
        module: as it is before the callbacks see it.
        callbacks: users' callbacks.
    """

    def __init__(self, module: pl.LightningModule, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks
        self._made, self._has_begun = _described(module), False

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._has_begun:
            self._has_begun = True
            for one in self.callbacks:
                state.check_pytree(one.state_dict())
            self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        found = _described(pl_module)
        for name in [*self._made, *found]:
            before, now = (one.get(name, "nothing") for one in (self._made, found))
            if before != now:
                raise UserError(
                    f"a callback ({', '.join(type(one).__name__ for one in self.callbacks)}) has changed the network, "
                    f"which could not be saved: {name} is {now} where the settings make {before}; remove the callback, "
                    "or train such a network under a Trainer of your own"
                )

    on_validation_start = on_train_end = on_train_epoch_start


def _described(module: pl.LightningModule) -> dict[str, str]:
    """The class of each module of the network, and dtype and shape of each tensor of its state, by name."""
    found: dict[str, str] = {}
    for name, one in module.named_modules():
        kind = next(kind for kind in type(one).__mro__ if not issubclass(kind, FSDPModule))
        found[name] = f"{kind.__qualname__} of {kind.__module__}" + (
            " with a forward of its own" * ("forward" in vars(one))
        )
    for name, tensor in module.state_dict().items():
        found[name] = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    return found
