"""Weights of a Hugging Face folder under our names. Nothing in them can run code, and nothing is left out in silence.

A table for each family says how it names what our blocks hold: read from right to left to load, back to save.

P positions . D width of the tables
"""

import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from manyheads.config.fields import listed, show
from manyheads.huggingface.shapes import Shape, weight_files

NEW = ("head.", "pooling.", "cross.", "embeddings.matches.")  # beginnings of our names that may start anew
OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}  # of norms in files of 2019
Weights = tuple[dict[str, list[int]], Callable[[str], Tensor]]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of the modules of one family, as in its class ForSequenceClassification.

    Attributes:
        inside: what stands before the names of the encoder, unless a file holds the encoder alone.
        modules: our module to theirs; `*` is the number of a layer, ` + ` joins those that lie side by side in ours.
        others: beginnings of names that are heads of this or another task: what is not asked for is left alone.
        segments: their table of segments, which is added to the positions where it has but one row.
        computed: ends of names of what follows from config.json.
    """

    inside: str
    modules: dict[str, str]
    others: tuple[str, ...]
    segments: str = ""
    computed: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")


def _of_bert(inside: str, *, pooler: str, head: str) -> dict[str, str]:
    """The names that BERT, RoBERTa and ELECTRA share, but for the word in front."""
    names = {
        "embeddings.words": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.segments": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.*.attention.block.project": "encoder.layer.*.attention.self.query + "
        "encoder.layer.*.attention.self.key + encoder.layer.*.attention.self.value",
        "encoder.layers.*.attention.block.output": "encoder.layer.*.attention.output.dense",
        "encoder.layers.*.attention.after": "encoder.layer.*.attention.output.LayerNorm",
        "encoder.layers.*.feed_forward.block.widen": "encoder.layer.*.intermediate.dense",
        "encoder.layers.*.feed_forward.block.narrow": "encoder.layer.*.output.dense",
        "encoder.layers.*.feed_forward.after": "encoder.layer.*.output.LayerNorm",
    }
    inner = {ours: " + ".join(inside + one for one in theirs.split(" + ")) for ours, theirs in names.items()}
    return inner | {"pooling.dense": pooler, "head": head}


BERT = Keys(
    inside="bert.",
    modules=_of_bert("bert.", pooler="bert.pooler.dense", head="classifier"),
    segments="bert.embeddings.token_type_embeddings",
    others=("bert.pooler.", "classifier.", "cls.", "qa_outputs."),
)

ROBERTA = Keys(
    inside="roberta.",
    modules=_of_bert("roberta.", pooler="classifier.dense", head="classifier.out_proj"),
    segments="roberta.embeddings.token_type_embeddings",
    others=("roberta.pooler.", "classifier.", "lm_head.", "qa_outputs."),
)

ELECTRA = Keys(
    inside="electra.",
    modules=_of_bert("electra.", pooler="classifier.dense", head="classifier.out_proj")
    | {"embeddings.widen": "electra.embeddings_project"},
    segments="electra.embeddings.token_type_embeddings",
    others=(
        *("classifier.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head."),
        "qa_outputs.",
    ),
)

DISTILBERT = Keys(
    inside="distilbert.",
    modules={
        "embeddings.words": "distilbert.embeddings.word_embeddings",
        "embeddings.positions": "distilbert.embeddings.position_embeddings",
        "embeddings.norm": "distilbert.embeddings.LayerNorm",
        "encoder.layers.*.attention.block.project": "distilbert.transformer.layer.*.attention.q_lin + "
        "distilbert.transformer.layer.*.attention.k_lin + distilbert.transformer.layer.*.attention.v_lin",
        "encoder.layers.*.attention.block.output": "distilbert.transformer.layer.*.attention.out_lin",
        "encoder.layers.*.attention.after": "distilbert.transformer.layer.*.sa_layer_norm",
        "encoder.layers.*.feed_forward.block.widen": "distilbert.transformer.layer.*.ffn.lin1",
        "encoder.layers.*.feed_forward.block.narrow": "distilbert.transformer.layer.*.ffn.lin2",
        "encoder.layers.*.feed_forward.after": "distilbert.transformer.layer.*.output_layer_norm",
        "pooling.dense": "pre_classifier",
        "head": "classifier",
    },
    others=("pre_classifier.", "classifier.", "vocab_", "qa_outputs."),
)

MODERNBERT = Keys(
    inside="model.",
    modules={
        "embeddings.words": "model.embeddings.tok_embeddings",
        "embeddings.norm": "model.embeddings.norm",
        "encoder.layers.*.attention.before": "model.layers.*.attn_norm",
        "encoder.layers.*.attention.block.project": "model.layers.*.attn.Wqkv",
        "encoder.layers.*.attention.block.output": "model.layers.*.attn.Wo",
        "encoder.layers.*.feed_forward.before": "model.layers.*.mlp_norm",
        "encoder.layers.*.feed_forward.block.widen": "model.layers.*.mlp.Wi",
        "encoder.layers.*.feed_forward.block.narrow": "model.layers.*.mlp.Wo",
        "encoder.norm": "model.final_norm",
        "pooling.dense": "head.dense",
        "pooling.norm": "head.norm",
        "head": "classifier",
    },
    others=("head.", "classifier.", "decoder."),
    computed=("inv_freq",),
)

KEYS = {"bert": BERT, "distilbert": DISTILBERT, "electra": ELECTRA, "modernbert": MODERNBERT, "roberta": ROBERTA}


def read_family(folder: str | Path, shape: Shape, wanted: Mapping[str, Iterable[int]]) -> dict[str, Tensor]:
    """The tensors of `folder` by our names, in fp32.

    Args:
        shape: what `read_shape` says of the folder.
        wanted: names and sizes of our network's state dict. Where it has fewer positions than the file, the first
            ones are read. A head or a pooler that is not in the file is not in the answer: it starts anew; one that
            is not wanted is left alone.

    Raises:
        ValueError: the weights are broken, lack what is wanted, hold what nobody wants, or are of other sizes.
    """
    keys = KEYS[shape.family]
    with _opened(Path(folder).expanduser()) as (held, tensor):
        there = _in_full(held, keys)
        plan = {name: theirs(name, keys, shape) for name in wanted}
        plan = {name: parts for name, parts in plan.items() if not _starts_anew(name, parts, there)}
        _compare(Path(folder), plan, there, keys, {name: list(size) for name, size in wanted.items()}, shape)
        read = {
            name: _joined(name, [_exact(tensor, there[part][0], folder) for part in parts], list(wanted[name]), shape)
            for name, parts in plan.items()
        }
    broken = [name for name, tensor in read.items() if not tensor.isfinite().all()]
    if broken:
        raise ValueError(f"init_from={folder}: {listed(broken)} hold values that are not finite numbers")
    return read


def _exact(read: Callable[[str], Tensor], name: str, folder: str | Path) -> Tensor:
    """The tensor `name` of a file.

    Raises:
        ValueError: it holds whole numbers or eight bits each, as quantised weights do, whose scales lie elsewhere.
    """
    tensor = read(name)
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(
            f"init_from={folder}: {name} is of type {kind}, as in quantised models, but weights of at least 16 bits "
            "are needed: name the model it was made from"
        )
    return tensor


def _in_full(sizes: dict[str, list[int]], keys: Keys) -> dict[str, tuple[str, list[int]]]:
    """Names as the table has them, to the file's own names and sizes."""
    is_bare = not any(name.startswith(keys.inside) for name in sizes)
    full = {}
    for name, size in sizes.items():
        stem, dot, end = name.rpartition(".")
        ours = stem + OLD_ENDS.get(dot + end, dot + end)
        full[keys.inside + ours if is_bare else ours] = (name, size)
    return full


