"""Hugging Face `Trainer` with a `BertForSequenceClassification` from a config, as its users run it.

BERT differs from our defaults in norms after the blocks, learned positions, segment vectors and a pooler on [CLS]:
the same matrix products but for the pooler's one per text.
"""

import logging
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, replace
from time import perf_counter
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
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from contestants.settings import CLIP, DROPOUT, LR, N_STEPS, VOCAB_SIZE, WEIGHT_DECAY, Shape, Text, Way
from contestants.turns import LEAST_STEPS, Turns
from manyheads.data.tokens import Tokens
from manyheads.inference.precision import cpu_multiplies_bf16

logging.getLogger("transformers").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*pin_memory.*")


DEFAULTS = Way()
PADDED = Way(to_longest_allowed=True)
ROWS = (8, 16, 32, 64, 128)
WARM_UP, SECONDS = 1.0, 2.5  # of a trial
MUCH_SLOWER = 0.9  # than the best number of rows so far: more or fewer of them are not tried
MakeModel = Callable[[str], Any]  # of an attention


def search(make_model: MakeModel, tokenizer: Tokenizer, tokens: Tokens, seconds: float) -> list[dict[str, Any]]:
    """The Trainer's settings that were tried and their real tokens/s, the fastest first.

    In bf16 where the processor computes in it, texts grouped by length: 8 to 128 rows with eager and sdpa attention,
    from 32 on both ways for as long as it is not much slower. The fastest is tried again without groups and in fp32;
    then the fastest two once more. When `seconds` are up nothing more is tried.
    """
    until, found = perf_counter() + seconds, dict[Way, Counter[str]]()

    def speed(way: Way, *, again: bool = False) -> float:
        if not found or (perf_counter() < until and (again or way not in found)):
            found.setdefault(way, Counter()).update(trial(make_model, tokenizer, tokens, way))
        return found[way]["tokens"] / found[way]["seconds"] if way in found else 0.0

    first = Way(by_length=True, bf16=cpu_multiplies_bf16())
    for attention in ("eager", "sdpa"):
        for ladder in (ROWS[ROWS.index(first.rows) :], ROWS[ROWS.index(first.rows) :: -1]):
            best = 0.0
            for rows in ladder:
                one = speed(replace(first, attention=attention, rows=rows))
                best = max(best, one)
                if one < MUCH_SLOWER * best:
                    break
    fastest = max(found, key=speed)
    for other in (replace(fastest, by_length=False), replace(fastest, bf16=False)):
        speed(other)
    for way in sorted(found, key=speed, reverse=True)[:2]:
        speed(way, again=True)
    shown = [{**asdict(way), "tokens_per_s": round(speed(way))} for way in found]
    return sorted(shown, key=lambda one: one["tokens_per_s"], reverse=True)


class Trial:
    """The clock of one trial."""

    def __init__(self) -> None:
        self.started = perf_counter()
        self.counts: Counter[str] | None = None

    def step(self, tokens: int, cells: int, rows: int) -> bool:
        """Whether the trial has lasted long enough."""
        now = perf_counter()
        if self.counts is None:
            if now - self.started > WARM_UP:
                self.counts, self.started = Counter(), now
            return False
        self.counts.update(tokens=tokens, steps=1)
        self.counts["seconds"] = now - self.started  # pyright: ignore[reportArgumentType]
        return self.counts["seconds"] > SECONDS and self.counts["steps"] >= LEAST_STEPS


def trial(make_model: MakeModel, tokenizer: Tokenizer, tokens: Tokens, way: Way) -> Counter[str]:
    """Train on the batches that the Trainer would make in an epoch, in an order of chance: few of them stand for all,
    where its own begins with the longest."""
    clock = Trial()
    lengths = tokens.lengths.tolist()
    torch.manual_seed(0)
    order = get_length_grouped_indices(lengths, way.rows) if way.by_length else torch.randperm(len(lengths)).tolist()
    batches = [order[at : at + way.rows] for at in range(0, len(order), way.rows)]
    whole = [batch for batch in batches if len(batch) == way.rows] or batches
    drawn = [row for at in torch.randperm(len(whole)).tolist() for row in whole[at]]
    run_trainer(make_model, tokenizer, make_dataset(tokens).select(drawn), clock, replace(way, in_order=True), None)
    assert clock.counts
    return clock.counts


def by_trainer(
    make_model: MakeModel, text: Text, tokenizer: Tokenizer, tokens: Tokens, turns: Turns, way: Way, rate: float = LR
) -> None:
    """Train until the driver says that it is enough."""
    length = text.max_length if way.to_longest_allowed else None
    run_trainer(make_model, tokenizer, make_dataset(tokens), turns, way, length, rate)


def run_trainer(
    make_model: MakeModel,
    tokenizer: Tokenizer,
    rows: Any,
    clock: Turns | Trial,
    way: Way,
    length: int | None,
    rate: float = LR,
) -> None:
    collate = Counting(wrapped(tokenizer), length)
    torch.manual_seed(0)
    trainer = Trainer(
        model=make_model(way.attention),
        args=make_arguments(way, learning_rate=rate, max_steps=N_STEPS),
        train_dataset=rows,
        data_collator=collate,
        callbacks=[Steps(collate, clock)],
    )
    trainer.remove_callback(PrinterCallback)  # of a trial's last line
    trainer.train()


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
        train_sampling_strategy="sequential" if way.in_order else "group_by_length" if way.by_length else "random",
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

    def __init__(self, collate: Counting, clock: Turns | Trial) -> None:
        self.collate, self.clock = collate, clock

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = bool(self.clock.step(*self.collate.made.popleft()))
