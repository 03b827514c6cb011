"""What a run would be, for `dry=true`: its sizes, steps, memory and device, without training."""

from collections.abc import Sequence

from manyheads.config import RunConfig
from manyheads.data.batches import padding_share
from manyheads.data.datamodule import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens
from manyheads.nn.assemble import count_parameters
from manyheads.terminal import as_text, console, say
from manyheads.training.build import Network, make_objective
from manyheads.training.memory import activation_bytes, state_bytes
from manyheads.training.optim import freeze
from manyheads.training.trainer import count_devices, trainer_hardware


def plan_figures(run: RunConfig, splits: Splits, tokens: dict[str, Tokens], network: Network) -> dict[str, str]:
    """The figures of a planned run, by name, as they are shown."""
    hardware, rows = trainer_hardware(run.hardware), tokens["train"]
    texts, data = rows.offsets.diff(), TextData(tokens, run.batch, run.seed)
    n_words = network.words.num_embeddings
    objective = make_objective(run, rows, splits.labels)
    n_devices = count_devices(run.hardware, on_gpu=hardware["accelerator"] == "gpu") * run.hardware.nodes
    n_steps = data.n_steps(run.trainer.get("max_epochs"), run.trainer.get("max_steps", -1))
    freeze(network, run.optim)
    state = state_bytes(run, network, n_devices)
    inputs, precision = objective.given(data.largest_batch()), str(hardware["precision"])
    activations = activation_bytes(network, inputs, precision=precision, recompute=run.hardware.recompute)
    return {
        **objective.plan(run, rows, splits.labels, n_words),
        "rows": ", ".join(f"{name} {len(one):,}" for name, one in tokens.items()),
        "tokens a text": f"{float(texts.double().mean()):.1f} on average, {int(texts.max())} at most",
        "truncated": f"{rows.n_truncated / len(rows):.1%} of the training texts, at {run.data.max_length}",
        "vocabulary": f"{n_words:,}",
        "parameters": f"{count_parameters(network):,}",
        "steps": f"{n_steps:,} of at most {run.batch.tokens * run.batch.accumulate:,} tokens",
        "padding": f"{padding_share(data.plan(0), rows):.1%}",
        "memory": f"{(state + activations) / 2**20:,.0f} MiB: {state / 2**20:,.0f} weights and optimiser, "
        f"{activations / 2**20:,.0f} activations of the largest batch",
        "device": f"{n_devices} x {hardware['accelerator']}, {hardware['precision']}",
    }


def show_plan(figures: dict[str, str], notes: Sequence[str] = ()) -> None:
    """Print the figures as a table, and notes on the data below it."""
    from rich.table import Table

    screen, table = console(), Table(title="dry run: nothing was trained", show_header=False)
    for name, figure in figures.items():
        table.add_row(as_text(name, screen), as_text(figure, screen))
    screen.print(table)
    say(*notes)
