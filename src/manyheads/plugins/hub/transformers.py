"""Classifiers of every shape as models of Hugging Face transformers: `import manyheads.transformers` registers them.

`AutoConfig`, `AutoModel`, `AutoModelForSequenceClassification`, `AutoTokenizer`, and with these `pipeline` and
`Trainer`, then open what `manyheads export format=transformers` writes of a shape that no family of theirs has. The
network is `manyheads.nn.Classifier` on packed tokens, so that padding, on whichever side, is never computed.

N tokens of all texts, end to end . B texts . L positions with padding, M those of the longest text . H heads
D d_model . W width of the word vectors . C classes
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from manyheads.config import ModelConfig
from manyheads.config.conversion import from_plain
from manyheads.config.facts import require
from manyheads.config.model import MOST_TABLE
from manyheads.layout import Layout
from manyheads.nn import Alibi, Encoder, MultiHeadAttention, Rotary, SinusoidalPositions, assemble
from manyheads.nn.pairs import packed_of

THIS = sys.modules[__name__]  # which `manyheads.transformers` becomes
KIND = "manyheads"
INITIALISED = "_is_hf_initialized"  # an attribute of a tensor: transformers leaves it as it is


class ManyheadsConfig(PretrainedConfig):
    """The config.json of a classifier.

    Args:
        model: settings of `ModelConfig` as plain values, which are checked, as they may come from a stranger.
        max_position_embeddings: most tokens of a text.
        pairs: a row is a pair of texts, and `token_type_ids` say which of them a token is of.
    """

    model_type = KIND

    def __init__(
        self,
        model: dict[str, Any] | None = None,
        vocab_size: int = 8000,
        max_position_embeddings: int = 512,
        pairs: bool = False,
        **more: Any,
    ) -> None:
        self.model, self.vocab_size, self.pairs = model or {}, vocab_size, pairs
        self.max_position_embeddings = max_position_embeddings
        settings = self.architecture()
        sizes: dict[str, Any] = {  # under the names that other programs look for
            "hidden_size": settings.d_model,
            "num_hidden_layers": settings.n_layers,
            "num_attention_heads": settings.n_heads,
        }
        super().__init__(**more | sizes)

    def architecture(self) -> ModelConfig:
        """The settings of the network.

        Raises:
            UserError: a value is not of its type or out of range, or tables of positions would be too large.
        """
        model = from_plain(ModelConfig, self.model, "model.")
        for name in ("vocab_size", "max_position_embeddings"):
            value = getattr(self, name)
            require(type(value) is int and 0 < value < 2**31, f"{name}={value} must be a whole number of at least 1")
        n_table = model.table_numbers(self.max_position_embeddings)
        require(
            n_table <= MOST_TABLE,
            f"max_position_embeddings={self.max_position_embeddings} asks for tables of positions with {n_table:,} "
            "numbers: no model of manyheads needs that many",
        )
        return model


class ManyheadsPreTrainedModel(PreTrainedModel):
    """The base class of both models: how tensors begin that no file holds."""

    config_class = ManyheadsConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, SinusoidalPositions | Rotary | Alibi):
            module.fill()
        else:
            super()._init_weights(module)


class ManyheadsModel(ManyheadsPreTrainedModel):
    """Embeddings, encoder and pooling: token vectors, and one vector a text."""

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # noqa: RUF012 - as transformers declares it

    def __init__(self, config: ManyheadsConfig) -> None:
        super().__init__(config)
        sizes = {"vocab_size": config.vocab_size, "max_length": config.max_position_embeddings}
        self.network: Any = assemble(config.architecture(), **sizes, n_classes=1, n_segments=2 if config.pairs else 0)
        self.width = self.network.head.in_features
        self.network.head = nn.Identity()  # the classifier's own head follows the text vector
        for parameter in self.network.parameters():
            setattr(parameter, INITIALISED, True)  # by assemble
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.network.embeddings.words

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.network.embeddings.words = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **_: Any,
    ) -> Any:
        """Padded texts `(B, L)` to token vectors, and one vector a text; all outputs are zero on padding.

        `attentions` `(B, H, L, L)` are the exact weights of `MultiHeadAttention.maps`. A recurrent encoder has none,
        and its `hidden_states` are those before and after it. Where the texts of a pair are read apart
        (`model.pair=cross`) both outputs are of single texts, all first ones and then all second ones, without padding
        between them: `(2B, ..., M, ...)`.

        Args:
            inputs_embeds: word vectors `(B, L, W)` in place of those of the ids.
        """
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if inputs_embeds is None:
            require(input_ids is not None, "neither input_ids nor inputs_embeds are given: give one of them")
            inputs_embeds = self.get_input_embeddings()(input_ids)
        assert inputs_embeds is not None
        if attention_mask is None:
            attention_mask = torch.ones_like(inputs_embeds[..., 0])
        keep_BL = attention_mask.bool()
        if input_ids is None:
            require(self.network.embeddings.matches is None, "this model compares words by their ids: give input_ids")
            input_ids = torch.zeros_like(keep_BL, dtype=torch.int64)
        segments_N = None
        if self.config.pairs:
            require(token_type_ids is not None, "token_type_ids are missing, by which this model tells two texts apart")
            assert token_type_ids is not None
            segments_N = token_type_ids[keep_BL]
        # the network gets the tokens of all texts end to end, so that padding, on whichever side, is never computed
        layout = packed_of(keep_BL.sum(1))
        most = self.config.max_position_embeddings
        require(
            layout.longest <= most or bool(self.config.architecture().facts("positions").get("unbounded")),
            f"a text has {layout.longest} tokens, but the model knows {most} positions: let the tokenizer cut texts by "
            "truncation=True",
        )
        with record_outputs(self.network, with_maps=bool(output_attentions)) as (states, maps):
            vectors_BD = self.network.read(input_ids[keep_BL], layout, segments_N, inputs_embeds[keep_BL])
        if self.network.cross is not None:  # texts were read apart, in layouts of their own
            hidden = [own_layout.grid(x) for x, own_layout in states]
        else:
            hidden = [spread(x, keep_BL) for x, _ in states]
            maps = [spread_maps(one, keep_BL) for one in maps]
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden[-1],  # type: ignore[arg-type]
            pooler_output=vectors_BD,  # type: ignore[arg-type]
            hidden_states=tuple(hidden) if output_hidden_states else None,
            attentions=tuple(maps) if output_attentions else None,
        )


class ManyheadsForSequenceClassification(ManyheadsPreTrainedModel):
    """A text to the logits of its classes; `problem_type` says how `labels` become a loss."""

    def __init__(self, config: ManyheadsConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ManyheadsModel(config)
        self.classifier = nn.Linear(self.model.width, config.num_labels or 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **asked: Any,
    ) -> Any:
        """As `ManyheadsModel`; `labels` are class ids `(B,)`, or of several classes a text their marks `(B, C)`."""
        outputs = self.model(input_ids, attention_mask, token_type_ids, inputs_embeds, **asked, return_dict=True)
        logits = self.classifier(self.model.network.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


@contextmanager
def record_outputs(network: Any, *, with_maps: bool) -> Iterator[tuple[list[tuple[Tensor, Layout]], list[Tensor]]]:
    """Record what the network computes while it runs in the block.

    Returns:
        The outputs of embeddings and layers in order, each with its layout, the last of them after its norm; and
        `with_maps` the weights `(B, H, M, M)` of each attention.
    """
    states: list[tuple[Tensor, Layout]] = []
    maps: list[Tensor] = []

    def after_layer(_: nn.Module, args: tuple[Any, ...], x: Tensor) -> None:
        states.append(getattr(args[1], "layout", args[1]).unfilled(x))

    def after_encoder(_: nn.Module, args: tuple[Any, ...], x: Tensor) -> None:
        states[-1] = (x, states[-1][1])

    def after_attention(attention: Any, args: tuple[Any, ...], _: Tensor) -> None:
        x, layout, *memory = args
        maps.append(attention.maps(*layout.unfilled(x), *memory)[0])

    encoder, cross = network.encoder, network.cross
    layers = list(encoder.layers) if isinstance(encoder, Encoder) else [encoder]
    if cross:
        layers += cross.layers
    with ExitStack() as hooks:
        for layer in (network.embeddings, *layers):
            hooks.enter_context(layer.register_forward_hook(after_layer))
        hooks.enter_context((cross or encoder).register_forward_hook(after_encoder))
        if with_maps:
            for module in network.modules():
                if isinstance(module, MultiHeadAttention):
                    hooks.enter_context(module.register_forward_hook(after_attention))
        yield states, maps


def spread(x_ND: Tensor, keep_BL: Tensor) -> Tensor:
    """Tokens at the places that the mask keeps, `(B, L, D)`, zero elsewhere."""
    x_BLD = x_ND.new_zeros(*keep_BL.shape, x_ND.size(1))
    return x_BLD.masked_scatter(keep_BL[..., None], x_ND)


def spread_maps(weights_BHMM: Tensor, keep_BL: Tensor) -> Tensor:
    """Weights between the tokens of each text at their places, `(B, H, L, L)`, zero elsewhere."""
    at_BL = (keep_BL.cumsum(1) - 1).clamp(min=0)
    shape = (-1, weights_BHMM.size(1), keep_BL.size(1), -1)
    rows_BHLM = weights_BHMM.gather(2, at_BL[:, None, :, None].expand(*shape[:3], weights_BHMM.size(3)))
    kept = keep_BL[:, None, :, None] & keep_BL[:, None, None]
    return rows_BHLM.gather(3, at_BL[:, None, None].expand(shape)).masked_fill(~kept, 0.0)


AutoConfig.register(KIND, ManyheadsConfig, exist_ok=True)
AutoModel.register(ManyheadsConfig, ManyheadsModel, exist_ok=True)
AutoModelForSequenceClassification.register(ManyheadsConfig, ManyheadsForSequenceClassification, exist_ok=True)
AutoTokenizer.register(ManyheadsConfig, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
