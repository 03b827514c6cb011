"""The weights of a folder of Hugging Face by our names. Parts that may start anew, such as the head, can be missing.

A table for each family says how it names the modules that our blocks have; export reads it the other way. Nothing in
the files can run code, and a tensor that nothing reads is an error.

P positions . D width of the tables
"""

import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from manyheads.config.sentences import format_value, list_names
from manyheads.errors import UserError
from manyheads.inference.origin import Origin
from manyheads.plugins.hub.families import Shape
from manyheads.plugins.hub.shapes import weight_files
from manyheads.training.weights import MATCHES, POSITIONS, WORDS, Sizes

NEW = ("head.", "pooling.", "cross.", "embeddings.matches.")  # beginnings of our names that may start anew
COMPUTED = ("embeddings.position_ids", "embeddings.token_type_ids")
OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}  # of norms in files of 2019


class HeldTensor(NamedTuple):
    """A tensor that a folder holds: its name in the file, and its size."""

    name: str
    size: list[int]


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files of weights of a folder: the sizes of all tensors by name, and `read`, which gives one by its name."""

    sizes: Sizes
    read: Callable[[str], Tensor]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of the modules of one family, as in its class ForSequenceClassification.

    Attributes:
        inside: the prefix of the names of the encoder, unless a file holds the encoder alone.
        inner: our module to theirs in the encoder.
        layer: the prefix of the number of a layer.
        of_layer: our module of a layer to theirs; ` + ` joins those that are concatenated in ours.
        new: our modules that may start anew to theirs, in full.
        others: beginnings of names of heads, of this or another task, which may be left over.
        computed: ends of names of tensors that follow from config.json, which may be left over.
    """

    inside: str
    inner: dict[str, str]
    layer: str
    of_layer: dict[str, str]
    new: dict[str, str]
    others: tuple[str, ...]
    computed: tuple[str, ...] = COMPUTED

    @property
    def segments(self) -> str:
        """Their table of segments; one of a single row is added to the positions."""
        return f"{self.inside}embeddings.token_type_embeddings.weight"

    def modules(self, ours: str) -> list[str]:
        """Full names of their modules that make up our module; empty: the family has none."""
        if ours in self.inner:
            return [self.inside + self.inner[ours]]
        of_layer = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)", ours)
        if of_layer:
            number, module = of_layer.groups()
            if module not in self.of_layer:
                return []
            return [f"{self.inside}{self.layer}.{number}.{name}" for name in self.of_layer[module].split(" + ")]
        if ours in self.new:
            return [self.new[ours]]
        return []


