"""Loading trained weights into a network; its head, and what else they lack, starts from new weights.

They are safetensors: nothing in them can run code.

Of their table of words most rows are read by no training text: of 250,000 tokens of a multilingual encoder a data set
has some thousands. Without a gradient and without weight decay AdamW leaves a weight as it is, and yet each step passes
over it: to clear its gradient, for the norm, the moments and the average. `only_seen_words` leaves such rows out of
training, at the same result.

V rows of the table . U rows that the training texts read . D d_embedding
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

import manyheads.plugin as plugin
from manyheads.config.sentences import format_value, list_names
from manyheads.data.tokens import Tokens, drop_pages
from manyheads.errors import UserError
from manyheads.inference.origin import Origin
from manyheads.nn.classifier import Classifier

ROOMS, POOLING = ("embeddings.", "encoder."), "pooling."
WORDS, POSITIONS = "embeddings.words.weight", "embeddings.positions.weight"
SEGMENTS, MATCHES = "embeddings.segments.weight", "embeddings.matches.weight"
ADDED = (SEGMENTS, MATCHES)
"""Tables whose vectors are added to those of the words: where they are zero, nothing is."""
Sizes = dict[str, list[int]]
MOST_SEEN = 0.75  # share of the rows; above it little is saved
IDS_AT_ONCE = 2**24


def read_run_weights(origin: Origin, wanted: Sizes) -> dict[str, Tensor]:
    """Read the tensors that `wanted` names from a model of manyheads: embeddings, encoder, a pooling of the same kind.

    A longer table of positions gives its first rows. Segments and matches may be missing. If only the weights have
    matches, the vector of "no match" is added to the words, since a single text has no other. The head and cross layers
    are not read.

    Raises:
        UserError: tensors are missing, too many, of another shape, or not finite.
    """
    path = origin.folder / "model.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            held = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no dict
            names = _taken(path, held, wanted)
            found = {name: file.get_slice(name)[: wanted[name][0]].float() for name in names}
            if MATCHES in held and MATCHES not in wanted and held[MATCHES] == [2, held[WORDS][1]]:
                found[WORDS] += file.get_slice(MATCHES)[0] / math.sqrt(held[WORDS][1])  # by which the words are scaled
    except SafetensorError as error:
        raise UserError(
            f"{path} is not a whole safetensors file ({format_value(error)}): copy the run again, or name another"
        ) from error
    for name, tensor in found.items():
        if not tensor.isfinite().all():
            raise UserError(f"{path}: tensor {name} holds values that are not finite numbers")
    return found


def _taken(path: Path, held: Sizes, wanted: Sizes) -> list[str]:
    """The names of the tensors to read.

    Raises:
        UserError: names the tensors that do not fit.
    """
    theirs = {name for name in held if name.startswith(ROOMS)}
    ours = {name for name in wanted if name.startswith(ROOMS)}
    if missing := sorted(ours - theirs - {*ADDED}):
        raise UserError(f"{path} has no {list_names(missing)}, which the model needs: name weights of the same shape")
    if unread := sorted(theirs - ours - {MATCHES}):
        raise UserError(
            f"{path} has {list_names(unread)}, which the model has no room for: name weights of the same shape"
        )
    names = sorted(ours & theirs)
    pooling = [name for name in wanted if name.startswith(POOLING)]
    if all(held.get(name) == wanted[name] for name in pooling):
        names += pooling
    for name in names:
        size, room = held[name], wanted[name]
        is_longer_table = name == POSITIONS and size[1:] == room[1:] and size[0] > room[0]  # its first rows are read
        if size != room and not is_longer_table:
            raise UserError(f"{path}: {name} is {size}, but the model's is {room}: name weights of the same shape")
    return names


@torch.no_grad()
def load_pretrained(network: nn.Module, origin: Origin | None) -> None:
    """Replace the embeddings, the encoder and, if it is of the same kind, the pooling of `network`.

    Vectors of segments and matches that the weights lack are zero: so a text is encoded as it was before.

    Raises:
        UserError: the weights are not of the network's shape.
    """
    if origin is None:
        return
    own = network.state_dict()
    wanted = {name: list(value.shape) for name, value in own.items() if name.startswith((*ROOMS, POOLING))}
    found = plugin.make("weights", origin.kind)(origin, wanted)
    for name in ADDED:
        if name in wanted and name not in found:
            own[name].zero_()
    for name, value in found.items():
        own[name].copy_(value)


class SeenWords(nn.Embedding):
    """A table of word vectors of which only `rows_U` are trained: its weight holds these alone. The other rows, which
    texts of validation may need, are read from `table`."""

    all_VD: Tensor
    place_V: Tensor

    def __init__(self, table: nn.Embedding, rows_U: Tensor) -> None:
        weight_VD = table.weight.detach()
        super().__init__(len(rows_U), table.embedding_dim, _weight=weight_VD[rows_U])
        self.weight.requires_grad_(table.weight.requires_grad)
        place_V = rows_U.new_full((len(weight_VD),), -1)
        place_V[rows_U] = torch.arange(len(rows_U))
        self.register_buffer("all_VD", weight_VD, persistent=False)
        self.register_buffer("place_V", place_V, persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Ids `(...)` to vectors `(..., D)`."""
        places = self.place_V[input]
        # Without a branch on what the ids are: the host would have to wait for a GPU.
        trained = super().forward(places.clamp(min=0))
        return torch.where((places >= 0).unsqueeze(-1), trained, F.embedding(input, self.all_VD))


@contextmanager
def only_seen_words(network: nn.Module, tokens: Tokens) -> Iterator[None]:
    """Within the block, `network` trains only the vectors of words that occur in `tokens`, if these are few; after it
    the network has its whole table again, unless an error was raised. Networks other than classifiers, such as language
    models, use the table elsewhere, too, and are left as they are."""
    if not isinstance(network, Classifier):
        yield
        return
    table, rows_U = network.words, seen_ids(tokens, network.words.num_embeddings)
    if len(rows_U) > MOST_SEEN * table.num_embeddings:
        yield
        return
    seen = network.embeddings.words = SeenWords(table, rows_U)
    yield
    network.embeddings.words = table.to(seen.weight.device)
    table.weight.requires_grad_(seen.weight.requires_grad)  # it may have been frozen meanwhile
    with torch.no_grad():
        table.weight[rows_U] = seen.weight


def seen_ids(tokens: Tokens, n_ids: int) -> Tensor:
    """The ids that occur, ascending: `(U,)`."""
    seen_V = torch.zeros(n_ids, dtype=torch.bool)
    for ids in tokens.ids_N.split(IDS_AT_ONCE):
        seen_V[ids.long()] = True
        drop_pages(tokens)
    return seen_V.nonzero().flatten()
