"""What is nested is read back equal to the bit; a file of anybody's is read or refused in one sentence."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from manyheads.training.state import TYPES, load_pytree, save_pytree

NEST = {
    "optimizers": [{"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(4, 3)}}, "betas": (0.9, 0.999)}],
    "random": torch.get_rng_state(),
    "none": None,
    "numbers": [1, 2**62, -0.0, 0.1, float("inf"), float("nan"), True],
    "empty": [[], (), {}, torch.zeros(0, 3), ""],
}


def written(nest: Any, path: Path) -> Path:
    with path.open("wb") as file:
        save_pytree(nest, file)
    return path


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        bits = [tensor.flatten().view(torch.uint8) for tensor in (one, other)]
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
    return repr(one) == repr(other)


def test_a_nest_is_read_back_equal_to_the_bit(tmp_path: Path) -> None:
    assert same(load_pytree(written(NEST, tmp_path / "nest")), NEST)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_stands_where_it_may_be_read(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = [torch.ones(shape).to(dtype) for shape in ((), (3,), (2, 5))]
    mixed = [*tensors, torch.ones(3, dtype=torch.uint8), torch.ones(1, dtype=torch.float64), torch.ones(4, 3).T]
    path = written(mixed, tmp_path / "nest")
    assert same(load_pytree(path), mixed)
    assert len(load_file(path)) == len(mixed), "the library itself reads it"


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NESTS = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nest=NESTS)
def test_any_nest_survives(tmp_path: Path, nest: Any) -> None:
    assert same(load_pytree(written(nest, tmp_path / "nest")), nest)


HEADERS = [
    "[" * 100_000,
    '{"list": ' * 5000 + "1" + "}" * 5000,
    '{"tensor": "7"}',
    '{"dict": [[[], 1]]}',
    '{"dict": [1]}',
    '{"dict": 5}',
    "{}",
    '{"a": 1, "b": 2}',
    "",
    "9" * 5000,
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_a_strange_nest_is_one_sentence(header: str, tmp_path: Path) -> None:
    save_file({"0": torch.ones(2)}, tmp_path / "nest", metadata={"nest": header})
    with pytest.raises(ValueError, match=r"^\S+nest is not a state that manyheads saved \(") as caught:
        load_pytree(tmp_path / "nest")
    assert "\n" not in str(caught.value)


def test_any_damaged_byte_is_read_or_refused(tmp_path: Path) -> None:
    whole = written(NEST, tmp_path / "nest").read_bytes()
    draw = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole[: draw.choice([len(whole), draw.randrange(len(whole))])])
        for _ in range(draw.randrange(4) if damaged else 0):
            damaged[draw.randrange(min(len(damaged), 700))] = draw.randrange(256)
        (tmp_path / "damaged").write_bytes(damaged)
        said = ""
        try:
            load_pytree(tmp_path / "damaged")
        except ValueError as refused:
            said = str(refused)
        assert said.startswith(f"{tmp_path / 'damaged'} is not") or not said


def test_one_tensor_after_the_other_is_written(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    save_pytree([torch.zeros(100), torch.zeros(3, dtype=torch.int64)], buffer)
    content = buffer.getvalue()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["1"]["data_offsets"] == [0, 24]
    assert header["0"]["data_offsets"] == [24, 424]
    assert len(content) == 8 + int.from_bytes(content[:8], "little") + 424
