"""What is trained: texts, shapes, and the operations that a token of them costs. Standard library only."""

from dataclasses import dataclass

VOCAB_SIZE = 30_522  # of every model; a tokenizer learned from few texts has fewer entries
DROPOUT = 0.1  # of embedding, attention weights, residual and classifier
LR, WEIGHT_DECAY, CLIP, N_STEPS = 1e-4, 0.01, 1.0, 100_000  # AdamW, falling linearly over more steps than are made


@dataclass(frozen=True, slots=True)
class Text:
    """A folder of $MANYHEADS_DATA whose texts are cut to `max_length` tokens, [CLS] and [SEP] included."""

    folder: str
    max_length: int


@dataclass(frozen=True, slots=True)
class Shape:
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int


TEXTS = {"short": Text("ag_news_10k", 128), "long256": Text("imdb", 256), "long512": Text("imdb", 512)}
SHAPES = {"256": Shape(256, 4, 4, 1024), "128": Shape(128, 2, 2, 512), "384": Shape(384, 6, 12, 1536)}
SETTINGS = {  # who trains; in the lesser ones only those that the comparison is about: all must fit in 35 minutes
    "short-256": "abcdefgh",
    "long256-256": "abcdefgh",
    "long512-256": "acdef",
    "short-128": "acef",
    "long256-128": "acef",
    "short-384": "acef",
    "long256-384": "acef",
}


def text_of(setting: str) -> Text:
    return TEXTS[setting.partition("-")[0]]


def shape_of(setting: str) -> Shape:
    return SHAPES[setting.partition("-")[2]]


def flops_per_token(shape: Shape, length: float) -> float:
    """Operations of a training step for each real token: 6 N + 12 n_layers d_model length.

    N = n_layers (4 d_model² + 2 d_model d_ff) are the weights of the projections and the feed-forward blocks, each of
    which multiplies and adds once forward and twice backward; a token's queries meet `length` keys and values.
    Embedding, norms, softmax and the classifier, once a text, are left out (Kaplan et al., 2020, section 2.1).
    """
    d_model, n_layers = shape.d_model, shape.n_layers
    n_weights = n_layers * (4 * d_model**2 + 2 * d_model * shape.d_ff)
    return 6 * n_weights + 12 * n_layers * d_model * length


def mean_length_met(lengths: list[int]) -> float:
    """How long the text of a token is, on average over tokens: long texts hold more of them."""
    return sum(length**2 for length in lengths) / sum(lengths)
