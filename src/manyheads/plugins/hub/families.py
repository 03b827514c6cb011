"""The families of models that are read and written: what the config.json of each says, both ways.

A row of a family's table is a key of its config.json and the setting of ours that it is: read from left to right,
written from right to left. Values of a stranger's config.json are checked before they are used. Standard library and
config alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import ModelConfig
from manyheads.config.conversion import from_plain
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError
from manyheads.runs.files import read_json

MOST_BYTES = 2**22  # of a config.json
MOST_LAYERS = 1000
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}


@dataclass(frozen=True, slots=True)
class Given:
    """The keys of one JSON file; a key that is absent or null has its default."""

    content: dict[str, Any]
    path: Path = Path("config.json")

    @classmethod
    def read(cls, path: Path) -> "Given":
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
        """What `choices` has for the value.

        Raises:
            UserError: it is none of them: another model than ours can be.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, value, f"manyheads has {one_of(list(choices))} there, so this model cannot be read")
        return choices[value]

    def must_be(self, name: str, *allowed: Any) -> None:
        """Refuse another value of an option that would make another model."""
        value = self.get(name)
        if value is not None and value not in allowed:
            raise self.wrong(name, value, "manyheads has no such option, so this model cannot be read")

    def wrong(self, name: str, value: Any, why: str) -> UserError:
        return UserError(f"{self.path}: {name}={format_value(value)}, but {why}")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a folder's config.json says.

    `model` holds settings of ModelConfig as plain values. `max_length` is the most tokens a text can have,
    `first_position` the row of its position table where texts begin, `n_segments` the rows of its table of segments.
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
    """Ids of the marks of a tokenizer, for those that it has: `pad`, `cls`, `sep`, `mask`, `unk`."""

    ids: dict[str, int]
    is_unigram: bool = False


class ConfigKey(NamedTuple):
    """A key of a config.json, the setting of ours (empty: read and written by itself), and what it is if it is absent:
    a value, the setting it is then the same as, or None if it must be there."""

    theirs: str
    ours: str = ""
    default: Any = None


class Family(NamedTuple):
    """`rows` in the order in which they are written, and what all its models have. `name` is that of its tensors, and
    `classes` the beginning of the names of its classes in transformers, where a model of ours may be written as one.
    """

    name: str
    rows: tuple[ConfigKey, ...]
    fixed: dict[str, Any]
    classes: str = ""
    pads_first: bool = False  # the first positions of its table are of pads


