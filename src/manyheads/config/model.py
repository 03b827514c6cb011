"""The model: the choice of each block, counts and widths."""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.blocks import NUMBERS, checked_options, numbers_of, options_of
from manyheads.config.facts import require, section, setting, settings_where
from manyheads.config.sentences import format_value, one_of

WIDEST = 65_536  # far beyond any model there is: a slip of the finger ends before memory is asked for
MOST_TABLE = 2**27  # numbers in tables of positions: a model with more could not be loaded again
CROSS_LAYERS = 1  # after the encoder, where two texts are read apart


Placement = StrEnum("Placement", "pre post both")
Pooler = StrEnum("Pooler", "none tanh relu gelu gelu_norm")
Segments = StrEnum("Segments", "pairs always never")
PairKind = StrEnum("PairKind", "auto joint cross compare")


class Terms(Enum):
    """What a linear model counts in a text; the value is its name in tables and reports."""

    words = "words and pairs of words"
    characters = "characters 2-4"
    both = "words, pairs of words and characters 2-4"


@section("model.", opening="model")
class ModelConfig:
    """The encoder classifier. `n_heads`, `d_k`, `d_v` and `d_model` are independent of each other."""

    encoder: str = setting(
        "transformer",
        "layers of self-attention, or recurrent ones: these have no heads, norms and d_ff",
        part="encoder",
    )
    encoder_options: dict[str, Any] = setting(
        dict, "options of encoder, each typed as model.encoder_options.NAME=VALUE"
    )
    n_layers: int = setting(2, "encoder layers", ge=1, le=1000, needs="transformer")
    n_heads: int = setting(4, "attention heads of a layer", ge=1, le=4096, needs="transformer")
    n_kv_heads: int = setting(
        0, "heads of keys and values, shared by groups of query heads; 0: as many as n_heads", ge=0, needs="heads"
    )
    d_model: int = setting(128, "width of a token vector", ge=1, le=WIDEST)
    d_embedding: int = setting(
        0, "width of the embeddings, which a projection widens to d_model; 0: d_model", ge=0, le=WIDEST
    )
    d_k: int = setting(32, "width of one head's queries and keys", ge=1, le=WIDEST, needs="transformer")
    d_v: int = setting(32, "width of one head's values", ge=1, le=WIDEST, needs="transformer")
    d_ff: int = setting(512, "inner width of the feed-forward block", ge=1, le=4 * WIDEST, needs="transformer")
    score: str = setting("scaled_dot", "how a query is compared with a key", part="score", needs="attention")
    scores: list[str] = setting(
        list, "one score a layer, repeated in turn; empty: score in all", part="score", needs="heads"
    )
    score_options: dict[str, Any] = setting(
        dict, "options of score, each typed as model.score_options.NAME=VALUE", needs="attention"
    )
    normaliser: str = setting(
        "softmax", "how the scores of a query become weights", part="normaliser", needs="attention"
    )
    normaliser_options: dict[str, Any] = setting(
        dict, "options of normaliser, each typed as model.normaliser_options.NAME=VALUE", needs="attention"
    )
    scale: float | None = setting(
        None, "factor of the scores; null: 1/√d_k (scaled_dot), learned (cosine) or 1", gt=0.0, needs="attention"
    )
    project: bool = setting(True, "W^Q, W^K and W^V; false: each head attends over its own slice of x", needs="heads")
    project_output: bool = setting(True, "W^O; false: the heads' contexts side by side are the output", needs="heads")
    window: int = setting(
        0,
        "a token attends to those at most this many places to either side; 0: to all",
        ge=0,
        needs="heads",
    )
    windows: list[int] = setting(
        list, "one window a layer, repeated in turn; empty: window in all", ge=0, needs="heads"
    )
    causal: bool = setting(False, "a token attends to itself and those before it alone", needs="heads")
    activation: str = setting("gelu", "feed-forward non-linearity", part="activation", needs="transformer")
    activation_options: dict[str, Any] = setting(
        dict, "options of activation, each typed as model.activation_options.NAME=VALUE", needs="transformer"
    )
    positions: str = setting("sinusoidal", "how word order enters", part="positions")
    positions_options: dict[str, Any] = setting(
        dict, "options of positions, each typed as model.positions_options.NAME=VALUE"
    )
    rotary_base: float = setting(
        10_000.0,
        "rotary positions: the longest wavelength is near 2π times this",
        gt=0.0,
    )
    rotary_base_window: float | None = setting(
        None,
        "rotary_base of layers with a window; null: that of the other layers",
        gt=0.0,
    )
    segments: Segments = setting(
        Segments.pairs,
        "a vector added for first or second text: in pairs, always (single texts are first), or never",
    )
    pair: PairKind = setting(
        PairKind.auto,
        "two texts are joined, or each is read by itself: cross adds cross-attention, compare compares their vectors; "
        "auto: as the run of init_from; compare with an encoder of sentences and at most 4 times optim.few rows per "
        "class; else joint",
        by_rows=True,
        needs="heads",
        weights="free",
    )
    norm: str = setting("layer", "normalisation", part="norm", needs="transformer")
    norm_options: dict[str, Any] = setting(
        dict, "options of norm, each typed as model.norm_options.NAME=VALUE", needs="transformer"
    )
    norm_eps: float | None = setting(
        None,
        "added to the variance that a norm divides by; null: 1e-5 (layer) or 1e-6 (rms)",
        gt=0.0,
        needs="transformer",
    )
    placement: Placement = setting(
        Placement.pre, "norm before a block, after it, or both: LN(x + MHA(LN(x)))", needs="transformer"
    )
    norm_bias: bool = setting(True, "biases in norms of kind layer", needs="transformer")
    norm_embedding: bool = setting(
        False, "a norm after the embeddings in place of the one before the first attention; of placement pre or both"
    )
    pooling: str = setting("mean", "how token vectors become one text vector", part="pooling", weights="default")
    pooling_options: dict[str, Any] = setting(
        dict, "options of pooling, each typed as model.pooling_options.NAME=VALUE"
    )
    pooler: Pooler = setting(
        Pooler.none,
        "one more layer on the text vector, by its activation; gelu_norm: with a norm after it",
        weights="default",
    )
    bias: bool = setting(True, "biases in the projections")
    qk_norm: bool = setting(
        False, "queries and keys are normed, each head's by itself, before they are compared", needs="heads"
    )
    zero_output: bool = setting(
        False,
        "W^O and the second feed-forward matrix start at zero: a fresh layer adds nothing",
        needs="heads",
        weights="free",
    )
    matches: bool = setting(
        False,
        "in pairs: a vector added to tokens that occur in the other text, and to those that do not",
        weights="default",
    )
    dropout: float = setting(
        0.2, "dropout of embedding, residual and classifier, unless set one by one", ge=0.0, lt=1.0, weights="free"
    )
    dropout_embedding: float | None = setting(
        None, "after the embedding; null: dropout", ge=0.0, lt=1.0, null="model.dropout", weights="free"
    )
    dropout_residual: float | None = setting(
        None, "on each block's output; null: dropout", ge=0.0, lt=1.0, null="model.dropout", weights="free"
    )
    dropout_classifier: float | None = setting(
        None,
        "before the logits; null: dropout",
        ge=0.0,
        lt=1.0,
        null="model.dropout",
        weights="free",
    )
    dropout_attention: float = setting(
        0.0, "on the attention weights", ge=0.0, lt=1.0, needs="attention", weights="free"
    )
    dropout_tokens: float = setting(
        0.2, "share of whole tokens whose vector is silenced", ge=0.0, lt=1.0, weights="free"
    )

    def __post_init__(self) -> None:
        require(
            self.n_kv_heads == 0 or self.n_heads % self.n_kv_heads == 0,
            f"model.n_kv_heads={self.n_kv_heads} does not divide model.n_heads={self.n_heads}: "
            "each key/value head serves an equal group of query heads; choose a divisor, or 0 for one each",
        )
        require(
            self.d_k % 2 == 0 or not self.facts("positions").get("turns_pairs"),
            f"model.d_k={self.d_k} is odd, but model.positions={self.positions} turns pairs of dimensions: "
            f"use an even width such as model.d_k={self.d_k + 1}, or other positions",
        )
        require(
            not self.norm_embedding or self.placement is not Placement.post,
            "model.norm_embedding=true asks for the norm that model.placement=post has after the embeddings anyway: "
            "remove it, or choose model.placement=pre",
        )
        for kind in NUMBERS:
            names = [name for its, name in self.chosen_parts() if its == kind]
            object.__setattr__(self, f"{kind}_options", checked_options(kind, names, getattr(self, f"{kind}_options")))
        self._check_encoder()  # which refuses all of attention, before what goes together there is looked at
        self._check_attention()

    def _check_attention(self) -> None:
        heads = f"model.n_heads={self.n_heads} x model.d_k={self.d_k}"
        require(
            self.project or (self.n_heads * self.d_k == self.d_model and self.d_v == self.d_k),
            f"model.project=false cuts x into heads, but {heads} (d_v={self.d_v}) is not model.d_model={self.d_model}: "
            "choose d_k = d_v = d_model / n_heads",
        )
        require(
            self.project or self.kv_heads == self.n_heads,
            f"model.n_kv_heads={self.n_kv_heads} shares keys and values, but model.project=false has none to share: "
            "remove model.n_kv_heads",
        )
        require(
            self.project_output or self.n_heads * self.d_v == self.d_model,
            f"model.project_output=false puts {self.n_heads} contexts of model.d_v={self.d_v} side by side, which is "
            f"not model.d_model={self.d_model}: choose d_v = d_model / n_heads",
        )
        require(
            not (self.causal and self.facts("pooling").get("reads_first")),
            f"model.pooling={self.pooling} reads the first token, which sees itself alone under "
            "model.causal=true: choose model.pooling=mean, or model.causal=false",
        )
        for name in ("scores", "windows"):
            values = getattr(self, name)
            require(
                len(values) <= self.n_layers,
                f"model.{name} lists {len(values)} layers, but model.n_layers={self.n_layers}: "
                "list one value a layer at the most",
            )

    def _check_encoder(self) -> None:
        encoder = f"model.encoder={self.encoder}"
        if self.has_heads:
            return
        self._refuse_set(
            "heads", f"is of self-attention, which {encoder} does not have: remove it, or use model.encoder=transformer"
        )
        require(
            self.facts("positions").get("enters") not in ("queries", "scores"),
            f"model.positions={self.positions} enters self-attention, which {encoder} does not have: "
            "use model.positions=none (it reads in order), sinusoidal or learned",
        )

    def check_use(self, *, attends: bool) -> None:
        """Refuse what a model of this kind would leave unread, unless its task `attends` by itself."""
        poolings = self.facts("encoder").get("poolings", {})
        if attends or self.has_heads or self.pooling in poolings:
            return
        self._refuse_set(
            "attention",
            f"is of attention, which model.encoder={self.encoder} with model.pooling={self.pooling} does not have: "
            + (f"choose model.pooling={one_of([*poolings])}" if poolings else "remove it"),
        )

    def check_precision(self, name: str) -> None:
        """Refuse a precision that the encoder cannot compute in."""
        require(
            name not in self.facts("encoder").get("lacks_precision", ()),
            f"hardware.precision={name} is too narrow for the scores of model.encoder={self.encoder}, which overflow: "
            "use hardware.precision=bf16 or hardware.precision=fp32",
        )

    def _refuse_set(self, needs: str, why: str) -> None:
        default = ModelConfig()
        for name in settings_where(ModelConfig, needs=needs):
            value = getattr(self, name)
            if value != getattr(default, name) and self.encoder_reads(name):
                continue
            require(value == getattr(default, name), f"model.{name}={format_value(value)} {why}")

    def facts(self, kind: str) -> Mapping[str, Any]:
        """What is known of the part that the setting `kind` names, before it is made."""
        return plugin.find(kind, getattr(self, kind)).facts

    def chosen_parts(self) -> list[tuple[str, str]]:
        """Kind and name of each of its blocks."""
        scores = [("score", name) for name in dict.fromkeys([*self.scores, self.score])]
        return [*scores, *((kind, getattr(self, kind)) for kind in NUMBERS if kind != "score")]

    def encoder_reads(self, name: str) -> bool:
        """Whether the encoder is made with a number of the model."""
        return not {name, "model"}.isdisjoint(numbers_of("encoder", self.encoder))

    def options(self, kind: str, name: str = "") -> dict[str, Any]:
        """The options of a part of the model; of several of one kind those that `name` has."""
        given = getattr(self, f"{kind}_options")
        known = options_of(kind, name or getattr(self, kind)) if given else ()
        return {option: value for option, value in given.items() if option in known}

    def score_of(self, layer: int) -> str:
        """The score of layer `layer`, from 0."""
        return self.scores[layer % len(self.scores)] if self.scores else self.score

    def rotary_base_of(self, layer: int) -> float:
        """The base of the rotary positions of layer `layer`, from 0."""
        own = self.rotary_base_window if self.window_of(layer) else None
        return self.rotary_base if own is None else own

    def window_of(self, layer: int) -> int:
        """The window of layer `layer`, from 0; 0 is the whole text."""
        return self.windows[layer % len(self.windows)] if self.windows else self.window

    @property
    def has_heads(self) -> bool:
        """Whether its layers are those of a Transformer."""
        return self.facts("encoder").get("has_heads", False)

    @property
    def width_of_words(self) -> int:
        """Width of the tables that ids are looked up in."""
        return self.d_embedding or self.d_model

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def reads_apart(self) -> bool:
        """Whether two texts are each read by itself."""
        return self.pair in (PairKind.cross, PairKind.compare)

    @property
    def n_cross_layers(self) -> int:
        """Layers in which two texts look at each other, after those of the encoder."""
        return CROSS_LAYERS if self.pair is PairKind.cross and self.has_heads else 0

    def table_numbers(self, max_length: int) -> int:
        """Numbers in the tables of positions that texts of `max_length` tokens need at the most."""
        return max_length * max(self.d_model, 2 * self.d_k * self.n_layers)

    def dropout_at(self, place: str) -> float:
        """Dropout of `embedding`, `residual` or `classifier`: its own value, else `dropout`."""
        own = getattr(self, f"dropout_{place}")
        return self.dropout if own is None else own
