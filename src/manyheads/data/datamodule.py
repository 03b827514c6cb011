"""The batches of a run, handed to Lightning."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from lightning.pytorch import LightningDataModule
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.config import BatchConfig, RunConfig
from manyheads.config.sentences import format_list, list_names
from manyheads.config.trainer_flags import reads_all_or_none
from manyheads.data.batches import (
    Batch,
    Batches,
    Planned,
    gather,
    micro_batches,
    n_bytes,
    plan_epoch,
    plan_evaluation,
    plan_steps,
    tokens_on,
)
from manyheads.data.class_names import MULTI_LABEL, normalise_name
from manyheads.data.opening import add_further_rows, table_from
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.rows import Splits
from manyheads.data.sources import read_rows, read_splits
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError

RESIDENT = 0.05  # share of a GPU's free memory that a split may take for good
COUNTED_EPOCHS, COUNTED_ROWS = 32, 2**22  # counted one by one; later epochs are as long as these on average


class TextData(LightningDataModule):
    """Train, validation and test batches of this rank.

    Each epoch has its own plan, which deals rows to ranks and makes each optimiser step the mean over its rows: `setup`
    tells the Trainer so. The epoch in which its `max_steps` is reached ends there, so that Lightning validates what was
    trained in it. Training begins in the epoch and after the number of its batches that `begin` holds. With
    `few_counts` training batches get a tail: see `gather`.

    Args:
        tokens: of the splits train, validation and, if there is one, test.
        split: parts that a batch is cut into, where it is too large for the memory of a device.
    """

    def __init__(self, tokens: dict[str, Tokens], batch: BatchConfig, seed: int, *, split: int = 1) -> None:
        super().__init__()
        self.splits: Splits | None = None
        self.tokenizer: Tokenizer | None = None
        self.split = split
        self.begin = (0, 0)
        self.tokens = tokens
        self.batch = batch
        self.seed = seed
        self._resident: dict[str, Tokens] = {}
        self.few_counts = False
        self._lengths = {name: split.lengths for name, split in tokens.items()}

    def __str__(self) -> str:
        """The rows of each split; Lightning's own calls the loaders, whose batches it cannot describe."""
        rows = ", ".join(f"{name} {len(split):,}" for name, split in self.tokens.items())
        return f"{type(self).__name__}(rows: {rows})"

    __repr__ = __str__

    @classmethod
    def from_run(cls, run: RunConfig) -> Self:
        """The texts of a run, read, checked and tokenized as `manyheads train` does it; `splits` holds the rows and the
        names of the classes, `tokenizer` the tokenizer.

        Raises:
            UserError: a mistake in the data, in one sentence; `batch.tokens=auto`; `data.folds` without `data.fold`.
        """
        if run.batch.is_auto:
            raise UserError("batch.tokens=auto is found by manyheads.train alone: give a number of tokens")
        if run.data.folds and run.data.fold is None:
            raise UserError(
                f"data.folds={run.data.folds} stands for as many runs, which manyheads.train alone starts: choose one "
                f"by data.fold=1 to {run.data.folds}, or 0 to learn from all rows"
            )
        return cls._of_splits(read_rows(run, with_test=run.test), run)

    @classmethod
    def from_rows(
        cls,
        train: Any,
        validation: Any = None,
        test: Any = None,
        *,
        run: RunConfig | None = None,
        labels: Sequence[str] = (),
    ) -> Self:
        """Rows that are held in memory, checked and tokenized by the settings of `run`, those of columns among them.

        Args:
            train, validation, test: each a DataFrame of pandas or polars, a `datasets.Dataset`, columns by name, or a
                list of (text, label), of (text, second text, label) or of mappings. Without `validation` a part of
                train is carved out, without `test` too, as for a single file.
            labels: names of the classes, where labels are their numbers.

        Raises:
            UserError: a mistake in the rows, in one sentence; `batch.tokens=auto`.
        """
        run = RunConfig() if run is None else run
        run = replace(run, data=replace(run.data, source="memory", path="", hub=""))
        if run.batch.is_auto:
            raise UserError("batch.tokens=auto is found by manyheads.train alone: give a number of tokens")
        given = {"train": train, "validation": validation, "test": test}
        tables = {
            role: table_from(rows, f"rows/{role}", labels)
            for role, rows in given.items()
            if rows is not None or role == "train"
        }
        for table in tables.values():
            table.classes |= {name: [*labels] for name in (run.data.label, MULTI_LABEL) if labels}
        held = {"all": tables["train"]} if len(tables) == 1 else tables
        splits = read_splits(run.data, run.seed, held={role: partial(held.__getitem__, role) for role in held})
        if labels and {*map(normalise_name, labels)}.isdisjoint(splits.labels):
            raise UserError(
                f"labels={format_list([*labels])} names no class of the rows, which has {list_names(splits.labels)}: "
                "leave it out, or give the names of the classes by their numbers"
            )
        return cls._of_splits(splits, run)

    @classmethod
    def _of_splits(cls, splits: Splits, run: RunConfig) -> Self:
        add_further_rows(run, splits)
        tokenizer, tokens = prepare_tokens(splits, run)
        data = cls(tokens, run.batch, run.seed)
        data.splits, data.tokenizer = splits, tokenizer
        return data

    def setup(self, stage: str) -> None:
        """Let the Trainer ask for the batches of each epoch, and take as many of them in a step as are planned.

        Raises:
            UserError: it is to accumulate another number of batches, or to judge by a part of those of a split, which
                are the longest texts. Where `fast_dev_run` tries the code no figure is meant.
        """
        trainer: Any = self.trainer
        if trainer is None:  # as where a notebook looks at batches
            return
        if trainer.overfit_batches:
            raise UserError(
                f"overfit_batches={trainer.overfit_batches} of the Trainer would train on other rows in each epoch, as "
                "TextData draws their order anew: set data.rows instead"
            )
        for name in () if trainer.fast_dev_run else ("limit_val_batches", "limit_test_batches"):
            limit = getattr(trainer, name)
            if not reads_all_or_none(limit):
                raise UserError(
                    f"{name}={limit} of the Trainer would judge by the longest texts alone, which TextData gives "
                    "first: remove it, or set data.rows"
                )
        each, asked = self.per_step(trainer.world_size), trainer.accumulate_grad_batches
        if asked not in (1, self.batch.accumulate, each):
            raise UserError(
                f"accumulate_grad_batches={asked} of the Trainer is not batch.accumulate={self.batch.accumulate}, by "
                "which steps are planned: set batch.accumulate alone"
            )
        trainer.accumulate_grad_batches = each
        trainer.reload_dataloaders_every_n_epochs = 1

    def plan(self, epoch: int, n_ranks: int = 1, rank: int = 0) -> list[Planned]:
        """The training batches of `rank` in `epoch`."""
        counts = self.tokens["train"].counts
        return plan_epoch(
            self._lengths["train"], n_ranks=n_ranks, rank=rank, split=self.split, counts=counts, **self._order(epoch)
        )

    def per_step(self, n_ranks: int = 1) -> int:
        """Batches of each rank in an optimiser step."""
        return micro_batches(self.batch.accumulate, n_ranks, self.split)

    def steps_of(self, epoch: int) -> int:
        """Optimiser steps of `epoch`, on however many ranks."""
        return len(self._steps(epoch))

    def tokens_of_step(self) -> float:
        """Tokens of an optimiser step of the first epoch, on average."""
        steps = self._steps(0)
        return float(sum(int(self._lengths["train"][rows].sum()) for step in steps for rows in step)) / len(steps)

    def _steps(self, epoch: int) -> list[list[Tensor]]:
        """The rows of each step of `epoch`, batch by batch."""
        return plan_steps(self._lengths["train"], **self._order(epoch))

    def _order(self, epoch: int) -> dict[str, Any]:
        """All that the steps of `epoch` depend on, whatever the number of ranks."""
        batch, labels = self.batch, self.tokens["train"].labels
        size = {"tokens": batch.tokens, "rows": batch.rows, "accumulate": batch.accumulate}
        return {**size, "seed": self.seed, "epoch": epoch, "labels": labels, "balance": batch.balance}

    def n_steps(self, max_epochs: int | None, max_steps: int | None = None) -> int:
        """Optimiser steps of the whole run, on however many ranks; None or -1 stands for no limit.

        Exact where `max_steps` ends the run, and for `COUNTED_EPOCHS` epochs, fewer of more than 131,072 rows. Of more
        epochs the further ones count as much as these do on average: epochs differ by a few steps, so this is off by
        less than one in a hundred, and a million epochs are counted in no more time than 32.
        """
        epochs = None if max_epochs in (None, -1) else max_epochs
        steps = None if max_steps in (None, -1) else max_steps
        if epochs is None:
            assert steps is not None, "trainer_flags.check_training comes first"
            return steps
        total, epoch = 0, 0
        counted = min(epochs, COUNTED_EPOCHS, max(1, COUNTED_ROWS // max(1, len(self._lengths["train"]))))
        while epoch < counted and (steps is None or total < steps):
            total += self.steps_of(epoch)
            epoch += 1
        if epoch < epochs and (steps is None or total < steps):
            total = round(total / epoch * epochs)
        return total if steps is None else min(total, steps)

    def mean_tokens(self) -> float:
        """Tokens of a training batch of the first epoch on one rank, on average."""
        return float(self._lengths["train"].sum()) / max(1, len(self.plan(0)))

    def train_dataloader(self) -> Batches:
        epoch, n_ranks, rank = self._place()
        plan = self.plan(epoch, n_ranks, rank)
        done = self.begin[1] if epoch == self.begin[0] else 0
        if self.trainer is not None and self.trainer.max_steps >= 0:
            plan = plan[: done + (self.trainer.max_steps - self.trainer.global_step) * self.per_step(n_ranks)]
        return Batches(self._near("train"), plan, done, few_counts=self.few_counts)

    def largest_batch(self) -> Batch:
        """The training batch of the first epoch with the most tokens and cells: the one that needs the most memory."""
        lengths = self._lengths["train"]

        def size(planned: Planned) -> int:
            of_rows = lengths[planned.rows]
            return int(of_rows.sum()) + of_rows.numel() * int(of_rows.max())

        return gather(self.tokens["train"], max((one for one in self.plan(0) if one.rows.numel()), key=size))

    def val_dataloader(self) -> Batches:
        return self._evaluation("validation")

    def test_dataloader(self) -> Batches:
        return self._evaluation("test")

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch if device.type == "cpu" else batch.to(device)

    def _evaluation(self, split: str) -> Batches:
        _, n_ranks, rank = self._place()
        tokens, rows = (max(1, most // self.split) for most in (self.batch.tokens, self.batch.rows))
        plan = plan_evaluation(self._lengths[split], tokens=tokens, rows=rows, n_ranks=n_ranks, rank=rank)
        return Batches(self._near(split), plan)

    def _near(self, split: str) -> Tokens:
        """The tokens of a split, moved to the GPU once and for all where they take little of its memory."""
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        tokens = self.tokens[split]
        if device.type != "cuda":
            return tokens
        if split not in self._resident and n_bytes(tokens) <= RESIDENT * torch.cuda.mem_get_info(device)[0]:
            self._resident[split] = tokens_on(tokens, device)
        return self._resident.get(split, tokens)

    def _place(self) -> tuple[int, int, int]:
        """Epoch, number of ranks and own rank; those of a run on one device where no Trainer is attached."""
        trainer: Any = self.trainer
        return (0, 1, 0) if trainer is None else (trainer.current_epoch, trainer.world_size, trainer.global_rank)