def _post_norm(vocab_size: int, *more: ConfigKey) -> tuple[ConfigKey, ...]:
    return (
        ConfigKey("vocab_size", "vocab_size", vocab_size),
        ConfigKey("hidden_size", "d_model"),
        ConfigKey("num_hidden_layers", "n_layers"),
        ConfigKey("num_attention_heads", "n_heads"),
        ConfigKey("intermediate_size", "d_ff"),
        ConfigKey("hidden_act", "activation"),
        ConfigKey("hidden_dropout_prob", "dropout", 0.1),
        ConfigKey("attention_probs_dropout_prob", "dropout_attention", 0.1),
        ConfigKey("classifier_dropout", "dropout_classifier", "dropout"),
        ConfigKey("layer_norm_eps", "norm_eps", 1e-12),
        ConfigKey("max_position_embeddings", "max_length", 512),
        ConfigKey("type_vocab_size", "n_segments", 2),
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
POST_NORM = {  # Devlin et al. (2019), "BERT", section 3
    **{"d_embedding": 0, "positions": "learned", "norm_bias": True, "norm_embedding": False},
    **{"placement": "post", "bias": True, "pooling": "first", "pooler": "tanh"},
}
MODERN = {  # Warner et al. (2024), "ModernBERT", section 2.1
    **{"d_embedding": 0, "activation": "geglu", "positions": "rotary", "norm_embedding": True},
    **{"placement": "pre", "pooler": "gelu_norm"},
}
FAMILIES: dict[str, Family] = {  # MiniLM (Wang et al., 2020) and most models for sentences are BERT, too
    "bert": Family("bert", _post_norm(30522), POST_NORM, "Bert"),
    # Sanh et al. (2019): BERT without segments, named otherwise
    "distilbert": Family("distilbert", OF_DISTILBERT, POST_NORM | {"norm_eps": 1e-12, "pooler": "relu"}, "DistilBert"),
    # Liu et al. (2019), Conneau et al. (2020)
    "roberta": Family("roberta", _post_norm(50265), POST_NORM, "Roberta", pads_first=True),
    "xlm-roberta": Family("roberta", _post_norm(50265), POST_NORM, "XLMRoberta", pads_first=True),
    "camembert": Family("roberta", _post_norm(50265), POST_NORM, pads_first=True),
    # Clark et al. (2020): embeddings may be narrower than the layers
    "electra": Family(
        "electra",
        _post_norm(30522, ConfigKey("embedding_size", "d_embedding", 128)),
        POST_NORM | {"pooler": "gelu"},
        "Electra",
    ),
    "modernbert": Family("modernbert", OF_MODERNBERT, MODERN, "ModernBert"),
}


def read_config(kind: str, given: Given) -> Shape:
    """What a config.json of the family `kind` says.

    Raises:
        UserError: a value that is missing or cannot be, or that makes another model than ours can be.
    """
    family, keys = FAMILIES[kind], {row.ours: row.theirs for row in FAMILIES[kind].rows}
    first_position = given.whole("pad_token_id", 1, at_least=0) + 1 if family.pads_first else 0
    found: dict[str, Any] = {}
    for name, ours, default in family.rows:
        if ours in ("bias", "norm_bias"):
            found[ours] = given.flag(name, default)
        elif ours == "activation":
            found[ours] = given.choice(name, ACTIVATIONS, "gelu")
        elif ours == "norm_eps" or ours.startswith("dropout"):
            found[ours] = given.number(name, found.get(default, default))
        elif ours:
            bounds = {"n_layers": {"at_most": MOST_LAYERS}, "max_length": {"at_least": first_position + 1}}
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
        model |= _read_modern(given, model["n_layers"], model["bias"])
    return Shape(family.name, model, max_length, vocab_size, first_position, n_segments)


def _read_modern(given: Given, n_layers: int, bias: bool) -> dict[str, Any]:
    for name in ("hidden_activation", "classifier_activation"):
        given.choice(name, {"gelu": "gelu"}, "gelu")
    for name in ("mlp_bias", "classifier_bias"):
        if given.flag(name, False) != bias:
            raise given.wrong(name, not bias, "attention_bias is not: manyheads has biases in all blocks or in none")
    windows = _windows(given, n_layers)
    base, base_of_windows = _rotary_bases(given)
    return {
        "rotary_base": base,
        "rotary_base_window": base_of_windows if any(windows) else None,
        "windows": windows if any(windows) else [],
        "pooling": given.choice("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls"),
    }


def _windows(given: Given, n_layers: int) -> list[int]:
    """The window of each layer, until they repeat; local_attention counts both sides."""
    every = given.whole("global_attn_every_n_layers", 3)
    kinds = given.get("layer_types") or [
        "sliding_attention" if i % every else "full_attention" for i in range(n_layers)
    ]
    reach = {"sliding_attention": given.whole("local_attention", 128, at_least=2) // 2, "full_attention": 0}
    if not isinstance(kinds, list) or len(kinds) != n_layers or not all(kind in [*reach] for kind in kinds):
        raise given.wrong("layer_types", kinds, f"it must name {' or '.join(reach)} for each of {n_layers} layers")
    windows = [reach[kind] for kind in kinds]
    period = next(n for n in range(1, n_layers + 1) if all(windows[i] == windows[i % n] for i in range(n_layers)))
    return windows[:period]


def _rotary_bases(given: Given) -> tuple[float, float]:
    """Of layers that see the whole text, and of those with a window."""
    given.must_be("rope_scaling", {})
    bases = {"full_attention": given.number("global_rope_theta", 160_000.0)}
    bases["sliding_attention"] = given.number("local_rope_theta", 10_000.0)
    parameters = given.get("rope_parameters", {})
    for kind in bases:
        own = parameters.get(kind) or {} if isinstance(parameters, dict) else None
        if not isinstance(own, dict) or own.get("rope_type", "default") != "default":
            raise given.wrong("rope_parameters", parameters, "manyheads has plain rotary positions alone")
        base = own.get("rope_theta", bases[kind])
        if isinstance(base, bool) or not isinstance(base, int | float) or not 0 < base < 1e30:
            raise given.wrong("rope_parameters", parameters, "rope_theta must be a number above 0")
        bases[kind] = float(base)
    return bases["full_attention"], bases["sliding_attention"]


def write_config(
    kind: str, model: ModelConfig, *, marks: MarkIds, has_segments: bool, vocab_size: int, max_length: int
) -> dict[str, Any]:
    """What the config.json of the family `kind` says of a model of ours, as far as the family has it."""
    family = FAMILIES[kind]
    windows = [model.window_of(layer) for layer in range(model.n_layers)]
    base, of_windows = model.rotary_base, model.rotary_base_window or model.rotary_base
    ids = {"bos": "cls", "eos": "sep", "cls": "cls", "sep": "sep", "pad": "pad"}
    said = {
        **{f"{theirs}_token_id": marks.ids.get(ours) for theirs, ours in ids.items()},
        "vocab_size": vocab_size,
        "max_length": max_length + (marks.ids["pad"] + 1 if family.pads_first else 0),
        "n_segments": 1 if family.pads_first and not has_segments else 2,
        "d_embedding": model.width_of_words,
        "activation": "relu" if model.activation == "relu" else "gelu",
        "norm_eps": model.norm_eps or 1e-5,
        "dropout": model.dropout_at("residual"),
        "dropout_embedding": model.dropout_at("embedding"),
        "dropout_classifier": model.dropout_at("classifier"),
        "sinusoidal_pos_embds": False,
        **dict.fromkeys(("mlp_bias", "classifier_bias"), model.bias),
        **dict.fromkeys(("hidden_activation", "classifier_activation"), "gelu"),
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        "local_attention": 2 * max([1, *windows]),
        "global_rope_theta": base,
        "local_rope_theta": of_windows,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": base},
            "sliding_attention": {"rope_type": "default", "rope_theta": of_windows},
        },
        "classifier_pooling": "mean" if model.pooling == "mean" else "cls",
    }
    names = {theirs: ours or theirs for theirs, ours, _ in family.rows}
    return {theirs: said[name] if name in said else getattr(model, name) for theirs, name in names.items()}
