"""model.safetensors: a model's tensors, checked against config.json before anything is allocated."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from manyheads.nn import Classifier, assemble
from manyheads.nn.masked import MaskedLM, assemble_masked
from manyheads.nn.seq2seq import Seq2Seq, assemble_seq2seq
from manyheads.ship.settings import Settings
from manyheads.ship.sizes import check_size

Network = TypeVar("Network", bound=nn.Module)
Shapes = dict[str, tuple[str, list[int]]]


def write_tensors(path: Path, network: nn.Module) -> None:
    """All parameters in fp32, in the same bytes for the same values."""
    save_file({name: value.detach().float().cpu().clone() for name, value in network.state_dict().items()}, path)


def read_classifier(path: Path, settings: Settings) -> Classifier:
    """Build the classifier of `settings` with the tensors of `path`; torch's generator is left as it was.

    Raises:
        ValueError: not a safetensors file; tensors missing, too many, of another shape or type, or not finite.
    """

    def build() -> Classifier:
        return assemble(
            settings.model,
            vocab_size=settings.vocab_size,
            n_classes=settings.n_classes,
            max_length=settings.max_length,
            n_segments=2 if settings.pairs else 0,
        )

    return _read(path, settings, build)


def read_seq2seq(path: Path, settings: Settings) -> Seq2Seq:
    """The same of a model that answers by texts."""
    sizes = {"vocab_size": settings.vocab_size, "max_length": settings.max_length}
    return _read(path, settings, lambda: assemble_seq2seq(settings.model, **sizes))


def read_masked(path: Path, settings: Settings) -> MaskedLM:
    """The same of a model that tells hidden words."""
    sizes = {"vocab_size": settings.vocab_size, "max_length": settings.max_length}
    return _read(
        path, settings, lambda: assemble_masked(settings.model, **sizes, n_segments=2 if settings.pairs else 0)
    )


def _read(path: Path, settings: Settings, build: Callable[[], Network]) -> Network:
    held = _held(path)
    check_size(path, sum(torch.Size(shape).numel() for _, shape in held.values()), settings)
    with torch.random.fork_rng(devices=[]):
        network = build()
    _compare(path, held, network)
    tensors = load_file(path)
    broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken:
        raise ValueError(f"{path}: tensor {broken} holds values that are not finite numbers")
    network.load_state_dict(tensors)
    return network.eval()


def _held(path: Path) -> Shapes:
    """Type and shape of every tensor, from the file's header alone."""
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            return {name: (one.get_dtype(), list(one.get_shape())) for name, one in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def _compare(path: Path, held: Shapes, network: nn.Module) -> None:
    """Raise ValueError unless `held` is exactly what config.json describes."""
    beside = f"{path} does not fit config.json beside it"
    wanted: Shapes = {name: ("F32", list(value.shape)) for name, value in network.state_dict().items()}
    for name in sorted(wanted.keys() ^ held.keys()):
        raise ValueError(f"{beside}: tensor {name!r} is {'missing' if name in wanted else 'not part of the model'}")
    for name, (kind, shape) in wanted.items():
        if held[name] != (kind, shape):
            raise ValueError(f"{beside}: tensor {name} is {held[name][0]} {held[name][1]}, not {kind} {shape}")