def theirs(name: str, keys: Keys, shape: Shape) -> list[str]:
    """Names of the tensors that make up our tensor `name`.

    Raises:
        ValueError: the family has no such thing.
    """
    module, _, kind = name.rpartition(".")
    layer = re.search(r"\.(\d+)\.", module)
    parts = keys.modules.get(re.sub(r"\.\d+\.", ".*.", module, count=1))
    if parts is None and name.startswith(NEW):
        return []
    if parts is None:
        raise ValueError(f"{name} is part of the model, but a model of {shape.family} has none: remove that setting")
    found = [f"{part}.{kind}".replace("*", layer.group(1) if layer else "*") for part in parts.split(" + ")]
    if name == "embeddings.positions.weight" and shape.n_segments == 1:
        found.append(f"{keys.segments}.weight")
    return found


def _starts_anew(name: str, parts: list[str], there: Iterable[str]) -> bool:
    """Whether `name` is of a head or pooler that the file has nothing of."""
    modules = tuple(part.rpartition(".")[0] + "." for part in parts)
    return name.startswith(NEW) and not any(one.startswith(modules) for one in there)


def _compare(
    folder: Path,
    plan: dict[str, list[str]],
    there: dict[str, tuple[str, list[int]]],
    keys: Keys,
    wanted: dict[str, list[int]],
    shape: Shape,
) -> None:
    """Refuse what is missing, left over, or of another size."""
    used = {part for parts in plan.values() for part in parts}
    missing = sorted(used - there.keys())
    if missing:
        raise ValueError(
            f"init_from={folder} lacks {listed(missing)}, which its config.json asks for: fetch the model anew, or "
            "name another"
        )
    left = sorted(
        name for name in there.keys() - used if not name.startswith(keys.others) and not name.endswith(keys.computed)
    )
    if left:
        raise ValueError(
            f"init_from={folder} holds {listed(left)}, which its config.json does not ask for: fetch the model anew, "
            "or name another"
        )
    for name, parts in plan.items():
        sizes = [there[part][1] for part in parts]
        if not _fits(name, sizes, wanted[name], shape):
            shown = " + ".join(map(str, sizes))
            raise ValueError(f"init_from={folder}: {listed(parts)} is {shown}, but {name} is {wanted[name]}")


