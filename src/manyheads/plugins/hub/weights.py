"""Trained weights under our names, put into a network; its head, and what else they lack, begin anew.

Of a folder of Hugging Face a table for each family says how it names what our blocks hold: read from right to left to
load, back to save. Nothing in the files can run code, and nothing is left out in silence.

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

from manyheads.config.sentences import format_value, list_names
from manyheads.errors import UserError
from manyheads.inference.origin import Origin
from manyheads.plugins.hub.families import Shape
from manyheads.plugins.hub.shapes import weight_files
from manyheads.training.weights import MATCHES, POSITIONS, WORDS, Sizes

NEW = ("head.", "pooling.", "cross.", "embeddings.matches.")  # beginnings of our names that may start anew
OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}  # of norms in files of 2019
There = dict[str, tuple[str, list[int]]]  # by a name as the table has it: the file's own name, and the size
Weights = tuple[Sizes, Callable[[str], Tensor]]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of the modules of one family, as in its class ForSequenceClassification.

    Attributes:
        inside: the prefix of the names of the encoder, unless a file holds the encoder alone.
        inner: our module to theirs in the encoder.
        layer: the prefix of the number of a layer.
        of_layer: our module of a layer to theirs; ` + ` joins those that lie side by side in ours.
        new: our modules that may start anew to theirs, in full.
        others: beginnings of names that are heads of this or another task: what is not asked for is left alone.
        computed: ends of names of what follows from config.json.
    """

    inside: str
    inner: dict[str, str]
    layer: str
    of_layer: dict[str, str]
    new: dict[str, str]
    others: tuple[str, ...]
    computed: tuple[str, ...] = ("embeddings.position_ids", "embeddings.token_type_ids")

    @property
    def segments(self) -> str:
        """Their table of segments, which is added to the positions where it has but one row."""
        return f"{self.inside}embeddings.token_type_embeddings.weight"

    def modules(self, ours: str) -> list[str]:
        """Names of the modules that make up our module, in full; empty: the family has none."""
        if layer := re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)", ours):
            found = self.of_layer.get(layer[2])
            return [f"{self.inside}{self.layer}.{layer[1]}.{one}" for one in found.split(" + ")] if found else []
        if ours in self.inner:
            return [self.inside + self.inner[ours]]
        return [self.new[ours]] if ours in self.new else []


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
}


def read_family(folder: str | Path, shape: Shape, wanted: Mapping[str, Iterable[int]]) -> dict[str, Tensor]:
    """The tensors of `folder` by our names, in fp32.

    Args:
        shape: what `read_shape` says of the folder.
        wanted: names and sizes of our network's state dict. Where it has fewer positions than the file, the first
            ones are read. A head or a pooler that is not in the file is not in the answer: it starts anew; one that
            is not wanted is left alone.

    Raises:
        UserError: the weights are broken, lack what is wanted, hold what nobody wants, or are of other sizes.
    """
    sizes = {name: list(size) for name, size in wanted.items()}
    with _opened(Path(folder).expanduser()) as (held, tensor):
        there = _in_full(held, KEYS[shape.family])
        plan: dict[str, list[str]] = {}
        for name in wanted:
            parts = theirs(name, shape)
            if name.startswith(NEW):
                modules = tuple(part.rpartition(".")[0] + "." for part in parts)
                if not any(one.startswith(modules) for one in there):
                    continue  # a head or pooler that the file has nothing of
            plan[name] = parts
        _compare(Path(folder), plan, there, sizes, shape)
        read: dict[str, Tensor] = {}
        for name, parts in plan.items():
            tensors = [tensor(there[part][0]) for part in parts]
            for part, one in zip(parts, tensors, strict=True):
                if not one.is_floating_point() or one.dtype.itemsize < 2:  # whose scales lie elsewhere
                    kind = str(one.dtype).removeprefix("torch.")
                    raise UserError(
                        f"init_from={folder}: {there[part][0]} is of type {kind}, as in quantised models, but weights "
                        "of at least 16 bits are needed: name the model it was made from"
                    )
            read[name] = _joined(name, tensors, sizes[name], shape)
    broken = [name for name, tensor in read.items() if not tensor.isfinite().all()]
    if broken:
        raise UserError(f"init_from={folder}: {list_names(broken)} hold values that are not finite numbers")
    return read


