"""Plain values and tensors, nested in each other, as one safetensors file: nothing that is read back can be code.

The nest is JSON in the file's header, where a tensor stands as its number.
"""

import json
from pathlib import Path
from typing import IO, Any

import safetensors
import torch
from torch import Tensor

TYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_nest(nest: Any, file: IO[bytes]) -> None:
    """Write dicts, lists, tuples, numbers, texts, None and tensors, one tensor after the other, without a copy."""
    tensors: list[Tensor] = []
    header: dict[str, Any] = {"__metadata__": {"nest": json.dumps(_apart(nest, tensors))}}
    end = 0
    aligned = sorted(enumerate(tensors), key=lambda one: -one[1].element_size())
    for number, tensor in aligned:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[str(number)] = {"dtype": TYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write(len(head).to_bytes(8, "little") + head)
    for _, tensor in aligned:
        if tensor.numel():
            file.write(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)


def read_nest(path: Path) -> Any:
    """What `write_nest` wrote, equal to the bit, in the same types; the file may be anybody's.

    Raises:
        ValueError: it is no such file; names it.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            # copies: what is mapped would die with the file
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
            nest = (file.metadata() or {})["nest"]
        return _together(json.loads(nest), tensors)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as problem:
        why = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ValueError(f"{path} is not a state that manyheads saved ({type(problem).__name__}: {why})") from problem


def _apart(nest: Any, tensors: list[Tensor]) -> Any:
    """As JSON; tensors are added to `tensors`."""
    if isinstance(nest, Tensor):
        tensors.append(nest)
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(nest, dict):
        assert all(type(key) in (str, int) for key in nest)
        return {"dict": [[key, _apart(value, tensors)] for key, value in nest.items()]}
    if isinstance(nest, list | tuple):
        kind = "list" if isinstance(nest, list) else "tuple"
        return {kind: [_apart(value, tensors) for value in nest]}
    assert nest is None or type(nest) in (bool, int, float, str), type(nest)
    return nest


def _together(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, held),) = plain.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "dict":
        return {key: _together(value, tensors) for key, value in held}
    values = [_together(value, tensors) for value in held]
    return values if kind == "list" else tuple(values)
