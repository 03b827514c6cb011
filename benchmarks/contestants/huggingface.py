"""Hugging Face `Trainer` with a `BertForSequenceClassification` from a config, as its users run it.

BERT differs from our defaults in norms behind the blocks, learned positions, segment vectors and a pooler on [CLS]:
the same matrix products but for the pooler's one a text.
"""

import logging
import tempfile
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from contestants.settings import CLIP, DROPOUT, LR, N_STEPS, VOCAB_SIZE, WEIGHT_DECAY, Shape, Text
from contestants.texts import n_classes
from contestants.turns import Turns
from manyheads.data.tokens import Tokens
from manyheads.fit.hardware import cpu_multiplies_bf16

logging.getLogger("transformers").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*pin_memory.*")


@dataclass(frozen=True, slots=True)
class Way:
    """How the Trainer is used. A batch of 32 is kinder to it than its own default of 8."""

    rows: int = 32
    to_longest_allowed: bool = False
    by_length: bool = False
    bf16: bool = False
    attention: str = "sdpa"


DEFAULTS = Way()
PADDED = Way(to_longest_allowed=True)


def best(text: Text) -> Way:
    """Its fastest settings in bf16, grouped by length, of those tried at d_model 256, in real tokens/s side by side.

    Short texts: 5,640 with 32 rows, 7,051 with 64, 7,537 with 128, which falls to 5,609 where the longest texts come;
    sdpa instead of eager attention 6,437 with 64. Texts of up to 256: 6,642 with 16, 5,841 with 32 and 6,005 with 64;
    sdpa 5,030 with 32.
    """
    rows = 64 if text.max_length <= 128 else 16
    return Way(rows=rows, by_length=True, bf16=cpu_multiplies_bf16(), attention="eager")


def by_trainer(shape: Shape, text: Text, tokenizer: Tokenizer, tokens: Tokens, turns: Turns, way: Way) -> None:
    """Train until the driver says that it is enough."""
    collate = Counting(wrapped(tokenizer), text.max_length if way.to_longest_allowed else None)
    arguments = make_arguments(way, learning_rate=LR, max_steps=N_STEPS)
    torch.manual_seed(0)
    Trainer(
        model=make_bert(shape, n_classes(tokens), way.attention),
        args=arguments,
        train_dataset=make_dataset(tokens),
        data_collator=collate,
        callbacks=[Steps(collate, turns)],
    ).train()


def make_bert(shape: Shape, n_classes: int, attention: str) -> Any:
    """The model untrained; `attention` is eager or sdpa, its own default."""
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        intermediate_size=shape.d_ff,
        hidden_dropout_prob=DROPOUT,
        attention_probs_dropout_prob=DROPOUT,
        num_labels=n_classes,  # pyright: ignore[reportCallIssue]
    )
    return AutoModelForSequenceClassification.from_config(config, attn_implementation=attention)


def wrapped(tokenizer: Tokenizer) -> Any:
    """The tokenizer as the collator wants it."""
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def make_dataset(tokens: Tokens) -> datasets.Dataset:
    """What `datasets.map` of a tokenizer leaves: ids and a mask of ones, without a copy of our own."""
    offsets = pa.array(tokens.offsets.numpy(), pa.int32())

    def rows(flat: np.ndarray) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(flat))

    ids = tokens.ids_N.numpy()
    columns = {"input_ids": rows(ids), "attention_mask": rows(np.ones(len(ids), np.int8))}
    return datasets.Dataset(pa.table({**columns, "labels": pa.array(tokens.labels.numpy())}))


def make_arguments(way: Way, **more: Any) -> TrainingArguments:
    """Its defaults apart from `way`, decay and clip, which all contestants share; the fused AdamW is its default."""
    return TrainingArguments(
        output_dir=tempfile.mkdtemp(),  # nothing is saved
        use_cpu=True,
        per_device_train_batch_size=way.rows,
        bf16=way.bf16,
        train_sampling_strategy="group_by_length" if way.by_length else "random",
        optim="adamw_torch_fused",
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=CLIP,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **more,
    )


class Counting(DataCollatorWithPadding):
    """The usual collator, and a note of what is in each batch, which the Trainer does not tell its callbacks."""

    def __init__(self, tokenizer: Any, length: int | None) -> None:
        super().__init__(tokenizer, padding="max_length" if length else True, max_length=length)
        self.made: deque[tuple[int, int, int]] = deque()

    def __call__(self, features: list[dict[str, Any]]) -> Any:
        tokens = sum(len(row["input_ids"]) for row in features)
        batch = super().__call__(features)
        self.made.append((tokens, batch["input_ids"].numel(), len(features)))
        return batch


class Steps(TrainerCallback):
    """Tells the clock of each step. The Trainer makes batches ahead of their steps: the oldest is the one just done."""

    def __init__(self, collate: Counting, turns: Turns) -> None:
        self.collate, self.turns = collate, turns

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.turns.step(*self.collate.made.popleft())