def _in_full(sizes: Sizes, keys: Keys) -> There:
    """Names as the table has them, to the file's own names and sizes."""
    is_bare = not any(name.startswith(keys.inside) for name in sizes)
    full = {}
    for name, size in sizes.items():
        stem, dot, end = name.rpartition(".")
        ours = stem + OLD_ENDS.get(dot + end, dot + end)
        full[keys.inside + ours if is_bare else ours] = (name, size)
    return full


def theirs(name: str, shape: Shape) -> list[str]:
    """Names of the tensors that make up our tensor `name`; of a part that may start anew there may be none.

    Raises:
        UserError: the family has no such thing.
    """
    keys, (module, _, kind) = KEYS[shape.family], name.rpartition(".")
    found = [f"{one}.{kind}" for one in keys.modules(module)]
    if not found and not name.startswith(NEW):
        raise UserError(f"{name} is part of the model, but a model of {shape.family} has none: remove that setting")
    return found + [keys.segments] * (name == POSITIONS and shape.n_segments == 1)


def _compare(folder: Path, plan: dict[str, list[str]], there: There, wanted: Sizes, shape: Shape) -> None:
    """Refuse what is missing, left over, or of another size."""
    keys = KEYS[shape.family]
    used: set[str] = set()
    for parts in plan.values():
        used.update(parts)
    missing = sorted(used - there.keys())
    if missing:
        raise UserError(
            f"init_from={folder} lacks {list_names(missing)}, which its config.json asks for: fetch the model anew, or "
            "name another"
        )
    left = [
        name
        for name in sorted(there.keys() - used)
        if not name.startswith(keys.others) and not name.endswith(keys.computed)
    ]
    if left:
        raise UserError(
            f"init_from={folder} holds {list_names(left)}, which its config.json does not ask for: fetch the model "
            "anew, "
            "or name another"
        )
    for name, parts in plan.items():
        sizes = [there[part][1] for part in parts]
        if not _fits(name, sizes, wanted[name], shape):
            shown = " + ".join(map(str, sizes))
            raise UserError(f"init_from={folder}: {list_names(parts)} is {shown}, but {name} is {wanted[name]}")


def _fits(name: str, sizes: list[list[int]], size: list[int], shape: Shape) -> bool:
    if not all(sizes):  # a number alone
        return False
    (n_rows, *width), *others = sizes
    if name == POSITIONS:
        has_rows = n_rows >= shape.first_position + size[0]
        return has_rows and width == size[1:] and all(one == [1, *width] for one in others)
    return sum(one[0] for one in sizes) == size[0] and all(one[1:] == size[1:] for one in sizes)


def _joined(name: str, parts: list[Tensor], size: list[int], shape: Shape) -> Tensor:
    """Their tensors as ours: our words are multiplied by √D when read, and our positions begin at the first row."""
    if name == WORDS:
        return parts[0].float() / math.sqrt(size[1])
    if name == POSITIONS:
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
        raise UserError(
            f"init_from={folder} holds no whole safetensors file ({format_value(error)}): fetch the model anew, or "
            "name another"
        ) from error
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from error


def _unpickled(file: Path) -> dict[str, Tensor]:
    """Raises UserError: compressed or of an old format, which may ask for any memory, or more than plain tensors."""
    if not zipfile.is_zipfile(file):
        raise UserError(f"{file} is of PyTorch's old format: save the model as safetensors by a current transformers")
    try:
        with zipfile.ZipFile(file) as archive:
            is_packed = any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist())
        content = None if is_packed else torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # its errors are many: of pickle, of the archive, of torch
        raise UserError(f"{file} holds more than tensors, or is damaged: save the model as safetensors") from error
    if is_packed:
        raise UserError(f"{file} is compressed, which PyTorch never does: save the model as safetensors")
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and type(tensor) is Tensor and tensor.layout is torch.strided
        for name, tensor in content.items()
    ):
        raise UserError(f"{file} is not a list of named tensors: save the model as safetensors")
    return content


def read_weights(origin: Origin, wanted: Sizes) -> dict[str, Tensor]:
    """What `wanted` names of the weights of `origin`; a family has nothing that tells words of both texts."""
    return read_family(origin.folder, origin.shape, {name: wanted[name] for name in wanted if name != MATCHES})
