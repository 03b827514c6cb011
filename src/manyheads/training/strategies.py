"""Lightning's strategies for several processes: DDP, and FSDP, where each process holds a shard of the weights.

With FSDP (Zhao et al., 2023, "PyTorch FSDP"; Rajbhandari et al., 2020, "ZeRO", stage 3) each process keeps and updates
only its shard of each weight. A layer is gathered just before its forward and its backward pass and released after it;
the rest of the network stays gathered for a whole step. Gradients are summed and scattered layer by layer, so a process
never holds more than those of one layer and of its own shard.

`whole` and `shard_like` convert between full and sharded tensors and return plain tensors unchanged: code that saves,
clips or averages works with every strategy. torch.distributed.checkpoint.state_dict only knows models and optimisers,
not the average that a callback holds, and it steps a fresh optimiser once to load its state.
"""

import copy
import os
import secrets
import time
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import ClusterEnvironment  # pyright: ignore[reportPrivateImportUsage]
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from manyheads.distributed.heartbeat import beat
from manyheads.distributed.ranks import Ranks, rendezvous, this_process
from manyheads.nn.transformer import Stack

POLL = 0.05  # seconds between two reads of the store


def part(tensor: Tensor) -> Tensor:
    """This rank's shard of `tensor`, which may be empty; a view, so changing it changes the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(nest: Any, *, copied: bool = False) -> Any:
    """A pytree with sharded tensors gathered to full ones, on every rank. All ranks call it together.

    Args:
        copied: return copies on the CPU that share no memory.
    """
    if isinstance(nest, Tensor):
        tensor = nest.full_tensor() if isinstance(nest, DTensor) else nest
        return tensor.detach().to("cpu", copy=True) if copied else tensor
    if isinstance(nest, dict):
        return {key: whole(value, copied=copied) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(whole(value, copied=copied) for value in nest)
    return nest


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A full tensor, which each rank has, sharded as `like` is; unchanged if `like` is not sharded or of another shape.
    Without communication."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def put_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load full weights into a module that may be sharded."""
    own = module.state_dict()
    sharded = {name: shard_like(value, own.get(name, value)) for name, value in weights.items()}
    module.load_state_dict(sharded)


