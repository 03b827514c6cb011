"""What a model's blocks are chosen from, and the terms of a linear model."""

from enum import Enum


class Score(Enum):
    scaled_dot = "scaled_dot"
    dot = "dot"
    cosine = "cosine"
    additive = "additive"
    general = "general"
    concat = "concat"
    distance = "distance"


class Normaliser(Enum):
    softmax = "softmax"
    sigmoid = "sigmoid"
    sparsemax = "sparsemax"
    entmax15 = "entmax15"


class EncoderKind(Enum):
    transformer = "transformer"
    gru = "gru"
    lstm = "lstm"


class Activation(Enum):
    relu = "relu"
    gelu = "gelu"
    geglu = "geglu"
    swiglu = "swiglu"


class Positions(Enum):
    none = "none"
    sinusoidal = "sinusoidal"
    learned = "learned"
    rotary = "rotary"
    alibi = "alibi"


class Norm(Enum):
    layer = "layer"
    rms = "rms"


class Placement(Enum):
    pre = "pre"
    post = "post"
    both = "both"


class Pooling(Enum):
    mean = "mean"
    first = "first"
    max = "max"
    attention = "attention"


class Pooler(Enum):
    none = "none"
    tanh = "tanh"
    relu = "relu"
    gelu = "gelu"
    gelu_norm = "gelu_norm"


class Segments(Enum):
    pairs = "pairs"
    always = "always"
    never = "never"


class PairKind(Enum):
    joint = "joint"
    cross = "cross"


class Terms(Enum):
    """What a linear model counts in a text; the value is its name in tables and reports."""

    words = "words and pairs of words"
    characters = "characters 2-4"
    both = "words, pairs of words and characters 2-4"
