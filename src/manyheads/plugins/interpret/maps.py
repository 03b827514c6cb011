"""What a classifier reads of a text, where its heads look, and what it answers without one of them.

The model runs once, with its fast kernels; hooks record the inputs of its attention modules. Exact weights are then
computed from these: of a single text one layer's are held at a time.

B documents . N tokens of a batch . T texts that are read: the documents, or both texts of pairs that are read apart
P heads of all layers . H heads of a layer . L query positions . M key positions . V d_v . C classes
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from manyheads.config import Cutting, Long
from manyheads.config.data import CUT
from manyheads.data.batches import ANSWER_ROWS, Batch, Batches, plan_evaluation
from manyheads.data.formats.fields import field_mark, field_parts, unit_ids
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import PROBE, prefix_of
from manyheads.data.tokens import Tokens, encode, kept_tokens, segments_of, texts_of_marks
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.precision import multiplying_in
from manyheads.layout import Layout, Packed
from manyheads.nn import Classifier
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.pairs import split_pairs

MARK, UNKNOWN = "mark", "unknown"
SPACE = "\u2423"  # what a token of white space alone is shown as
# Most weights held at a time, over all heads: 64 MiB of fp32, and a few such blocks while they are worked on. A single
# document may need more: the square of its length for each head.
CELLS = 2**24


@dataclass(frozen=True, slots=True)
class Word:
    """One token.

    Attributes:
        text: what was typed.
        read: the entry of the vocabulary.
        kind: MARK ([CLS] and the like), UNKNOWN, or empty.
        part: 0 or 1, of a pair which text it is of.
        glued: whether it follows the token before without a space.
    """

    text: str
    read: str
    kind: str
    part: int
    glued: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A text, or pair, as the model reads it.

    Attributes:
        words: its tokens, those of its windows end to end.
        n_cut: tokens that are not read.
        lengths: how many tokens each window has; of a text that is read at once there is one.
    """

    words: list[Word]
    n_cut: int
    lengths: list[int]


def read_words(tokenizer: Tokenizer, text: str, pair: str | None, max_length: int, cutting: Cutting = CUT) -> Reading:
    """Tokens as `encode` of manyheads.data.tokens makes them, each with its letters in the text."""
    encoding = tokenizer.encode(text, pair)
    unknown = getattr(tokenizer.model, "unk_token", None)  # Unigram has none: its tokens are then not in the vocabulary
    if pair is None:
        typed, segments = [text], [0] * len(encoding)
    else:
        typed, segments = [text, pair], segments_of(encoding, texts_of_marks(tokenizer))
    windows = [list(range(len(encoding)))]  # the places of their tokens in the encoding
    if len(encoding) > max_length:
        field = None if cutting.long is Long.windows else field_mark(tokenizer)
        parts = field_parts(encoding, field, unit_ids(tokenizer), max_length, cutting.long)
        windows = kept_tokens(parts, max_length, cutting).documents
    first: dict[int, int] = {}  # of each text that a prefix is put before, its own first token
    if prefix_of(tokenizer):
        for at, (start, end) in enumerate(encoding.offsets):
            if start == 0 < end:
                first[segments[at] & 1] = at
    words: list[Word] = []
    kept: set[int] = set()
    for places in windows:
        kept.update(places)
        ends: dict[int, int] = {}  # of each text, where its last token ended
        for at in places:
            read, part, (start, end) = encoding.tokens[at], segments[at] & 1, encoding.offsets[at]
            if encoding.special_tokens_mask[at] and start == end:
                words.append(Word(read, read, MARK, part, glued=False))
                continue
            letters = typed[part][start:end] if at >= first.get(part, 0) else ""
            bare = letters.strip()
            glued = bool(bare) and ends.get(part) == start and not letters[0].isspace()
            ends[part] = end
            is_unknown = read == unknown or tokenizer.token_to_id(read) is None
            shown = bare or (SPACE if letters else read)
            words.append(Word(shown, read, UNKNOWN if is_unknown else "", part, glued))
    return Reading(words, len(encoding) - len(kept), [len(places) for places in windows])


@dataclass(slots=True)
class Call:
    """The inputs of an attention module, and the contexts `(..., H·V)` that its fast kernel computed from them.

    None of them has the tail that fills up the tokens (see layout.py): all tokens belong to a document.
    """

    layer: int
    attention: MultiHeadAttention
    x: Tensor
    layout: Layout
    memory: Tensor | None
    memory_layout: Layout | None
    context: Tensor


