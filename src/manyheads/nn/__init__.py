"""Embeddings -> encoder -> pooling -> logits, or a decoder beside the encoder, in pure torch."""

from manyheads.nn.assemble import assemble
from manyheads.nn.attention import attend
from manyheads.nn.classifier import Classifier
from manyheads.nn.decoder import Decoder, DecoderLayer
from manyheads.nn.encoder import Encoder, EncoderLayer, Residual
from manyheads.nn.feedforward import FeedForward
from manyheads.nn.generate import beam_search, greedy
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.pooling import AttentionPooling, Pooling
from manyheads.nn.positions import Alibi, LearnedPositions, Rotary, SinusoidalPositions
from manyheads.nn.recurrent import Recurrent
from manyheads.nn.seq2seq import Seq2Seq, assemble_seq2seq

__all__ = [
    "Alibi",
    "AttentionPooling",
    "Classifier",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "Pooling",
    "Recurrent",
    "Residual",
    "Rotary",
    "Seq2Seq",
    "SinusoidalPositions",
    "assemble",
    "assemble_seq2seq",
    "attend",
    "beam_search",
    "greedy",
]
