"""A Hugging Face folder to the shape of our model, without its weights. Standard library and config alone."""

from pathlib import Path
from typing import Any

from manyheads.config.plain import listed, one_of, show
from manyheads.family.given import Given
from manyheads.family.kinds import FAMILIES, Shape

FREE = ("pair", "pooling", "pooler", "dropout", "dropout_embedding", "dropout_residual", "dropout_classifier")
FREE += ("dropout_attention", "dropout_tokens", "zero_output", "matches")
"""Settings of a model that are no part of a family's weights: any may be typed beside a folder. What they add starts
anew, a pooler where the folder holds none."""

PINNED: dict[str, Any] = {  # what all families have, whatever our defaults become
    "encoder": "transformer",
    "bidirectional": True,
    "n_kv_heads": 0,
    "score": "scaled_dot",
    "scores": [],
    "normaliser": "softmax",
    "scale": None,
    "project": True,
    "project_output": True,
    "window": 0,
    "windows": [],
    "causal": False,
    "qk_norm": False,
    "norm": "layer",
    "dropout_tokens": 0.0,
}
INDICES = {"model.safetensors.index.json": ".safetensors", "pytorch_model.bin.index.json": ".bin"}


def read_shape(folder: str | Path) -> Shape:
    """The shape of the model in `folder`.

    Raises:
        ValueError: no such folder, a file is missing or broken, or a family or an option that our blocks cannot be.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise ValueError(
            f"init_from={folder} {what}: name a run, a folder with config.json, tokenizer.json and model.safetensors, "
            "or a model of the Hugging Face hub"
        )
    given = Given(folder / "config.json")
    kind = given.get("model_type", "")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"{given.path}: model_type={show(kind)} is none that manyheads reads: {one_of(list(FAMILIES))}"
        )
    _refuse_others(given)
    shape = FAMILIES[kind](given)
    shape.model.update({name: value for name, value in PINNED.items() if name not in shape.model})
    shape.model.update(_sentence_pooling(folder))
    try:
        shape.config()
    except ValueError as error:
        raise ValueError(f"{given.path}: {error}") from error
    _check_size(shape, folder)
    return shape


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights: safetensors if there are, else PyTorch's own.

    Raises:
        ValueError: there are none, or an index names what is not a file of the folder.
    """
    for name in ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"):
        if (folder / name).is_file():
            return _named_by(folder / name) if name in INDICES else [folder / name]
    if (folder / "pytorch_model.bin.index.json").is_file():
        return _named_by(folder / "pytorch_model.bin.index.json")
    raise ValueError(
        f"init_from={folder} has no weights that manyheads reads: it needs model.safetensors or pytorch_model.bin"
    )


def _named_by(index: Path) -> list[Path]:
    names = Given(index).get("weight_map", {})
    found = sorted({name for name in names.values() if isinstance(name, str)}) if isinstance(names, dict) else []
    bad = [name for name in found if Path(name).name != name or not name.endswith(INDICES[index.name])]
    if not found or bad:
        raise ValueError(f"{index} names {listed(bad) if bad else 'no files'}: it must name weights beside it")
    missing = [name for name in found if not (index.parent / name).is_file()]
    if missing:
        raise ValueError(f"{index} names {listed(missing)}, not in its folder: copy all files of the model")
    return [index.parent / name for name in found]


def _check_size(shape: Shape, folder: Path) -> None:
    """Refuse a config.json that asks for more memory than the files account for, before any is allocated."""
    model = shape.config()
    of_layer = model.d_model * (4 * model.n_heads * model.d_k + 2 * model.d_ff)
    n_least = model.width_of_words * shape.vocab_size + model.n_layers * of_layer
    n_bytes = sum(file.stat().st_size for file in weight_files(folder))
    if n_least > n_bytes:
        raise ValueError(
            f"{folder / 'config.json'} describes a model of at least {n_least:,} numbers, but its weights are "
            f"{n_bytes:,} bytes: the folder is not whole, copy all its files again"
        )


def _refuse_others(given: Given) -> None:
    """Options of any family that make another model of it."""
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        given.must_be(name, False)
    for name in ("quantization_config", "auto_map"):
        if given.get(name):
            raise given.wrong(name, given.get(name), "manyheads reads no such model: use one without")
    given.must_be("pruned_heads", {})
    given.must_be("position_embedding_type", "absolute")


def _sentence_pooling(folder: Path) -> dict[str, Any]:
    """Pooling as a folder of sentence-transformers has it beside the model, if it is one."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return {}
    given = Given(path)
    for ours, flag, name in (("first", "cls_token", "cls"), ("max", "max_tokens", "max")):
        if given.get(f"pooling_mode_{flag}") is True or given.get("pooling_mode") == name:
            return {"pooling": ours, "pooler": "none"}
    return {"pooling": "mean", "pooler": "none"}
