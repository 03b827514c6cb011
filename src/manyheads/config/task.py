"""What a model answers a text with."""

from enum import Enum


class Task(Enum):
    classify = "classify"  # a class
    seq2seq = "seq2seq"  # another text
    pretrain = "pretrain"  # those of its own words that are hidden
