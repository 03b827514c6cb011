"""What is learned does not depend on the number of processes: the same losses and weights, step by step."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyheads import plugin
from manyheads.config import BatchConfig
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from tests.core.ranks.conftest import Crew

STEPS = 10
N_RANKS = [2, pytest.param(3, marks=pytest.mark.slow)]
Cases = dict[str, tuple[BatchConfig, str, str]]
CASES: Cases = {  # batches, the task, and the optimiser
    "one batch a step": (BatchConfig(tokens=60, rows=5), "classify", "adamw"),
    "three batches a step": (BatchConfig(tokens=60, rows=5, accumulate=3), "classify", "sgd"),
    "batches cut in two": (BatchConfig(tokens=60, rows=5, accumulate=2), "classify", "sgd"),
}


def texts(n_rows: int, seed: int, longest: int) -> Tokens:
    """Rows of very unequal length, one of them longer than a batch may be."""
    drawn = torch.Generator().manual_seed(seed)
    lengths = (torch.rand(n_rows, generator=drawn) ** 3 * longest).long() + 3
    ids = torch.randint(5, 40, (int(lengths.sum()),), generator=drawn, dtype=torch.int32)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Tokens(ids, offsets, None, torch.arange(n_rows) % 3)


def trained(case: str, cases: Cases) -> tuple[list[tuple[list[int], float]], dict[str, Tensor]]:
    """The rows of each micro-batch of this rank, and its loss as it is averaged; and the weights in the end."""
    from manyheads.config import (
        Accelerator,
        CheckpointConfig,
        DataConfig,
        HardwareConfig,
        ModelConfig,
        OptimConfig,
        Precision,
        RunConfig,
    )
    from manyheads.distributed.launch import validate_world_size
    from manyheads.training import trainer as session
    from manyheads.training.module import LitModule

    batch, task, optimiser = cases[case]
    torch.manual_seed(0)
    run = RunConfig(
        task=task,
        data=DataConfig(path="nowhere.csv"),
        batch=batch,
        model=ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=8, d_v=8, d_ff=32, dropout=0.0, dropout_tokens=0.0),
        optim=OptimConfig(lr=3e-3, average=0),
        checkpoint=CheckpointConfig(metric="loss"),
        hardware=validate_world_size(HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32)),
        trainer={"max_epochs": -1, "max_steps": STEPS, "limit_val_batches": 0},
    )
    tokens = {"train": texts(70, 1, 80), "validation": texts(3, 2, 9)}
    if plugin.task(task).column == "target":
        tokens["train"].targets, tokens["validation"].targets = texts(70, 3, 20), texts(3, 4, 9)
    assemble = plugin.resolve(plugin.task(task).assemble)
    network = assemble(run.model, vocab_size=40, n_classes=3, max_length=128, n_segments=0)
    drawn = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn(weight.shape, generator=drawn), alpha=0.05)
    seen: list[tuple[list[int], float]] = []

    class Noting(LitModule):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            seen.append((batch.rows_B.tolist(), float(loss.detach())))
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.3) if optimiser == "sgd" else super().configure_optimizers()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "LitModule", Noting)
        if case == "batches cut in two":
            patch.setattr(session, "TextData", lambda *given, **how: TextData(*given, **how | {"split": 2}))
        session.run_trainer(run, network, tokens, ["a", "b", "c"], [])
    return seen, network.state_dict()


def main(folder: str, cases: Cases = CASES) -> None:
    """In a process of its own: all cases, one after the other."""
    from safetensors.torch import save_file

    from manyheads.distributed.ranks import this_process

    rank = this_process().rank
    for case in cases:
        seen, weights = trained(case, cases)
        Path(folder, f"{case}-{rank}.json").write_text(json.dumps(seen))
        save_file(weights, Path(folder, f"{case}-{rank}.safetensors"))


def steps_of(folder: Path, case: str, n_ranks: int) -> list[tuple[list[int], float]]:
    """The rows and the loss of each step over all ranks."""
    ranks = [json.loads((folder / f"{case}-{rank}.json").read_text()) for rank in range(n_ranks)]
    each = len(ranks[0]) // STEPS
    assert {len(seen) for seen in ranks} == {STEPS * each}, "all ranks take the same steps"
    found = []
    for at in range(0, STEPS * each, each):
        micro = [one for seen in ranks for one in seen[at : at + each]]
        found.append((sorted(row for rows, _ in micro for row in rows), sum(loss for _, loss in micro) / len(micro)))
    return found


def assert_same(file: str, cases: Cases, n_ranks: int, folders: dict[int, Path], start: Callable[..., Crew]) -> None:
    """One process and `n_ranks` see the same losses and end with the same weights. `file` has the `main` of each."""
    from safetensors.torch import load_file

    for n in (1, n_ranks):
        if not any(folders[n].iterdir()):
            crew = start([file, folders[n]], n)
            assert crew.codes() == [0] * n, crew.said(0)
    for case, (_, _, optimiser) in cases.items():
        alone, together = steps_of(folders[1], case, 1), steps_of(folders[n_ranks], case, n_ranks)
        for step, ((rows, loss), (other_rows, other)) in enumerate(zip(alone, together, strict=True)):
            assert rows == other_rows, (case, step)
            assert other == pytest.approx(loss, abs=1e-5), (case, step)
        one, *others = (load_file(folders[n] / f"{case}-{rank}.safetensors") for n in (1, n_ranks) for rank in range(n))
        for name, its in others[0].items():
            assert all(torch.equal(other[name], its) for other in others), (case, name)
            if optimiser == "sgd":  # AdamW makes whole steps of gradients that are zero but for rounding
                assert float((one[name] - its).abs().max()) <= 1e-6, (case, name)


@pytest.mark.parametrize("n_ranks", N_RANKS)
def test_losses_and_weights_do_not_depend_on_the_number_of_processes(n_ranks, folders, start):
    assert_same(__file__, CASES, n_ranks, folders, start)
    empty = json.loads((folders[n_ranks] / f"one batch a step-{n_ranks - 1}.json").read_text())
    assert any(not rows for rows, _ in empty), "a rank without rows in a step is among what is tested"
