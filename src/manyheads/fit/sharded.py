"""Several processes that share the weights: each holds, updates and remembers a part of them alone.

Zhao et al. (2023), "PyTorch FSDP"; Rajbhandari et al. (2020), "ZeRO", stage 3. Each layer is gathered just before it
is gone through, forth and back, and let go behind; the rest of the network stays whole from the start of a step to its
gradients. These are added up and dealt out at once, so that a rank never holds more of them than those of one layer
beside its own part.
"""

import copy
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from manyheads.fit.cluster import Joined
from manyheads.fit.shards import whole
from manyheads.nn.decoder import Decoder
from manyheads.nn.encoder import Encoder


class Sharded(Joined):
    """Processes and groups as of DDP; but the network that is trained holds its weights in parts.

    It is a copy of the module's own, which has no weights meanwhile and gets them back, whole and on the CPU of every
    rank, when training has come to its end.
    """

    def model_to_device(self) -> None:
        module = self.lightning_module
        assert module is not None
        self._plain: Any = module.network
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        module.network = in_parts(self._plain, mesh)
        super().model_to_device()

    def configure_ddp(self) -> None:
        """Nothing is wrapped around the module. Its validations are of the whole network."""
        module = self.lightning_module
        assert module is not None
        module.trainer.callbacks.append(Gathered())  # type: ignore[attr-defined]

    def on_train_end(self) -> None:
        module: Any = self.lightning_module
        weights = {name: whole(tensor).cpu() for name, tensor in module.network.state_dict().items()}
        self._plain.load_state_dict(weights, assign=True)
        module.network = self._plain
        self.optimizers = []  # they know the parts alone

    def teardown(self) -> None:
        self.optimizers = []
        super().teardown()


def fsdp(timeout: float, *, on_gpu: bool) -> Sharded:
    """Each process has its part of the model, and of the gradients' mean; `timeout` as of `ddp`."""
    return Sharded(process_group_backend="nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout))


class Gathered(Callback):
    """The whole network on every rank for the time of a validation, in which ranks do not wait for each other: they may
    have differently many batches, and write differently long answers. Stands behind the callbacks that change weights.
    """

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for one in sharing(pl_module):
            one.set_reshard_after_forward(False, recurse=False)
            one.unshard()

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for one in sharing(pl_module):
            one.reshard()
            one.set_reshard_after_forward(one is not pl_module.network, recurse=False)


def in_parts(network: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """A copy of `network` that takes its weights, to hold of each the part of this rank; `network` has none any more.

    The layers and what is around them are gathered one by one.
    """
    taken = copy.deepcopy(network, {id(weight): weight for weight in network.parameters()})
    for module in network.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(torch.empty_like(weight, device="meta"), weight.requires_grad))
    layers = [layer for one in taken.modules() if isinstance(one, Encoder | Decoder) for layer in one.layers]
    for one in (*layers, taken):
        gathered = fully_shard(one, mesh=mesh)
        gathered.set_force_sum_reduction_for_comms(True)  # gloo takes a mean for a sum, and says nothing
    return taken


def sharing(module: nn.Module) -> list[FSDPModule]:
    """The modules that are gathered, each in one go."""
    return [one for one in module.modules() if isinstance(one, FSDPModule)]
