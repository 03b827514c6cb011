"""Embeddings -> encoder -> pooling -> logits, in pure torch."""

from manyheads.nn.assemble import assemble
from manyheads.nn.attention import attend
from manyheads.nn.classifier import Classifier
from manyheads.nn.encoder import Encoder, EncoderLayer
from manyheads.nn.feedforward import FeedForward
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.pooling import AttentionPooling, Pooling
from manyheads.nn.positions import Alibi, LearnedPositions, Rotary, SinusoidalPositions

__all__ = [
    "Alibi",
    "AttentionPooling",
    "Classifier",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "Pooling",
    "Rotary",
    "SinusoidalPositions",
    "assemble",
    "attend",
]
