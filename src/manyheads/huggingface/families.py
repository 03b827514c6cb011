"""The families of models that are read and written: what the config.json of each says, both ways.

Values of a stranger's config.json are checked before they are used. Standard library and config alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import Activation, ModelConfig, Pooling
from manyheads.config.fields import from_plain, one_of, show
from manyheads.runs.atomic import read_json

MOST_BYTES = 2**22  # of a config.json
MOST_LAYERS = 1000
ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}


class Given:
    """The keys of one JSON file; a key that is absent or null has its default."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError: too large, not JSON, or not an object."""
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path} is larger than {MOST_BYTES // 2**20} MiB: it is no description of a model")
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError(f"{path} must be an object with keys and values")
        self.path, self.content = path, content

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Given":
        """What a config.json with this content says."""
        given = cls.__new__(cls)
        given.path, given.content = Path("config.json"), content
        return given

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
            ValueError: it is none of them: another model than ours can be.
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

    def wrong(self, name: str, value: Any, why: str) -> ValueError:
        return ValueError(f"{self.path}: {name}={show(value)}, but {why}")


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
class Marks:
    """Ids of the marks of a tokenizer, for those that it has: `pad`, `cls`, `sep`, `mask`, `unk`."""

    ids: dict[str, int]
    is_unigram: bool = False


def _heads(given: Given, width: str, heads: str) -> dict[str, Any]:
    """Widths of the heads, which divide the model's among themselves."""
    d_model, n_heads = given.whole(width), given.whole(heads)
    if d_model % n_heads:
        raise given.wrong(heads, n_heads, f"it must divide {width}={d_model}")
    return {"d_model": d_model, "n_heads": n_heads, "d_k": d_model // n_heads, "d_v": d_model // n_heads}


def _read_post_norm(given: Given, **more: Any) -> dict[str, Any]:
    """What BERT, RoBERTa and ELECTRA have in common: Devlin et al. (2019), section 3."""
    n_segments = given.whole("type_vocab_size", 2)
    if n_segments > 2:
        raise given.wrong("type_vocab_size", n_segments, "a pair has two segments, so this model cannot be read")
    return {
        "n_layers": given.whole("num_hidden_layers", at_most=MOST_LAYERS),
        **_heads(given, "hidden_size", "num_attention_heads"),
        "d_embedding": 0,
        "d_ff": given.whole("intermediate_size"),
        "activation": given.choice("hidden_act", ACTIVATIONS, "gelu"),
        "positions": "learned",
        "segments": "always" if n_segments == 2 else "never",
        "norm_eps": given.number("layer_norm_eps", 1e-12),
        "norm_bias": True,
        "norm_embedding": False,
        "placement": "post",
        "bias": True,
        "pooling": "first",
        "dropout": given.number("hidden_dropout_prob", 0.1),
        "dropout_attention": given.number("attention_probs_dropout_prob", 0.1),
        "dropout_classifier": given.number("classifier_dropout", given.number("hidden_dropout_prob", 0.1)),
        **more,
    }


def read_bert(given: Given) -> Shape:
    """Devlin et al. (2019), "BERT"; MiniLM (Wang et al., 2020) and most models for sentences are BERT, too."""
    return Shape(
        family="bert",
        model=_read_post_norm(given, pooler="tanh"),
        max_length=given.whole("max_position_embeddings", 512),
        vocab_size=given.whole("vocab_size", 30522),
        n_segments=given.whole("type_vocab_size", 2),
    )


def read_roberta(given: Given) -> Shape:
    """Liu et al. (2019), "RoBERTa"; Conneau et al. (2020), "XLM-R". The first positions of the table are of pads."""
    first_position = given.whole("pad_token_id", 1, at_least=0) + 1
    return Shape(
        family="roberta",
        model=_read_post_norm(given, pooler="tanh"),
        max_length=given.whole("max_position_embeddings", 512, at_least=first_position + 1) - first_position,
        vocab_size=given.whole("vocab_size", 50265),
        first_position=first_position,
        n_segments=given.whole("type_vocab_size", 2),
    )


def read_electra(given: Given) -> Shape:
    """Clark et al. (2020), "ELECTRA": embeddings may be narrower than the layers."""
    d_model = given.whole("hidden_size", 256)
    d_embedding = given.whole("embedding_size", 128)
    return Shape(
        family="electra",
        model=_read_post_norm(given, pooler="gelu", d_embedding=0 if d_embedding == d_model else d_embedding),
        max_length=given.whole("max_position_embeddings", 512),
        vocab_size=given.whole("vocab_size", 30522),
        n_segments=given.whole("type_vocab_size", 2),
    )


def read_distilbert(given: Given) -> Shape:
    """Sanh et al. (2019), "DistilBERT": BERT without segments, named otherwise."""
    model = {
        "n_layers": given.whole("n_layers", 6, at_most=MOST_LAYERS),
        **_heads(given, "dim", "n_heads"),
        "d_embedding": 0,
        "d_ff": given.whole("hidden_dim", 3072),
        "activation": given.choice("activation", ACTIVATIONS, "gelu"),
        "positions": "learned",
        "segments": "never",
        "norm_eps": 1e-12,
        "norm_bias": True,
        "norm_embedding": False,
        "placement": "post",
        "bias": True,
        "pooling": "first",
        "pooler": "relu",
        "dropout": given.number("dropout", 0.1),
        "dropout_attention": given.number("attention_dropout", 0.1),
        "dropout_classifier": given.number("seq_classif_dropout", 0.2),
    }
    return Shape(
        family="distilbert",
        model=model,
        max_length=given.whole("max_position_embeddings", 512),
        vocab_size=given.whole("vocab_size", 30522),
    )


def read_modernbert(given: Given) -> Shape:
    """Warner et al. (2024), "ModernBERT", section 2.1."""
    given.choice("hidden_activation", {"gelu": "gelu"}, "gelu")
    given.choice("classifier_activation", {"gelu": "gelu"}, "gelu")
    bias = given.flag("attention_bias", False)
    for name in ("mlp_bias", "classifier_bias"):
        if given.flag(name, False) != bias:
            raise given.wrong(name, not bias, "attention_bias is not: manyheads has biases in all blocks or in none")
    n_layers = given.whole("num_hidden_layers", 22, at_most=MOST_LAYERS)
    windows = _windows(given, n_layers)
    base, base_of_windows = _rotary_bases(given)
    model = {
        "n_layers": n_layers,
        **_heads(given, "hidden_size", "num_attention_heads"),
        "d_embedding": 0,
        "d_ff": given.whole("intermediate_size", 1152),
        "activation": "geglu",
        "positions": "rotary",
        "rotary_base": base,
        "rotary_base_window": base_of_windows if any(windows) else None,
        "windows": windows if any(windows) else [],
        "segments": "never",
        "norm_eps": given.number("norm_eps", 1e-5),
        "norm_bias": given.flag("norm_bias", False),
        "norm_embedding": True,
        "placement": "pre",
        "bias": bias,
        "pooling": given.choice("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls"),
        "pooler": "gelu_norm",
        "dropout": given.number("mlp_dropout", 0.0),
        "dropout_embedding": given.number("embedding_dropout", 0.0),
        "dropout_attention": given.number("attention_dropout", 0.0),
        "dropout_classifier": given.number("classifier_dropout", 0.0),
    }
    return Shape(
        family="modernbert",
        model=model,
        max_length=given.whole("max_position_embeddings", 8192),
        vocab_size=given.whole("vocab_size", 50368),
    )


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


def _write_post_norm(model: ModelConfig, *, vocab_size: int, max_length: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": model.n_heads,
        "intermediate_size": model.d_ff,
        "hidden_act": "relu" if model.activation is Activation.relu else "gelu",
        "hidden_dropout_prob": model.dropout_at("residual"),
        "attention_probs_dropout_prob": model.dropout_attention,
        "classifier_dropout": model.dropout_at("classifier"),
        "layer_norm_eps": model.norm_eps or 1e-5,
        "max_position_embeddings": max_length,
        "type_vocab_size": 2,
    }


def write_bert(model: ModelConfig, *, marks: Marks, has_segments: bool, **sizes: int) -> dict[str, Any]:
    return _write_post_norm(model, **sizes)


def write_electra(model: ModelConfig, *, marks: Marks, has_segments: bool, **sizes: int) -> dict[str, Any]:
    return _write_post_norm(model, **sizes) | {"embedding_size": model.width_of_words}


def write_roberta(model: ModelConfig, *, marks: Marks, has_segments: bool, **sizes: int) -> dict[str, Any]:
    rows = sizes["max_length"] + marks.ids["pad"] + 1
    return _write_post_norm(model, **sizes) | {
        "max_position_embeddings": rows,
        "type_vocab_size": 2 if has_segments else 1,
    }


def write_distilbert(
    model: ModelConfig, *, marks: Marks, has_segments: bool, vocab_size: int, max_length: int
) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "dim": model.d_model,
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
        "hidden_dim": model.d_ff,
        "activation": "relu" if model.activation is Activation.relu else "gelu",
        "dropout": model.dropout_at("residual"),
        "attention_dropout": model.dropout_attention,
        "seq_classif_dropout": model.dropout_at("classifier"),
        "max_position_embeddings": max_length,
        "sinusoidal_pos_embds": False,
    }


def write_modernbert(
    model: ModelConfig, *, marks: Marks, has_segments: bool, vocab_size: int, max_length: int
) -> dict[str, Any]:
    windows = [model.window_of(layer) for layer in range(model.n_layers)]
    base, of_windows = model.rotary_base, model.rotary_base_window or model.rotary_base
    names = {"bos": "cls", "eos": "sep", "cls": "cls", "sep": "sep"}
    return {
        **{f"{theirs}_token_id": marks.ids.get(ours) for theirs, ours in names.items()},
        "pad_token_id": marks.ids.get("pad"),
        "vocab_size": vocab_size,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": model.n_heads,
        "intermediate_size": model.d_ff,
        "hidden_activation": "gelu",
        "max_position_embeddings": max_length,
        "norm_eps": model.norm_eps or 1e-5,
        "norm_bias": model.norm_bias,
        **dict.fromkeys(("attention_bias", "mlp_bias", "classifier_bias"), model.bias),
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        "local_attention": 2 * max([1, *windows]),
        "global_rope_theta": base,
        "local_rope_theta": of_windows,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": base},
            "sliding_attention": {"rope_type": "default", "rope_theta": of_windows},
        },
        "classifier_pooling": "mean" if model.pooling is Pooling.mean else "cls",
        "classifier_activation": "gelu",
        "embedding_dropout": model.dropout_at("embedding"),
        "mlp_dropout": model.dropout_at("residual"),
        "attention_dropout": model.dropout_attention,
        "classifier_dropout": model.dropout_at("classifier"),
    }


class Family(NamedTuple):
    """How its config.json is read, and where a model of ours may be written as one, the beginning of the names of its
    classes in transformers and how its config.json is written."""

    read: Callable[[Given], Shape]
    classes: str = ""
    write: Callable[..., dict[str, Any]] | None = None


FAMILIES: dict[str, Family] = {
    "bert": Family(read_bert, "Bert", write_bert),
    "distilbert": Family(read_distilbert, "DistilBert", write_distilbert),
    "roberta": Family(read_roberta, "Roberta", write_roberta),
    "xlm-roberta": Family(read_roberta, "XLMRoberta", write_roberta),
    "camembert": Family(read_roberta),
    "electra": Family(read_electra, "Electra", write_electra),
    "modernbert": Family(read_modernbert, "ModernBert", write_modernbert),
}
