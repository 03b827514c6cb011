"""Blocks in pure torch: embeddings -> encoder -> pooling -> logits.

A block takes a padded batch `(B, L, D)` with a boolean mask `(B, L)`, or tokens in a layout (`layout.py`).
"""

from manyheads.nn.assemble import assemble, initialise
from manyheads.nn.attention import attend, attention_weights, make_score
from manyheads.nn.classifier import AttentionPooling, Classifier, Pooling
from manyheads.nn.embeddings import Alibi, LearnedPositions, Rotary, SinusoidalPositions
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.transformer import Encoder, EncoderLayer, FeedForward, Residual

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
    "Residual",
    "Rotary",
    "SinusoidalPositions",
    "assemble",
    "attend",
    "attention_weights",
    "initialise",
    "make_score",
]
