"""model.safetensors: a classifier's tensors, checked against config.json before anything is allocated."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from manyheads.nn import Classifier, assemble
from manyheads.ship.settings import Settings

MOST_TABLE = 2**28  # numbers in tables that follow from config.json and are not in the file (positions)
Shapes = dict[str, tuple[str, list[int]]]


def write_tensors(path: Path, classifier: Classifier) -> None:
    """All parameters in fp32, in the same bytes for the same values."""
    save_file({name: value.detach().float().cpu().clone() for name, value in classifier.state_dict().items()}, path)


def read_classifier(path: Path, settings: Settings) -> Classifier:
    """Build the classifier of `settings` with the tensors of `path`; torch's generator is left as it was.

    Raises:
        ValueError: not a safetensors file; tensors missing, too many, of another shape or type, or not finite.
    """
    held = _held(path)
    _compare(path, held, settings)
    with torch.random.fork_rng(devices=[]):
        classifier = _assemble(settings)
    tensors = load_file(path)
    broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken:
        raise ValueError(f"{path}: tensor {broken} holds values that are not finite numbers")
    classifier.load_state_dict(tensors)
    return classifier.eval()


def _held(path: Path) -> Shapes:
    """Type and shape of every tensor, from the file's header alone."""
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            return {name: (one.get_dtype(), list(one.get_shape())) for name, one in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def _compare(path: Path, held: Shapes, settings: Settings) -> None:
    """Raise ValueError unless `held` is exactly what config.json describes."""
    model, beside = settings.model, f"{path} does not fit config.json beside it"
    n_held = sum(torch.Size(shape).numel() for _, shape in held.values())
    per_layer = model.n_heads * (model.d_k + model.d_v) + 2 * model.d_ff
    n_least = model.d_model * (settings.vocab_size + settings.n_classes + model.n_layers * per_layer)
    if n_least > n_held:
        raise ValueError(f"{beside}: it holds {n_held:,} numbers, but the model has at least {n_least:,}")
    with torch.device("meta"):
        classifier = _assemble(settings)
    wanted: Shapes = {name: ("F32", list(value.shape)) for name, value in classifier.state_dict().items()}
    for name in sorted(wanted.keys() ^ held.keys()):
        raise ValueError(f"{beside}: tensor {name!r} is {'missing' if name in wanted else 'not part of the model'}")
    for name, (kind, shape) in wanted.items():
        if held[name] != (kind, shape):
            raise ValueError(f"{beside}: tensor {name} is {held[name][0]} {held[name][1]}, not {kind} {shape}")
    n_table = sum(buffer.numel() for buffer in classifier.buffers())
    if n_table > MOST_TABLE:
        raise ValueError(f"{path.with_name('config.json')} asks for {n_table:,} numbers of position tables: too many")


def _assemble(settings: Settings) -> Classifier:
    return assemble(
        settings.model,
        vocab_size=settings.vocab_size,
        n_classes=settings.n_classes,
        max_length=settings.max_length,
        n_segments=2 if settings.pairs else 0,
    )