def put_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load the full state of an optimiser whose parameters may be sharded."""
    parameters = []  # by their number in the state
    for group in optimizer.param_groups:
        parameters += group["params"]
    moments = {}
    for number, held in state["state"].items():
        moments[number] = {name: shard_like(value, parameters[number]) for name, value in held.items()}
    optimizer.load_state_dict({**state, "state": moments})


class ExternalCluster(ClusterEnvironment):
    """The processes that launch.py, torchrun or srun has started, or a single one. It starts none itself."""

    def __init__(self) -> None:
        self.ranks = this_process()

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return rendezvous()[0]

    @property
    def main_port(self) -> int:
        return rendezvous()[1]

    @staticmethod
    def detect() -> bool:
        return True

    def world_size(self) -> int:
        return self.ranks.n_ranks

    def set_world_size(self, size: int) -> None:
        """Fixed by whoever started the processes."""

    def global_rank(self) -> int:
        return self.ranks.rank

    def set_global_rank(self, rank: int) -> None:
        """Fixed by whoever started the processes."""

    def local_rank(self) -> int:
        return self.ranks.local_rank

    def node_rank(self) -> int:
        return self.ranks.node


class HeartbeatCallback(Callback):
    """Heartbeat at step boundaries and at every batch of a validation, see distributed/heartbeat.py."""

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        beat(trainer.global_step, "training")

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Any) -> None:
        beat()

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        beat(trainer.global_step, "validation")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        beat(trainer.global_step, "training")


class RendezvousDDP(DDPStrategy):
    """DDP whose processes also find each other after torchrun has restarted them.

    torchrun keeps one store for all restarts, which still holds the addresses of dead processes, and torch would use
    them. So the processes of this start agree on a part of the store that is theirs alone.
    """

    def setup_distributed(self) -> None:
        ranks = this_process()
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not dist.is_initialized():
            timeout = self._timeout
            assert timeout is not None, "trainer.py gives one"
            store = current_store(TCPStore(*rendezvous(), is_master=False, timeout=timeout), ranks, timeout)
            dist.init_process_group(
                self.process_group_backend,
                timeout=timeout,
                store=store,
                rank=ranks.rank,
                world_size=ranks.n_ranks,
            )
        super().setup_distributed()


def current_store(store: Store, ranks: Ranks, timeout: timedelta) -> Store:
    """A part of `store` for the processes of this start.

    Rank 0 publishes a random key and waits until each other rank has answered under it with a random number of its own.
    Then it publishes these numbers; a rank that finds its own among them knows that the key is of this start.

    Raises:
        RuntimeError: rank 0 has not published within `timeout`.
    """
    own, until = secrets.token_hex(8), time.monotonic() + timeout.total_seconds()
    if ranks.is_first:
        keys = [f"manyheads/{own}/{rank}" for rank in range(1, ranks.n_ranks)]
        store.set("manyheads/call", own)
        store.wait(keys, timeout)
        store.set(f"manyheads/{own}/go", ",".join(store.get(key).decode() for key in keys))
        return PrefixStore(f"manyheads/{own}", store)
    while time.monotonic() < until:
        call = store.get("manyheads/call").decode()  # perhaps of a dead process: then it is read again
        store.set(f"manyheads/{call}/{ranks.rank}", own)
        go = f"manyheads/{call}/go"
        if store.check([go]) and own in store.get(go).decode().split(","):
            return PrefixStore(f"manyheads/{call}", store)
        time.sleep(POLL)
    raise RuntimeError(f"TCPStore: rank 0 has not called within {timeout.total_seconds():g} s")


class FullyShardedStrategy(RendezvousDDP):
    """FSDP with the processes and groups of DDP.

    What is trained is a sharded copy of the module's network. The network itself has no weights meanwhile; it gets them
    back after training, full and on the CPU of every rank.
    """

    def model_to_device(self) -> None:
        module = self.lightning_module
        assert module is not None
        self._plain: Any = module.network
        for tensor in self._plain.state_dict().values():  # those of the first, as DDP has it
            of_first = tensor.to(self.root_device)
            dist.broadcast(of_first, 0)
            tensor.copy_(of_first)
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        module.network = shard(self._plain, mesh)
        super().model_to_device()

    def configure_ddp(self) -> None:
        """Do not wrap the module, and gather the network for validations."""
        module = self.lightning_module
        assert module is not None
        module.trainer.callbacks.append(UnshardForValidation())  # type: ignore[attr-defined]

    def on_train_end(self) -> None:
        module: Any = self.lightning_module
        weights = {name: whole(tensor).cpu() for name, tensor in module.network.state_dict().items()}
        self._plain.load_state_dict(weights, assign=True)
        module.network = self._plain
        self.optimizers = []  # they hold the shards

    def teardown(self) -> None:
        self.optimizers = []
        super().teardown()


class UnshardForValidation(Callback):
    """Gathers the network on every rank for the time of a validation.

    There ranks cannot wait for each other at each layer: they may have different numbers of batches, and write answers
    of different lengths. It comes after the callbacks that change weights.
    """

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for one in fsdp_modules(pl_module):
            one.set_reshard_after_forward(False, recurse=False)
            one.unshard()

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for one in fsdp_modules(pl_module):
            one.reshard()
            one.set_reshard_after_forward(one is not pl_module.network, recurse=False)


def shard(network: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Move the weights of `network` to a copy of it, sharded over `mesh`; `network` is left with meta tensors.

    Each layer is gathered by itself, and the rest of the network together.
    """
    taken = copy.deepcopy(network, {id(weight): weight for weight in network.parameters()})
    for module in network.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(torch.empty_like(weight, device="meta"), weight.requires_grad))
    units: list[nn.Module] = []
    for module in taken.modules():
        if isinstance(module, Stack):
            units += module.layers
    for unit in (*units, taken):
        gathered = fully_shard(unit, mesh=mesh)
        gathered.set_force_sum_reduction_for_comms(True)  # gloo takes a mean for a sum, and says nothing
    return taken


def fsdp_modules(module: nn.Module) -> list[FSDPModule]:
    """The modules that are gathered as a unit."""
    return [one for one in module.modules() if isinstance(one, FSDPModule)]
