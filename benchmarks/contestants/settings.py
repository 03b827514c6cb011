"""What is trained: texts, shapes, our settings, and what a token costs. Standard library only."""

from dataclasses import dataclass

PROTOCOL = 2  # raise it when contestants or rounds change: older figures are then measured again, not shown
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


@dataclass(frozen=True, slots=True)
class Way:
    """How the Trainer is used. A batch of 32 is kinder to it than its own default of 8."""

    rows: int = 32
    to_longest_allowed: bool = False
    by_length: bool = False
    in_order: bool = False
    bf16: bool = False
    attention: str = "sdpa"


TEXTS = {"short": Text("ag_news_10k", 128), "long256": Text("imdb", 256), "long512": Text("imdb", 512)}
SHAPES = {"256": Shape(256, 4, 4, 1024), "128": Shape(128, 2, 2, 512), "384": Shape(384, 6, 12, 1536)}
SETTINGS = {  # who trains; in the lesser ones only those that the comparison is about
    "short-256": "abcdefh",
    "long256-256": "acdef",
    "long512-256": "acdef",
    "short-128": "acefg",
    "long256-128": "acefg",
    "short-384": "acef",
    "long256-384": "acef",
}
PINNED = """
model.encoder=transformer model.n_kv_heads=0 model.d_embedding=0 model.score=scaled_dot
model.scores=[] model.normaliser=softmax model.scale=null model.project=true model.project_output=true model.window=0
model.windows=[] model.causal=false model.activation=gelu model.positions=sinusoidal model.rotary_base=10000
model.rotary_base_window=null model.segments=pairs model.pair=joint model.norm=layer model.norm_eps=null
model.placement=pre model.norm_bias=true model.norm_embedding=false model.pooling=mean model.pooler=none model.bias=true
model.qk_norm=false model.zero_output=false model.matches=false model.dropout_embedding=null
model.dropout_residual=null model.dropout_classifier=null model.dropout_tokens=0
optim.few=0 optim.few_strength=null optim.few_epochs=0 optim.steps_per_class=0
optim.layer_decay=1.0 optim.scale_embedding_lr=false optim.freeze=0 optim.beta1=0.9 optim.beta2=0.999
optim.eps=1e-8 optim.warmup=0.06 optim.schedule=linear optim.decay_share=0.2 optim.average=0 optim.label_smoothing=0
optim.class_weights=none optim.focal_gamma=0 optim.objective=cross_entropy
batch.tokens=8192 batch.rows=64 batch.accumulate=1 batch.balance=none
guard.nonfinite=raise guard.at_most=5 guard.halve=true
hardware.accelerator=cpu hardware.precision=auto hardware.compile=never hardware.recompute=false logger.every=50
"""  # every setting of ours that could change what is measured, whatever the defaults are on the day


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
