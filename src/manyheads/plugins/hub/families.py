"""The families of models that are read and written: one table each, from the keys of its config.json to our settings.

`read_config` goes through the table from left to right, `write_config` from right to left. Values of a stranger's
config.json are checked before they are used. Imports only the standard library and our settings.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import ModelConfig
from manyheads.config.blocks import options_of
from manyheads.config.conversion import from_plain
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError
from manyheads.runs.files import read_json

MOST_BYTES = 2**22  # of a config.json
MOST_LAYERS = 1000
MOST_DISTANCES, WIDEST_CONVOLUTION = 2**16, 255  # of DeBERTa: far beyond any model there is, before memory is asked for
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}
POOLERS = ACTIVATIONS | {"tanh": "tanh"}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The keys of one JSON file, checked as they are read; a key that is absent or null has its default."""

    content: dict[str, Any]
    path: Path = Path("config.json")

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Raises UserError: too large, not JSON, or not an object."""
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path} is larger than {MOST_BYTES // 2**20} MiB: it is no description of a model")
        content = read_json(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} must be an object with keys and values")
        return cls(content, path)

    def get(self, name: str, default: Any = None) -> Any:
        value = self.content.get(name)
        return default if value is None else value

    def whole(self, name: str, default: int | None = None, *, at_least: int = 1, at_most: int = 2**31) -> int:
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            raise self.wrong(name, value, f"it must be a whole number from {at_least} to {at_most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise self.wrong(name, value, "it must be a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "it must be true or false")
        return value

    def choice(self, name: str, choices: dict[str, str], default: str) -> str:
        """Our name for the value, by `choices`.

        Raises:
            UserError: the value is none of them: our blocks have no such option.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, value, f"manyheads has {one_of(list(choices))} there, so this model cannot be read")
        return choices[value]

    def must_be(self, name: str, *allowed: Any) -> None:
        """Refuse other values of an option that our blocks do not have."""
        value = self.get(name)
        if value is not None and value not in allowed:
            raise self.wrong(name, value, "manyheads has no such option, so this model cannot be read")

    def wrong(self, name: str, value: Any, why: str) -> UserError:
        return UserError(f"{self.path}: {name}={format_value(value)}, but {why}")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a folder's config.json says.

    Attributes:
        model: settings of ModelConfig, as plain values.
        max_length: most tokens of a text.
        first_position: the row of the position table where texts begin.
        n_segments: rows of the table of segments.
    """

    family: str
    model: dict[str, Any]
    max_length: int
    vocab_size: int
    first_position: int = 0
    n_segments: int = 0

    def config(self) -> ModelConfig:
        return from_plain(ModelConfig, self.model, "model.")


@dataclass(frozen=True, slots=True)
class MarkIds:
    """Ids of those marks that a tokenizer has: `pad`, `cls`, `sep`, `mask`, `unk`."""

    ids: dict[str, int]
    is_unigram: bool = False


class ConfigKey(NamedTuple):
    """A row of a family's table.

    Attributes:
        theirs: the key of config.json.
        ours: the setting; empty: the key is read and written apart from the table.
        default: the value where the key is absent, or the setting whose value it then has; None: it must be there.
    """

    theirs: str
    ours: str = ""
    default: Any = None


class Family(NamedTuple):
    """A family of models.

    Attributes:
        name: of its tensors' names, see `weights.KEYS`.
        rows: its table, in the order in which they are written.
        fixed: our settings that all its models have.
        classes: how the names of its classes in transformers begin; empty: no model of ours is written as one.
        pads_first: the first rows of its table of positions are for pads.
    """

    name: str
    rows: tuple[ConfigKey, ...]
    fixed: dict[str, Any]
    classes: str = ""
    pads_first: bool = False


def post_norm_rows(
    vocab_size: int,
    *more: ConfigKey,
    of_classifier: str = "classifier_dropout",
    eps: float = 1e-12,
    n_segments: int = 2,
) -> tuple[ConfigKey, ...]:
    """The table of BERT and the families that have its keys."""
    return (
        ConfigKey("vocab_size", "vocab_size", vocab_size),
        ConfigKey("hidden_size", "d_model"),
        ConfigKey("num_hidden_layers", "n_layers"),
        ConfigKey("num_attention_heads", "n_heads"),
        ConfigKey("intermediate_size", "d_ff"),
        ConfigKey("hidden_act", "activation"),
        ConfigKey("hidden_dropout_prob", "dropout", 0.1),
        ConfigKey("attention_probs_dropout_prob", "dropout_attention", 0.1),
        ConfigKey(of_classifier, "dropout_classifier", "dropout"),
        ConfigKey("layer_norm_eps", "norm_eps", eps),
        ConfigKey("max_position_embeddings", "max_length", 512),
        ConfigKey("type_vocab_size", "n_segments", n_segments),
        *more,
    )


OF_DISTILBERT = (
    ConfigKey("vocab_size", "vocab_size", 30522),
    ConfigKey("dim", "d_model"),
    ConfigKey("n_layers", "n_layers", 6),
    ConfigKey("n_heads", "n_heads"),
    ConfigKey("hidden_dim", "d_ff", 3072),
    ConfigKey("activation", "activation"),
    ConfigKey("dropout", "dropout", 0.1),
    ConfigKey("attention_dropout", "dropout_attention", 0.1),
    ConfigKey("seq_classif_dropout", "dropout_classifier", 0.2),
    ConfigKey("max_position_embeddings", "max_length", 512),
    ConfigKey("sinusoidal_pos_embds"),
)
OF_MODERNBERT = (
    *(ConfigKey(f"{mark}_token_id") for mark in ("bos", "eos", "cls", "sep", "pad")),
    ConfigKey("vocab_size", "vocab_size", 50368),
    ConfigKey("hidden_size", "d_model"),
    ConfigKey("num_hidden_layers", "n_layers", 22),
    ConfigKey("num_attention_heads", "n_heads"),
    ConfigKey("intermediate_size", "d_ff", 1152),
    ConfigKey("hidden_activation"),
    ConfigKey("max_position_embeddings", "max_length", 8192),
    ConfigKey("norm_eps", "norm_eps", 1e-5),
    ConfigKey("norm_bias", "norm_bias", False),
    ConfigKey("attention_bias", "bias", False),
    *(ConfigKey("mlp_bias"), ConfigKey("classifier_bias"), ConfigKey("layer_types"), ConfigKey("local_attention")),
    *(ConfigKey("global_rope_theta"), ConfigKey("local_rope_theta"), ConfigKey("rope_parameters")),
    ConfigKey("classifier_pooling"),
    ConfigKey("classifier_activation"),
    ConfigKey("embedding_dropout", "dropout_embedding", 0.0),
    ConfigKey("mlp_dropout", "dropout", 0.0),
    ConfigKey("attention_dropout", "dropout_attention", 0.0),
    ConfigKey("classifier_dropout", "dropout_classifier", 0.0),
)
OF_DEBERTA = post_norm_rows(
    128100,
    *(ConfigKey("relative_attention"), ConfigKey("pos_att_type"), ConfigKey("position_buckets")),
    *(ConfigKey("max_relative_positions"), ConfigKey("share_att_key"), ConfigKey("norm_rel_ebd")),
    *(ConfigKey("position_biased_input"), ConfigKey("pooler_hidden_act")),
    *(ConfigKey("conv_kernel_size"), ConfigKey("conv_groups"), ConfigKey("conv_act")),
    of_classifier="cls_dropout",
    eps=1e-7,
    n_segments=0,
)
POST_NORM = {  # Devlin et al. (2019), "BERT", section 3
    **{"d_embedding": 0, "positions": "learned", "norm_bias": True, "norm_embedding": False},
    **{"placement": "post", "bias": True, "pooling": "first", "pooler": "tanh"},
}
MODERN = {  # Warner et al. (2024), "ModernBERT", section 2.1
    **{"d_embedding": 0, "activation": "geglu", "positions": "rotary", "norm_embedding": True},
    **{"placement": "pre", "pooler": "gelu_norm"},
}
FAMILIES: dict[str, Family] = {  # MiniLM (Wang et al., 2020) and most models for sentences are BERT, too
    "bert": Family("bert", post_norm_rows(30522), POST_NORM, "Bert"),
    # Sanh et al. (2019): BERT without segments, under other names
    "distilbert": Family("distilbert", OF_DISTILBERT, POST_NORM | {"norm_eps": 1e-12, "pooler": "relu"}, "DistilBert"),
    # Liu et al. (2019), Conneau et al. (2020)
    "roberta": Family("roberta", post_norm_rows(50265), POST_NORM, "Roberta", pads_first=True),
    "xlm-roberta": Family("roberta", post_norm_rows(50265), POST_NORM, "XLMRoberta", pads_first=True),
    "camembert": Family("roberta", post_norm_rows(50265), POST_NORM, pads_first=True),
    # Clark et al. (2020): embeddings may be narrower than the layers
    "electra": Family(
        "electra",
        post_norm_rows(30522, ConfigKey("embedding_size", "d_embedding", 128)),
        POST_NORM | {"pooler": "gelu"},
        "Electra",
    ),
    "modernbert": Family("modernbert", OF_MODERNBERT, MODERN, "ModernBert"),
    "deberta-v2": Family("deberta", OF_DEBERTA, POST_NORM | {"encoder": "deberta"}, "DebertaV2"),  # and DeBERTa-v3
}


def read_config(kind: str, given: ConfigFile) -> Shape:
    """What a config.json of the family `kind` says.

    Raises:
        UserError: a value is missing or impossible, or our blocks do not have it.
    """
    family = FAMILIES[kind]
    keys = {row.ours: row.theirs for row in family.rows}
    first_position = 0
    if family.pads_first:
        first_position = given.whole("pad_token_id", 1, at_least=0) + 1
    bounds = {"n_layers": {"at_most": MOST_LAYERS}, "max_length": {"at_least": first_position + 1}}
    if kind == "deberta-v2":
        bounds["n_segments"] = {"at_least": 0}
    found: dict[str, Any] = {}
    for name, ours, default in family.rows:
        if ours in ("bias", "norm_bias"):
            found[ours] = given.flag(name, default)
        elif ours == "activation":
            found[ours] = given.choice(name, ACTIVATIONS, "gelu")
        elif ours == "norm_eps" or ours.startswith("dropout"):
            found[ours] = given.number(name, found.get(default, default))
        elif ours:
            found[ours] = given.whole(name, default, **bounds.get(ours, {}))
    d_model, n_heads, n_segments = found["d_model"], found["n_heads"], found.pop("n_segments", 0)
    if d_model % n_heads:
        raise given.wrong(keys["n_heads"], n_heads, f"it must divide {keys['d_model']}={d_model}")
    if n_segments > 2:
        raise given.wrong(keys["n_segments"], n_segments, "a pair has two segments, so this model cannot be read")
    if found.get("d_embedding") == d_model:
        found["d_embedding"] = 0
    vocab_size, max_length = found.pop("vocab_size"), found.pop("max_length") - first_position
    model = {**family.fixed, **found, "d_k": d_model // n_heads, "d_v": d_model // n_heads}
    model["segments"] = "always" if n_segments == 2 else "never"
    if kind == "modernbert":
        model |= read_modern(given, model["n_layers"], model["bias"])
    elif kind == "deberta-v2":
        model |= read_deberta(given, d_model, model["d_k"], n_segments)
    return Shape(family.name, model, max_length, vocab_size, first_position, n_segments)


def read_modern(given: ConfigFile, n_layers: int, bias: bool) -> dict[str, Any]:
    """Settings that only ModernBERT has."""
    for name in ("is_causal", "causal_mask"):
        given.must_be(name, False)
    for name in ("hidden_activation", "classifier_activation"):
        given.choice(name, {"gelu": "gelu"}, "gelu")
    for name in ("mlp_bias", "classifier_bias"):
        if given.flag(name, False) != bias:
            raise given.wrong(name, not bias, "attention_bias is not: manyheads has biases in all blocks or in none")
    windows = windows_of_layers(given, n_layers)
    base, base_of_windows = rotary_bases(given)
    found: dict[str, Any] = {"rotary_base": base, "rotary_base_window": None, "windows": []}
    if any(windows):
        found |= {"rotary_base_window": base_of_windows, "windows": windows}
    found["pooling"] = given.choice("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    return found


def windows_of_layers(given: ConfigFile, n_layers: int) -> list[int]:
    """The window of each layer, until they repeat; 0: none.

    `local_attention` counts the tokens on both sides, our windows those on one.
    """
    every = given.whole("global_attn_every_n_layers", 3)
    usual = ["sliding_attention" if layer % every else "full_attention" for layer in range(n_layers)]
    kinds = given.get("layer_types") or usual
    reach = {"sliding_attention": given.whole("local_attention", 128, at_least=2) // 2, "full_attention": 0}
    if not isinstance(kinds, list) or len(kinds) != n_layers or not all(kind in [*reach] for kind in kinds):
        raise given.wrong("layer_types", kinds, f"it must name {' or '.join(reach)} for each of {n_layers} layers")
    windows = [reach[kind] for kind in kinds]
    period = 1
    while windows[period:] != windows[: n_layers - period]:  # until shifted by it, they are the same
        period += 1
    return windows[:period]


def rotary_bases(given: ConfigFile) -> tuple[float, float]:
    """The rotary base of layers that see the whole text, and that of layers with a window."""
    given.must_be("rope_scaling", {})
    bases = {"full_attention": given.number("global_rope_theta", 160_000.0)}
    bases["sliding_attention"] = given.number("local_rope_theta", 10_000.0)
    parameters = given.get("rope_parameters", {})
    not_plain = given.wrong("rope_parameters", parameters, "manyheads has plain rotary positions alone")
    if not isinstance(parameters, dict):
        raise not_plain
    for kind in bases:
        own = parameters.get(kind) or {}
        if not isinstance(own, dict) or own.get("rope_type", "default") != "default":
            raise not_plain
        base = own.get("rope_theta", bases[kind])
        if isinstance(base, bool) or not isinstance(base, int | float) or not 0 < base < 1e30:
            raise given.wrong("rope_parameters", parameters, "rope_theta must be a number above 0")
        bases[kind] = float(base)
    return bases["full_attention"], bases["sliding_attention"]


def read_deberta(given: ConfigFile, d_model: int, d_k: int, n_segments: int) -> dict[str, Any]:
    """Settings that only DeBERTa has: relative positions in the scores, and a convolution."""
    for name, size in (("embedding_size", d_model), ("pooler_hidden_size", d_model), ("attention_head_size", d_k)):
        given.must_be(name, size)
    terms = given.get("pos_att_type", [])
    if isinstance(terms, str):
        terms = [term.strip() for term in terms.lower().split("|")]
    is_relative = given.flag("relative_attention", False)
    if not isinstance(terms, list) or not all(term in ["c2p", "p2c"] for term in terms) or (is_relative and not terms):
        raise given.wrong("pos_att_type", terms, "it must name c2p, p2c or both, so this model cannot be read")
    positions = "learned" if given.flag("position_biased_input", True) else "none"
    if n_segments == 1 and positions == "none":
        raise given.wrong("type_vocab_size", 1, "without positions to add that one to, this model cannot be read")
    width = given.whole("conv_kernel_size", 0, at_least=0, at_most=WIDEST_CONVOLUTION)
    groups = given.whole("conv_groups", 1)
    if width and (width % 2 == 0 or d_model % groups):
        raise given.wrong("conv_kernel_size", width, f"it must be odd, and conv_groups={groups} divide {d_model}")
    buckets = max(0, given.whole("position_buckets", -1, at_least=-1))
    furthest = given.whole("max_relative_positions", -1, at_least=-1)
    if furthest < 1:
        furthest = given.whole("max_position_embeddings", 512)
    if is_relative and buckets and not 4 <= buckets < 2 * furthest - 2:
        raise given.wrong("position_buckets", buckets, f"it must be from 4 to less than twice {furthest} - 2")
    if (buckets or furthest) > MOST_DISTANCES:
        raise given.wrong("position_buckets", buckets or -1, f"a table has at most {MOST_DISTANCES} distances")
    found: dict[str, Any] = {"positions": positions}
    found["pooler"] = given.choice("pooler_hidden_act", POOLERS, "gelu")
    if not is_relative:  # the terms are missing, but not from the divisor
        found["scale"] = ((1 + len({*terms})) * d_k) ** -0.5
    found["encoder_options"] = {
        "buckets": buckets,
        "max_distance": furthest,
        "c2p": is_relative and "c2p" in terms,
        "p2c": is_relative and "p2c" in terms,
        "share": given.flag("share_att_key", False),
        "norm": given.choice("norm_rel_ebd", {"none": "none", "layer_norm": "norm"}, "none") == "norm",
        "convolution": width,
        "convolution_groups": groups,
        "convolution_activation": given.choice("conv_act", POOLERS, "tanh"),
    }
    return found


def write_deberta(model: ModelConfig) -> dict[str, Any]:
    """The keys that only DeBERTa has."""
    options = {**options_of("encoder", model.encoder), **model.options("encoder")}
    terms = [term for term in ("c2p", "p2c") if options[term]]
    return {
        "relative_attention": bool(terms),
        "pos_att_type": terms,
        "position_buckets": options["buckets"] or -1,
        "max_relative_positions": options["max_distance"],
        "share_att_key": options["share"],
        "norm_rel_ebd": "layer_norm" if options["norm"] else "none",
        "position_biased_input": model.positions != "none",
        "pooler_hidden_act": model.pooler.name if model.pooler.name in POOLERS else "gelu",
        "conv_kernel_size": options["convolution"],
        "conv_groups": options["convolution_groups"],
        "conv_act": options["convolution_activation"],
    }


def write_config(
    kind: str, model: ModelConfig, *, marks: MarkIds, has_segments: bool, vocab_size: int, max_length: int
) -> dict[str, Any]:
    """The config.json of the family `kind` for a model of ours, as far as the family has such a model."""
    family = FAMILIES[kind]
    windows = [model.window_of(layer) for layer in range(model.n_layers)]
    base, base_of_windows = model.rotary_base, model.rotary_base_window or model.rotary_base
    n_pad_positions = marks.ids["pad"] + 1 if family.pads_first else 0
    values = {  # by the setting, or by the key itself where that is read apart from the table
        "bos_token_id": marks.ids.get("cls"),
        "eos_token_id": marks.ids.get("sep"),
        "cls_token_id": marks.ids.get("cls"),
        "sep_token_id": marks.ids.get("sep"),
        "pad_token_id": marks.ids.get("pad"),
        "vocab_size": vocab_size,
        "max_length": max_length + n_pad_positions,
        "n_segments": 1 if family.pads_first and not has_segments else 2,
        "d_embedding": model.width_of_words,
        "activation": "relu" if model.activation == "relu" else "gelu",
        "norm_eps": model.norm_eps or 1e-5,
        "dropout": model.dropout_at("residual"),
        "dropout_embedding": model.dropout_at("embedding"),
        "dropout_classifier": model.dropout_at("classifier"),
        "sinusoidal_pos_embds": False,
        "mlp_bias": model.bias,
        "classifier_bias": model.bias,
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        "local_attention": 2 * max([1, *windows]),
        "global_rope_theta": base,
        "local_rope_theta": base_of_windows,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": base},
            "sliding_attention": {"rope_type": "default", "rope_theta": base_of_windows},
        },
        "classifier_pooling": "mean" if model.pooling == "mean" else "cls",
    }
    if kind == "deberta-v2":
        values |= write_deberta(model)
        values["n_segments"] = 2 if has_segments else 0
    config = {}
    for theirs, ours, _ in family.rows:
        name = ours or theirs
        config[theirs] = values[name] if name in values else getattr(model, name)
    return config
