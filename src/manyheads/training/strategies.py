"""Several processes in Lightning's words: their environment, and weights of which each holds a part.

The environment starts no process and guesses nothing. Under FSDP each process holds, updates and remembers a part of
the weights alone: Zhao et al. (2023), "PyTorch FSDP"; Rajbhandari et al. (2020), "ZeRO", stage 3. Each layer is
gathered just before it is gone through, forth and back, and let go afterwards; the rest of the network stays whole from
the start of a step to its gradients. These are added up and dealt out at once, so a rank never holds more of them than
those of one layer beside its own part.

Parts become whole again and are parted anew here. A plain tensor passes through all of it unchanged, so whoever saves,
clips or averages need not ask how a run is spread. torch.distributed.checkpoint.state_dict knows models and optimisers
alone, not the mean of weights that a callback holds, and steps a fresh optimiser once to load its state: it would save
12 lines of these.
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
from manyheads.nn.transformer import Decoder, Encoder

LOOK = 0.05  # seconds between two looks into the store


def part(tensor: Tensor) -> Tensor:
    """What this rank holds of `tensor`, which may be nothing; what is done to it is done to the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(nest: Any, *, copied: bool = False) -> Any:
    """Dicts, lists and tuples with whole tensors in place of parts, on every rank; `copied`, in memory of their own on
    the CPU. All ranks call it at once."""
    if isinstance(nest, Tensor):
        tensor = nest.full_tensor() if isinstance(nest, DTensor) else nest
        return tensor.detach().to("cpu", copy=True) if copied else tensor
    if isinstance(nest, dict):
        return {key: whole(value, copied=copied) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(whole(value, copied=copied) for value in nest)
    return nest


def parted(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, which each rank has, held as `like` is: where that is in parts, and of the same shape, in parts.
    No rank waits for another."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def put_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load whole weights into a module that may hold its own in parts."""
    own = module.state_dict()
    module.load_state_dict({name: parted(value, own.get(name, value)) for name, value in weights.items()})


def put_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load the whole state of an optimiser whose parameters may be in parts."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    moments = {
        number: {name: parted(value, parameters[number]) for name, value in its.items()}
        for number, its in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": moments})


class Started(ClusterEnvironment):
    """The processes that `launch.py`, torchrun or srun has started, or one alone."""

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
        """It is what was started."""

    def global_rank(self) -> int:
        return self.ranks.rank

    def set_global_rank(self, rank: int) -> None:
        """It is what was started."""

    def local_rank(self) -> int:
        return self.ranks.local_rank

    def node_rank(self) -> int:
        return self.ranks.node


class Marks(Callback):
    """Says what the process is at: every optimiser step's beginning and end, and every batch of a validation."""

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


class Joined(DDPStrategy):
    """DDP, whose processes find each other also where torchrun has started them again.

    torchrun keeps one store for all its starts, in which the addresses of processes that are gone still stand; torch
    reads them as those of today. So the first process calls the others to a part of the store that is theirs alone.
    """

    def setup_distributed(self) -> None:
        ranks = this_process()
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not dist.is_initialized():
            timeout = self._timeout
            assert timeout is not None, "trainer.py gives one"
            store = gathered(TCPStore(*rendezvous(), is_master=False, timeout=timeout), ranks, timeout)
            where = {"store": store, "rank": ranks.rank, "world_size": ranks.n_ranks}
            dist.init_process_group(self.process_group_backend, timeout=timeout, **where)
        super().setup_distributed()


def gathered(store: Store, ranks: Ranks, timeout: timedelta) -> Store:
    """A part of `store` for those processes that are there now: each has answered the call of the first by a number of
    its own, and sees that number among those that the first goes on with; a `RuntimeError`, where it calls nobody."""
    own, until = secrets.token_hex(8), time.monotonic() + timeout.total_seconds()
    if ranks.is_first:
        keys = [f"manyheads/{own}/{rank}" for rank in range(1, ranks.n_ranks)]
        store.set("manyheads/call", own)
        store.wait(keys, timeout)
        store.set(f"manyheads/{own}/go", ",".join(store.get(key).decode() for key in keys))
        return PrefixStore(f"manyheads/{own}", store)
    while time.monotonic() < until:
        call = store.get("manyheads/call").decode()  # perhaps of one that is gone: then it is looked at again
        store.set(f"manyheads/{call}/{ranks.rank}", own)
        go = f"manyheads/{call}/go"
        if store.check([go]) and own in store.get(go).decode().split(","):
            return PrefixStore(f"manyheads/{call}", store)
        time.sleep(LOOK)
    raise RuntimeError(f"TCPStore: rank 0 has not called within {timeout.total_seconds():g} s")


class Sharded(Joined):
    """Processes and groups as of DDP; but the network that is trained holds its weights in parts.

    It is a copy of the module's own, which has no weights meanwhile and gets them back, whole and on the CPU of every
    rank, when training has come to its end.
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