@dataclass(slots=True)
class LayerMaps:
    """The weights of some heads of a layer, fp32 on the CPU; padding has no row and no column.

    Attributes:
        error: the largest difference between map · V and the context of the fast kernel, over all heads.
    """

    layer: int
    heads: list[int]
    weights_HLM: Tensor
    error: float


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[Call]]:
    """Record every attention that the model computes within the block, in order; layers count from 0."""
    calls: list[Call] = []
    contexts: list[Tensor] = []

    def before_output(output: nn.Module, args: tuple[Tensor]) -> None:
        contexts.append(args[0])  # what the fast kernel computed, before W^O

    def after(layer: int, attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        calls.append(call_of(layer, attention, contexts.pop(), *args, **kwargs))

    with ExitStack() as hooks:
        for layer, one in enumerate(attentions(model)):
            hooks.enter_context(one.output.register_forward_pre_hook(before_output))
            hooks.enter_context(one.register_forward_hook(partial(after, layer), with_kwargs=True))
        yield calls


def call_of(
    layer: int,
    attention: MultiHeadAttention,
    context: Tensor,
    x: Tensor,
    layout: Layout,
    memory: Tensor | None = None,
    memory_layout: Layout | None = None,
) -> Call:
    """The record of a call of `MultiHeadAttention` with these arguments."""
    context, _ = layout.unfilled(context)
    x, layout = layout.unfilled(x)
    if memory is not None and memory_layout is not None:
        memory, memory_layout = memory_layout.unfilled(memory)
    return Call(layer, attention, x, layout, memory, memory_layout, context)


@torch.inference_mode()
def layer_maps(call: Call, heads: Sequence[int] | None = None, document: int = 0) -> LayerMaps:
    """Weights of the chosen heads (None: all) for one document of a call, and their check against the fast kernel."""
    weights_BHLM, context_BHLV = call.attention.maps(call.x, call.layout, call.memory, call.memory_layout)
    keys = call.memory_layout or call.layout
    n_queries, n_keys = (int(each.lengths_B[document]) for each in (call.layout, keys))
    fast_BLX = call.layout.grid(call.context).float()
    ours_BLX = context_BHLV.transpose(1, 2).flatten(2)
    error = (fast_BLX[document, :n_queries] - ours_BLX[document, :n_queries]).abs().max().item()
    chosen = list(range(weights_BHLM.size(1))) if heads is None else list(heads)
    weights_HLM = weights_BHLM[document, chosen, :n_queries, :n_keys]
    return LayerMaps(call.layer, chosen, weights_HLM.float().cpu(), error)


class Head(NamedTuple):
    """Where a head is: the layer and its place in it, both counted from 1."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.layer}.{self.head}"


def attentions(classifier: nn.Module) -> list[MultiHeadAttention]:
    """The attention of each layer in order, those between the texts of a pair last; none in recurrent models."""
    return [one for one in classifier.modules() if isinstance(one, MultiHeadAttention)]


def every_head(classifier: Classifier) -> list[Head]:
    """Every head, layer by layer."""
    found = []
    for layer, attention in enumerate(attentions(classifier), start=1):
        for head in range(1, attention.n_heads + 1):
            found.append(Head(layer, head))
    return found


def without_head(classifier: Classifier, head: Head) -> RemovableHandle:
    """While it is open, the context of one head is zero: Michel et al. (2019), "Are Sixteen Heads Really Better than
    One?", equation 3. It is as if its columns of W^O were zero.
    """
    attention = attentions(classifier)[head.layer - 1]

    def hook(output: nn.Module, args: tuple[Tensor]) -> Tensor:
        context = args[0].clone()
        context[..., (head.head - 1) * attention.d_v : head.head * attention.d_v] = 0.0
        return context

    return attention.output.register_forward_pre_hook(hook)


def with_silence(classifier: Classifier, batch: Batch, silence_N: Tensor) -> RemovableHandle:
    """While it is open, tokens of the batch where `silence_N` is true have a word vector of zero.

    Position, segment and match stay, as with `model.dropout_tokens` in training: a model trained so has met such texts.
    """
    silence_P1 = silence_N[places(classifier, batch.layout, batch.segments_N), None]
    return classifier.embeddings.words.register_forward_hook(
        lambda words, args, output: output.masked_fill(silence_P1, 0.0)
    )


@dataclass(slots=True)
class Maps:
    """Where all heads look in a batch, and what the classifier answers.

    Attributes:
        shares_PTLM: weights divided by their sum over keys, which is 1 except with the sigmoid; rows of padding, and of
            queries that attend to nothing, are zero.
        across: of each head, whether it looks at the other text of a pair, which is half of T away.
        layout: of the texts as the encoder reads them.
        place_N: which token of the batch each token of `layout` is.
    """

    logits_BC: Tensor
    shares_PTLM: Tensor
    across: list[bool]
    layout: Packed
    place_N: Tensor

    def of_keys(self, own_TM: Tensor) -> Tensor:
        """A value of each text's tokens `(T, M)`, of the keys of each head: `(P, T, M)`."""
        other_TM = own_TM.roll(len(own_TM) // 2, 0)
        return torch.stack([other_TM if across else own_TM for across in self.across])


class TextMarks(NamedTuple):
    """Ids that the tokenizer puts around texts, such as `[CLS]` and `[SEP]`; `separators` are those not only at the
    beginning."""

    every: Tensor
    separators: Tensor


def find_marks(predictor: TextClassifier) -> TextMarks:
    """What the tokenizer adds to a text, on the model's device."""
    probe = predictor.tokenizer.encode(PROBE, PROBE if predictor.pairs else None)
    ids, added = torch.tensor(probe.ids), torch.tensor(probe.special_tokens_mask).bool()
    device = predictor.network.head.weight.device
    return TextMarks(ids[added].unique().to(device), ids[1:][added[1:]].unique().to(device))


def tokens_of(predictor: TextClassifier, rows: Rows) -> Tokens:
    """The rows as the model reads them: cut to its length, and with their labels.

    Raises:
        UserError: pairs for a model of single texts, or the other way round.
    """
    predictor.check(rows.texts, rows.pairs)
    texts = predictor.as_read(rows.texts)
    return encode(predictor.tokenizer, texts, rows.pairs, rows.labels, predictor.max_length, predictor.cutting)


def batches(predictor: TextClassifier, tokens: Tokens, *, budget: int, maps: bool = False) -> Iterator[Batch]:
    """Every row once, on the model's device; at most `budget` tokens a batch, fewer where `maps` are to be held."""
    if maps:
        longest = 1
        if len(tokens):
            longest = max(int(tokens.documents.max()), 1)
        budget = min(budget, max(CELLS // (len(every_head(predictor.network)) * longest), 1))
    device = predictor.network.head.weight.device
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=budget, rows=ANSWER_ROWS)):
        yield batch.to(device)._replace(rows_B=batch.rows_B)


def only_batch(predictor: TextClassifier, text: str, pair: str | None) -> Batch:
    """One text, or pair, on the model's device."""
    rows = Rows([text], None if pair is None else [pair], [0], "text", [1])
    (batch,) = batches(predictor, tokens_of(predictor, rows), budget=1)  # a text is never divided
    return batch


def look_at_batch(predictor: TextClassifier, batch: Batch) -> Maps:
    """Answer, and compute the exact weights of every head from what it was given, in fp32."""
    with torch.no_grad():
        with record_attention(predictor.network) as calls:
            logits_BC = answer_batch(predictor, batch)
        weights, across = [], []
        for call in calls:
            weights_THLM, _ = call.attention.maps(call.x, call.layout, call.memory, call.memory_layout)
            weights.append(weights_THLM)
            across += [call.memory is not None] * call.attention.n_heads
        return Maps(
            logits_BC=logits_BC,
            shares_PTLM=distributions(torch.cat(weights, 1)),
            across=across,
            layout=cast(Packed, calls[0].layout),
            place_N=places(predictor.network, batch.layout, batch.segments_N),
        )


def distributions(weights_TPLM: Tensor) -> Tensor:
    """Weights as distributions over keys, `(P, T, L, M)`."""
    weights_PTLM = weights_TPLM.transpose(0, 1)
    return weights_PTLM / weights_PTLM.sum(-1, keepdim=True).clamp(min=torch.finfo(weights_PTLM.dtype).tiny)


def places(classifier: Classifier, layout: Packed, segments_N: Tensor | None) -> Tensor:
    """Which token of the batch each token is that the encoder reads. Of pairs that are read apart, the encoder reads
    both texts as documents of their own, each with the first token of the pair."""
    every_N = torch.arange(int(layout.offsets[-1]), device=layout.offsets.device)
    if classifier.cross is None or segments_N is None:
        return every_N
    return split_pairs(every_N, layout, segments_N, classifier.cross.surplus(segments_N))[0]


def answer_batch(predictor: TextClassifier, batch: Batch) -> Tensor:
    """Logits `(B, C)` in fp32 on the CPU."""
    with multiplying_in(predictor.autocast, batch.ids_N.device):
        return predictor.network(batch.ids_N, batch.layout, batch.segments_N).float().cpu()