OF_BERT = {
    "embeddings.words": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.segments": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
OF_BERTS_LAYER = {
    "attention.block.project": "attention.self.query + attention.self.key + attention.self.value",
    "attention.block.output": "attention.output.dense",
    "attention.after": "attention.output.LayerNorm",
    "feed_forward.block.widen": "intermediate.dense",
    "feed_forward.block.narrow": "output.dense",
    "feed_forward.after": "output.LayerNorm",
}
TWO_LAYERS = {"pooling.dense": "classifier.dense", "head": "classifier.out_proj"}
KEYS = {
    "bert": Keys(
        *("bert.", OF_BERT, "encoder.layer", OF_BERTS_LAYER),
        {"pooling.dense": "bert.pooler.dense", "head": "classifier"},
        ("bert.pooler.", "classifier.", "cls.", "qa_outputs."),
    ),
    "roberta": Keys(
        *("roberta.", OF_BERT, "encoder.layer", OF_BERTS_LAYER, TWO_LAYERS),
        ("roberta.pooler.", "classifier.", "lm_head.", "qa_outputs."),
    ),
    "electra": Keys(
        "electra.",
        OF_BERT | {"embeddings.widen": "embeddings_project"},
        *("encoder.layer", OF_BERTS_LAYER, TWO_LAYERS),
        ("classifier.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head.", "qa_outputs."),
    ),
    "distilbert": Keys(
        "distilbert.",
        {ours: theirs for ours, theirs in OF_BERT.items() if ours != "embeddings.segments"},
        "transformer.layer",
        {
            "attention.block.project": "attention.q_lin + attention.k_lin + attention.v_lin",
            "attention.block.output": "attention.out_lin",
            "attention.after": "sa_layer_norm",
            "feed_forward.block.widen": "ffn.lin1",
            "feed_forward.block.narrow": "ffn.lin2",
            "feed_forward.after": "output_layer_norm",
        },
        {"pooling.dense": "pre_classifier", "head": "classifier"},
        ("pre_classifier.", "classifier.", "vocab_", "qa_outputs."),
    ),
    "modernbert": Keys(
        "model.",
        {
            "embeddings.words": "embeddings.tok_embeddings",
            "embeddings.norm": "embeddings.norm",
            "encoder.norm": "final_norm",
        },
        "layers",
        {
            "attention.before": "attn_norm",
            "attention.block.project": "attn.Wqkv",
            "attention.block.output": "attn.Wo",
            "feed_forward.before": "mlp_norm",
            "feed_forward.block.widen": "mlp.Wi",
            "feed_forward.block.narrow": "mlp.Wo",
        },
        {"pooling.dense": "head.dense", "pooling.norm": "head.norm", "head": "classifier"},
        ("head.", "classifier.", "decoder."),
        ("inv_freq",),
    ),
    "deberta": Keys(
        "deberta.",
        {
            **OF_BERT,
            "encoder.distances.rows": "encoder.rel_embeddings",
            "encoder.distances.norm": "encoder.LayerNorm",
            "encoder.layers.0.convolution": "encoder.conv.conv",
            "encoder.layers.0.norm": "encoder.conv.LayerNorm",
        },
        "encoder.layer",
        {
            **OF_BERTS_LAYER,
            "attention.block.project": " + ".join(f"attention.self.{name}_proj" for name in ("query", "key", "value")),
            "attention.block.distance_key": "attention.self.pos_key_proj",
            "attention.block.distance_query": "attention.self.pos_query_proj",
        },
        {"pooling.dense": "pooler.dense", "head": "classifier"},
        ("pooler.", "classifier.", "cls.", "lm_predictions.", "mask_predictions.", "qa_outputs."),
        # kept, but not read, where position_biased_input or relative_attention is false
        (*COMPUTED, "embeddings.position_embeddings.weight", "encoder.LayerNorm.weight", "encoder.LayerNorm.bias"),
    ),
}


def read_family(folder: str | Path, shape: Shape, wanted: Mapping[str, Iterable[int]]) -> dict[str, Tensor]:
    """The tensors of `folder` by our names, in fp32.

    Args:
        shape: what `read_shape` says of the folder.
        wanted: names and sizes of our network's state dict. Where it has fewer positions than the file, the first
            ones are read. A head or a pooler that is not in the file is left out: it starts anew; one that is not
            wanted is not read.

    Raises:
        UserError: the weights are broken, lack a tensor, hold one that nothing reads, or are of other sizes.
    """
    sizes = {name: list(size) for name, size in wanted.items()}
    with open_weights(Path(folder).expanduser()) as files:
        held = by_full_name(files.sizes, KEYS[shape.family])
        plan: dict[str, list[str]] = {}  # by our name, the names of their tensors
        for name in wanted:
            parts = theirs(name, shape)
            if name.startswith(NEW) and not holds_module(held, parts):
                continue
            plan[name] = parts
        check_tensors(Path(folder), plan, held, sizes, shape)
        read: dict[str, Tensor] = {}
        for name, parts in plan.items():
            tensors = []
            for part in parts:
                tensor = files.read(held[part].name)
                if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:  # whose scales are in other tensors
                    dtype = str(tensor.dtype).removeprefix("torch.")
                    raise UserError(
                        f"init_from={folder}: {held[part].name} is of type {dtype}, as in quantised models, but "
                        "weights of at least 16 bits are needed: name the model it was made from"
                    )
                tensors.append(tensor)
            read[name] = join(name, tensors, sizes[name], shape)
    broken = [name for name, tensor in read.items() if not tensor.isfinite().all()]
    if broken:
        raise UserError(f"init_from={folder}: {list_names(broken)} hold values that are not finite numbers")
    return read


def by_full_name(sizes: Sizes, keys: Keys) -> dict[str, HeldTensor]:
    """The tensors of a file, by the names that the table has."""
    is_encoder_alone = not any(name.startswith(keys.inside) for name in sizes)
    held = {}
    for name, size in sizes.items():
        module, dot, kind = name.rpartition(".")
        full = module + OLD_ENDS.get(dot + kind, dot + kind)
        if is_encoder_alone:
            full = keys.inside + full
        held[full] = HeldTensor(name, size)
    return held


def holds_module(held: Iterable[str], parts: list[str]) -> bool:
    """Whether a file has any tensor of the modules that the tensors `parts` belong to."""
    modules = tuple(f"{part.rpartition('.')[0]}." for part in parts)
    return any(name.startswith(modules) for name in held)


def theirs(name: str, shape: Shape) -> list[str]:
    """Full names of their tensors that make up our tensor `name`; of a part that may start anew there may be none.

    Raises:
        UserError: the family has no such part.
    """
    keys, (module, _, kind) = KEYS[shape.family], name.rpartition(".")
    found = [f"{their_module}.{kind}" for their_module in keys.modules(module)]
    if not found and not name.startswith(NEW):
        raise UserError(f"{name} is part of the model, but a model of {shape.family} has none: remove that setting")
    if name == POSITIONS and shape.n_segments == 1:
        found.append(keys.segments)
    return found


def check_tensors(
    folder: Path, plan: dict[str, list[str]], held: dict[str, HeldTensor], wanted: Sizes, shape: Shape
) -> None:
    """Refuse tensors that are missing, left over, or of another size."""
    keys = KEYS[shape.family]
    used: set[str] = set()
    for parts in plan.values():
        used.update(parts)
    missing = sorted(used - held.keys())
    if missing:
        raise UserError(
            f"init_from={folder} lacks {list_names(missing)}, which its config.json asks for: fetch the model anew, or "
            "name another"
        )
    left_over = []
    for name in sorted(held.keys() - used):
        if not name.startswith(keys.others) and not name.endswith(keys.computed):
            left_over.append(name)
    if left_over:
        raise UserError(
            f"init_from={folder} holds {list_names(left_over)}, which its config.json does not ask for: fetch the "
            "model anew, or name another"
        )
    for name, parts in plan.items():
        sizes = [held[part].size for part in parts]
        if not fits(name, sizes, wanted[name], shape):
            shown = " + ".join(map(str, sizes))
            raise UserError(f"init_from={folder}: {list_names(parts)} is {shown}, but {name} is {wanted[name]}")


def fits(name: str, sizes: list[list[int]], size: list[int], shape: Shape) -> bool:
    """Whether tensors of these sizes make up our tensor `name` of `size`."""
    if not all(sizes):  # a tensor without axes, a single number
        return False
    (n_rows, *width), *others = sizes
    if name == POSITIONS:  # more rows than ours may be there; of segments there is one
        has_rows = n_rows >= shape.first_position + size[0]
        return has_rows and width == size[1:] and all(other == [1, *width] for other in others)
    return sum(part[0] for part in sizes) == size[0] and all(part[1:] == size[1:] for part in sizes)


def join(name: str, parts: list[Tensor], size: list[int], shape: Shape) -> Tensor:
    """Our tensor `name` from theirs: our words are multiplied by √D when read, and our positions begin at the first
    row."""
    if name == WORDS:
        return parts[0].float() / math.sqrt(size[1])
    if name == POSITIONS:
        rows_PD = parts[0][shape.first_position : shape.first_position + size[0]].float()
        if len(parts) == 1:
            return rows_PD.clone()
        return rows_PD + parts[1].float()
    return torch.cat([part.float() for part in parts])


@contextmanager
def open_weights(folder: Path) -> Iterator[WeightFiles]:
    """Open the weights of a folder: from PyTorch's own files nothing but tensors is taken.

    Raises:
        UserError: a file is broken, cannot be read, or holds more than tensors.
    """
    files = weight_files(folder)
    sizes: Sizes = {}
    try:
        if files[0].suffix == ".safetensors":
            owner = {}
            for file in files:
                content = safe_open(file, framework="pt")
                for name in content.keys():  # noqa: SIM118 (it is no dict)
                    owner[name], sizes[name] = content, list(content.get_slice(name).get_shape())
            yield WeightFiles(sizes, lambda name: owner[name].get_tensor(name))
        else:
            tensors: dict[str, Tensor] = {}
            for file in files:
                tensors |= unpickle_tensors(file)
            for name, tensor in tensors.items():
                sizes[name] = list(tensor.shape)
            yield WeightFiles(sizes, tensors.__getitem__)
    except SafetensorError as error:
        raise UserError(
            f"init_from={folder} holds no whole safetensors file ({format_value(error)}): fetch the model anew, or "
            "name another"
        ) from error
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from error


def unpickle_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a file of `torch.save`.

    Raises:
        UserError: it is of an old format or compressed, which may take any amount of memory, or holds more than plain
            tensors.
    """
    if not zipfile.is_zipfile(file):
        raise UserError(f"{file} is of PyTorch's old format: save the model as safetensors by a current transformers")
    is_compressed, content = False, None
    try:
        with zipfile.ZipFile(file) as archive:
            is_compressed = any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist())
        if not is_compressed:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # its errors are many: of pickle, of the archive, of torch
        raise UserError(f"{file} holds more than tensors, or is damaged: save the model as safetensors") from error
    if is_compressed:
        raise UserError(f"{file} is compressed, which PyTorch never does: save the model as safetensors")
    not_tensors = UserError(f"{file} is not a list of named tensors: save the model as safetensors")
    if not isinstance(content, dict):
        raise not_tensors
    for name, tensor in content.items():
        if not isinstance(name, str) or type(tensor) is not Tensor or tensor.layout is not torch.strided:
            raise not_tensors
    return content


def read_weights(origin: Origin, wanted: Sizes) -> dict[str, Tensor]:
    """The tensors that `wanted` names, of the weights of `origin`. No family has a table of words that occur in both
    texts (`model.matches`): that starts anew."""
    return read_family(origin.folder, origin.shape, {name: wanted[name] for name in wanted if name != MATCHES})