def _fits(name: str, sizes: list[list[int]], size: list[int], shape: Shape) -> bool:
    if not all(sizes):  # a number alone
        return False
    (n_rows, *width), *others = sizes
    if name == "embeddings.positions.weight":
        has_rows = n_rows >= shape.first_position + size[0]
        return has_rows and width == size[1:] and all(one == [1, *width] for one in others)
    return sum(one[0] for one in sizes) == size[0] and all(one[1:] == size[1:] for one in sizes)


def _joined(name: str, parts: list[Tensor], size: list[int], shape: Shape) -> Tensor:
    """Their tensors as ours: our words are multiplied by √D when read, and our positions begin at the first row."""
    if name == "embeddings.words.weight":
        return parts[0].float() / math.sqrt(size[1])
    if name == "embeddings.positions.weight":
        rows_PD = parts[0][shape.first_position : shape.first_position + size[0]].float()
        return rows_PD + parts[1].float() if len(parts) > 1 else rows_PD.clone()
    return torch.cat([part.float() for part in parts])


@contextmanager
def _opened(folder: Path) -> Iterator[Weights]:
    """The sizes of all tensors, and what reads one by its name. Of PyTorch's own files nothing but tensors is taken."""
    files = weight_files(folder)
    try:
        if files[0].suffix == ".safetensors":
            opened = [safe_open(file, framework="pt") for file in files]
            held = {name: file for file in opened for name in file.keys()}  # noqa: SIM118 (it is no dict)
            sizes = {name: list(file.get_slice(name).get_shape()) for name, file in held.items()}
            yield sizes, lambda name: held[name].get_tensor(name)
        else:
            tensors = {name: tensor for file in files for name, tensor in _unpickled(file).items()}
            yield {name: list(tensor.shape) for name, tensor in tensors.items()}, tensors.__getitem__
    except SafetensorError as error:
        raise ValueError(
            f"init_from={folder} holds no whole safetensors file ({show(error)}): fetch the model anew, or name another"
        ) from error
    except OSError as error:
        raise ValueError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from error


def _unpickled(file: Path) -> dict[str, Tensor]:
    """Raises ValueError: compressed or of an old format, which may ask for any memory, or more than plain tensors."""
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file} is of PyTorch's old format: save the model as safetensors by a current transformers")
    try:
        with zipfile.ZipFile(file) as archive:
            is_packed = any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist())
        content = None if is_packed else torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # its errors are many: of pickle, of the archive, of torch
        raise ValueError(f"{file} holds more than tensors, or is damaged: save the model as safetensors") from error
    if is_packed:
        raise ValueError(f"{file} is compressed, which PyTorch never does: save the model as safetensors")
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and type(tensor) is Tensor and tensor.layout is torch.strided
        for name, tensor in content.items()
    ):
        raise ValueError(f"{file} is not a list of named tensors: save the model as safetensors")
    return content
