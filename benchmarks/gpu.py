"""One GPU: training speed against the card's measured peak and against Hugging Face, and whether the numbers are right.

    python benchmarks/gpu.py                 every part, about ten minutes; or `make bench-gpu`
    python benchmarks/gpu.py long kernels    these parts alone; `PARTS` lists them in the order of what they tell
    python benchmarks/gpu.py --rehearse      a tiny shape and a few steps on any device, to see that it runs

Only tokens of texts are counted, and time is that of the whole loop: loader, loss, clip, optimiser, logging. Ids are
drawn at random, lengths as they occur in real data (see `LENGTHS`), so no data and no tokenizer is needed;
`transformers` and `accelerate` where they are installed. From a checkout: PYTHONPATH=src python3 benchmarks/gpu.py.

Each part runs in a process of its own, since an error of CUDA ends all that a process can do. What it has measured goes
to gpu.json next to this file at once (of a rehearsal only with --out); a part that fails or takes too long leaves its
error there, and the next one runs.
"""

import argparse
import json
import operator
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch.nn import functional as F

from manyheads.config import BatchConfig, HardwareConfig, ModelConfig, OptimConfig, RunConfig
from manyheads.config.training import Accelerator, Compile, Precision
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.cost import flops_per_token
from manyheads.nn.kernels import attention
from manyheads.training import trainer as building
from manyheads.training.strategies import FullyShardedStrategy, RendezvousDDP
from manyheads.training.trainer import run_trainer

RESULTS = Path(__file__).with_suffix(".json")
STATED_PEAK = 989e12
"""bf16 FLOP/s of an H100 or H200 without sparsity, as NVIDIA states it."""
LENGTHS = {  # tokens of a text, every twentieth of the way from the shortest to the longest (or nearly: an outlier)
    "short": (9, 24, 27, 29, 31, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 47, 49, 51, 55, 68, 110),  # ag_news_10k
    "long": (21, 82, 120, 144, 155, 163, 173, 184, 196, 211, 226, 245, 267, 293, 326, 365, 418, 484, 582, 761, 1563),
}  # long: imdb, which is cut at 512
SHAPES = {"base": (768, 12, 12), "minilm": (384, 6, 12), "tiny": (128, 2, 4)}  # d_model, n_layers, n_heads
VOCABULARY = 30_522
N_CLASSES = 4
MODES = ("never", "always")
PROFILED = 5  # steps
LOSSES = 20  # steps whose losses are compared


class Size:
    """How much is measured: by the measurement, or by its rehearsal."""

    def __init__(self, *, rehearse: bool) -> None:
        self.rehearse = rehearse
        self.vocabulary = 64 if rehearse else VOCABULARY
        self.max_length = 64 if rehearse else 512
        self.tokens = 256 if rehearse else 65_536
        self.rows = 64 if rehearse else 60_000
        self.warm, self.timed = (1, 2) if rehearse else (20, 50)
        self.rounds = 1 if rehearse else 3
        self.modes = MODES[:1] if rehearse else MODES

    def model(self, shape: str = "base") -> ModelConfig:
        """Dropout as BERT has it, but for attention weights: the kernel for packed texts knows none."""
        d_model, n_layers, n_heads = (32, 2, 4) if self.rehearse else SHAPES[shape]
        return ModelConfig(
            n_layers=n_layers,
            n_heads=n_heads,
            d_model=d_model,
            d_k=d_model // n_heads,
            d_v=d_model // n_heads,
            d_ff=4 * d_model,
            positions="learned",
            pooling="first",
            dropout=0.1,
            dropout_tokens=0.0,
        )


class Clock(Callback):
    """Times the steps after the first `warm` ones, and notes when the first was done."""

    def __init__(self, warm: int) -> None:
        self.warm, self.steps, self.tokens = warm, 0, 0
        self.first = self.since = self.seconds = 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps += 1
        if self.steps == 1:
            self.first = now_all_done()
        if self.steps == self.warm:
            self.since = now_all_done()
        elif self.steps > self.warm:
            self.tokens += batch.layout.n_tokens

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds = now_all_done() - self.since


class Losses(Callback):
    """Keeps the loss of each step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.losses.append(float(outputs["loss"]))


class Kernels(Callback):
    """Notes what the device does in `PROFILED` steps after the first `warm` ones."""

    def __init__(self, warm: int) -> None:
        self.warm, self.steps = warm, 0
        self.profiler = torch.profiler.profile()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps += 1
        if self.steps == self.warm:
            now_all_done()
            self.profiler.start()
        elif self.steps == self.warm + PROFILED:
            now_all_done()
            self.profiler.stop()

    def longest(self) -> dict[str, Any]:
        """Milliseconds and calls of a step, by kernel: the thirty that take longest, and what all of them take."""
        on_device = torch.autograd.DeviceType.CUDA if torch.cuda.is_available() else torch.autograd.DeviceType.CPU
        kernels = [one for one in self.profiler.key_averages() if one.device_type == on_device]
        times = {one.key: one.self_device_time_total or one.self_cpu_time_total for one in kernels}
        counts = {one.key: one.count for one in kernels}
        longest = sorted(times, key=lambda name: -times[name])[:30]
        found = {name[:120]: [round(times[name] / PROFILED / 1e3, 3), counts[name] / PROFILED] for name in longest}
        return {"all ms": sum(times.values()) / PROFILED / 1e3, "ms and calls": found}


def main() -> None:
    parser = argparse.ArgumentParser(description="training on one GPU: speed, and whether the numbers are right")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {' '.join(PARTS)}")
    parser.add_argument("--rehearse", action="store_true", help="tiny, on any device")
    parser.add_argument("--out", type=Path, help="where the figures go; default: gpu.json, of a rehearsal nowhere")
    parser.add_argument("--until", type=float, default=0.0, help="when all must be done, in seconds since 1970")
    parser.add_argument("--answer", type=Path, help="measure one part in this process (used inside)")
    parser.add_argument("--first", choices=MODES, help="train one step and print the time (used inside)")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        sys.exit(f"{unknown[0]} is not a part: choose from {', '.join(PARTS)}")
    size = Size(rehearse=asked.rehearse)
    if asked.first:
        print(train_steps(size, "short", mode=asked.first, rows=size.rows, steps=1).first)
        return
    if asked.answer:
        asked.answer.write_text(json.dumps(PARTS[asked.parts[0]](size)))
        return
    if not (asked.rehearse or torch.cuda.is_available()):
        sys.exit("torch sees no GPU here: python benchmarks/gpu.py --rehearse tries the script without one")
    out = asked.out or (None if asked.rehearse else RESULTS)
    until = asked.until or time.time() + 1200
    figures = measure(asked.parts or list(PARTS), out, rehearse=asked.rehearse, until=until)
    print(table(figures))
    if any("error" in found for found in figures.values()):
        sys.exit(1)


def measure(parts: list[str], out: Path | None, *, rehearse: bool, until: float) -> dict[str, Any]:
    """Measure each part in a process of its own; `out` is written after each, and keeps parts that are not asked for.

    A process per part ends with its memory, so the peak is that of the part. What is left for a part at `until`, a time
    in seconds since 1970, is not begun.
    """
    figures: dict[str, Any] = json.loads(out.read_text()) if out and out.exists() else {}
    figures["machine"] = machine()
    for part in parts:
        began = time.time()
        limit = LIMITS.get(part, LIMIT) * (4 if rehearse else 1)
        figures[part] = measure_part(part, rehearse=rehearse, seconds=min(until - began, limit))
        figures[part]["wall seconds"] = round(time.time() - began, 1)
        print(part, json.dumps(figures[part]), flush=True)
        if out:
            out.write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def measure_part(part: str, *, rehearse: bool, seconds: float) -> dict[str, Any]:
    """What the process of a part has found, or its error."""
    if seconds < LEAST:
        return {"error": "no time was left"}
    with tempfile.TemporaryDirectory() as folder:
        answer, said = Path(folder) / "answer.json", Path(folder) / "error.txt"
        command = [sys.executable, __file__, part, "--answer", str(answer)] + ["--rehearse"] * rehearse
        with said.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, start_new_session=True) as process:
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started, which holds the card
                return {"error": f"it took more than {seconds:.0f} s"}
        if code:
            return {"error": said.read_text(errors="replace")[-2000:]}
        return json.loads(answer.read_text())


def peak(size: Size) -> dict[str, float]:
    """TFLOP/s of the four products of a BERT-base layer by themselves, and of all of them one after another."""
    device, d_model = "cuda" if torch.cuda.is_available() else "cpu", size.model().d_model
    shapes = {
        "qkv": (d_model, 3 * d_model),
        "output": (d_model, d_model),
        "widen": (d_model, 4 * d_model),
        "narrow": (4 * d_model, d_model),
    }
    found: dict[str, float] = {}
    operations = seconds = 0.0
    for name, (inner, outer) in shapes.items():
        x = torch.randn(size.tokens, inner, device=device, dtype=torch.bfloat16)
        weight = torch.randn(outer, inner, device=device, dtype=torch.bfloat16)
        middle = median_seconds(lambda x=x, weight=weight: F.linear(x, weight))
        count = 2 * size.tokens * inner * outer
        found[name] = count / middle / 1e12
        operations, seconds = operations + count, seconds + middle
    found["all"] = operations / seconds / 1e12
    return found


def speed(size: Size, texts: str, shape: str = "base") -> dict[str, Any]:
    """Batches that fill the card, compiled and not."""
    found: dict[str, Any] = {}
    lengths = rows_of(size, texts).lengths.double()
    met = float((lengths**2).sum() / lengths.sum())  # length of the text that a token is in
    flops = 3 * flops_per_token(size.model(shape), met)
    for mode in size.modes:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        per_second = []
        for _ in range(size.rounds):
            steps = size.warm + size.timed
            clock = train_steps(size, texts, shape=shape, mode=mode, rows=size.rows, steps=steps)
            per_second.append(clock.tokens / clock.seconds)
        found[f"compile={mode}"] = {
            "tokens/s": per_second,
            "FLOPs a token": flops,
            "TFLOP/s": statistics.median(per_second) * flops / 1e12,
            "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
            "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0,
        }
    return found


def huggingface(size: Size) -> dict[str, Any]:
    """Real tokens/s of the Trainer on the texts and the shape of `long`: bf16, rows grouped by length, fused AdamW."""
    rows = 4 if size.rehearse else 64
    speeds = [trainer_steps(size, "long", rows, size.warm + size.timed)[1] for _ in range(size.rounds)]
    return {"tokens/s": speeds, "rows of a batch": rows}


def kernels(size: Size) -> dict[str, Any]:
    """Milliseconds of attention, forward and backward: packed documents against a padded grid with a mask."""
    if not torch.cuda.is_available():
        return {"left out": "the kernel for packed documents needs a GPU"}
    found: dict[str, Any] = {}
    n_heads, d_k = 12, 64
    for longest in (64, 128, 256, 512):
        lengths = rows_of(size, "long").lengths.clamp(max=longest)
        lengths = lengths[: int((lengths.cumsum(0) <= size.tokens).sum())].tolist()
        layout = Packed.of_lengths(lengths).to("cuda")
        q, k, v = (
            torch.randn(layout.n_tokens, n_heads, d_k, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        toward = torch.randn_like(q)
        grids = [layout.grid(x).transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
        keep_B11M, toward_BHLV = layout.keep_BL[:, None, None], layout.grid(toward).transpose(1, 2).contiguous()

        def packed(q: Any = q, k: Any = k, v: Any = v, layout: Any = layout, toward: Any = toward) -> None:
            torch.autograd.grad(attention(q, k, v, layout, layout), (q, k, v), toward)

        def padded(grids: Any = grids, keep_B11M: Any = keep_B11M, toward_BHLV: Any = toward_BHLV) -> None:
            torch.autograd.grad(F.scaled_dot_product_attention(*grids, keep_B11M), grids, toward_BHLV)

        ours, theirs = 1e3 * median_seconds(packed), 1e3 * median_seconds(padded)
        found[f"at most {longest}"] = {"packed ms": ours, "padded ms": theirs, "times": theirs / ours}
    return found


def small_batches(size: Size) -> dict[str, Any]:
    """Steps/s at batches of 32 short texts, in turn with the Trainer of Hugging Face."""
    steps = size.warm + (size.timed if size.rehearse else 4 * size.timed)
    found: dict[str, Any] = {f"steps/s, compile={mode}": [] for mode in size.modes}
    has_peer = all(find_spec(name) for name in ("transformers", "accelerate"))
    if has_peer:
        found["steps/s, Hugging Face"] = []
    for _ in range(size.rounds):
        for mode in size.modes:
            clock = train_steps(size, "short", mode=mode, tokens=32 * size.max_length, rows=32, steps=steps)
            found[f"steps/s, compile={mode}"].append((steps - size.warm) / clock.seconds)
        if has_peer:
            found["steps/s, Hugging Face"].append(trainer_steps(size, "short", 32, steps)[0])
    return found


def first_step(size: Size) -> dict[str, float]:
    """Seconds from the start of a process to the end of its first step, with empty caches of compiled code."""
    found = {}
    for mode in size.modes:
        with tempfile.TemporaryDirectory() as empty:
            caches = {name: f"{empty}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
            command = [sys.executable, __file__, "--first", mode] + ["--rehearse"] * size.rehearse
            since = time.time()
            answer = subprocess.run(command, env=os.environ | caches, check=True, stdout=subprocess.PIPE, text=True)
        found[f"compile={mode}"] = float(answer.stdout.split()[-1]) - since
    return found


def strategies(size: Size) -> dict[str, Any]:
    """DDP and FSDP with one rank, against none: tokens/s, peak memory, and the largest difference of a loss."""
    found: dict[str, Any] = {}
    losses: dict[str, list[float]] = {}
    for name, strategy in {"none": None, "ddp": RendezvousDDP, "fsdp": FullyShardedStrategy}.items():
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        kept = Losses()
        with one_rank(strategy):
            clock = train_steps(size, "long", rows=size.rows, steps=size.warm + size.timed, more=[kept])
        losses[name] = kept.losses
        found[name] = {
            "tokens/s": clock.tokens / clock.seconds,
            "largest difference": largest_difference(losses["none"], kept.losses),
            "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0,
        }
    return found


@contextmanager
def one_rank(strategy: type[RendezvousDDP] | None) -> Iterator[None]:
    """Trainers use `strategy` although there is one process, where a run would have none."""
    if strategy is None:
        yield
        return
    plain = building.trainer_hardware

    def with_strategy(hardware: HardwareConfig) -> dict[str, object]:
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        chosen = strategy(
            process_group_backend=backend, timeout=timedelta(seconds=hardware.timeout), broadcast_buffers=False
        )
        return plain(hardware) | {"strategy": chosen}

    with mock.patch.object(building, "trainer_hardware", with_strategy):
        yield
    torch.distributed.destroy_process_group()


def profile(size: Size) -> dict[str, Any]:
    """Where the time of a step of `long` is spent."""
    found: dict[str, Any] = {}
    for mode in size.modes:
        kernels = Kernels(size.warm)
        train_steps(size, "long", mode=mode, rows=size.rows, steps=size.warm + PROFILED + 1, more=[kernels])
        found[f"compile={mode}"] = kernels.longest()
    return found


def parity(size: Size) -> dict[str, Any]:
    """Losses of a small model without dropout: the largest difference from those of the CPU in fp32."""
    on_cpu = losses_of(size, Accelerator.cpu, Precision.fp32)
    found: dict[str, Any] = {"CPU, first and last loss": [on_cpu[0], on_cpu[-1]]}
    device = Accelerator.gpu if torch.cuda.is_available() else Accelerator.cpu
    for precision in (Precision.fp32, Precision.bf16):
        found[f"{device.name}, {precision.name}"] = largest_difference(on_cpu, losses_of(size, device, precision))
    return found


def losses_of(size: Size, accelerator: Accelerator, precision: Precision) -> list[float]:
    """The losses of 20 steps of a small model."""
    kept = Losses()
    with mock.patch.dict(SHAPES, base=(128, 2, 4)):
        train_steps(
            size,
            "short",
            hardware=HardwareConfig(accelerator=accelerator, precision=precision),
            dropout=0.0,
            tokens=1024,
            rows=64,
            steps=LOSSES,
            more=[kept],
        )
    return kept.losses


def resume(size: Size) -> dict[str, Any]:
    """A run that is ended by SIGTERM and resumed, against one that is not: whether all tensors have the same bits."""
    accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    words = [f"hardware.accelerator={accelerator}", "trainer.max_epochs=2", "checkpoint.every=5", "resume=auto"]
    codes = []
    with tempfile.TemporaryDirectory() as folder:
        for name, fault in (("whole", ""), ("parts", "step:23:term"), ("parts", "")):
            command = [sys.executable, "-m", "manyheads", "train", f"output={folder}/{name}", *words]
            environment = os.environ | {"MANYHEADS_FAULT": fault}
            codes.append(subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode)
        weights = [(Path(folder) / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    return {"exit codes": codes, "same bits": weights[0] == weights[1]}


def commands(size: Size) -> dict[str, Any]:
    """Commands as a user types them, side by side: exit code and seconds of each, and what a failed one said last.

    Also whether the labels of the demo's texts are those that the CPU gives.
    """
    accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    on_device, short = f"hardware.accelerator={accelerator}", "trainer.max_epochs=2"
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = f"{folder}/run"
        texts, vectors = folder / "texts.csv", folder / "vectors.txt"
        words = [
            "the",
            "film",
            "was",
            "a",
            "fine",
            "and",
            "dull",
            "long",
            "short",
            "warm",
            "cold",
            "story",
            "of",
            "people",
        ]
        texts.write_text("text\n" + "".join(f"{' '.join(words[at % 9 :])}\n" for at in range(200)))
        drawn = torch.randn(len(words), 16, generator=torch.Generator().manual_seed(0)).tolist()
        lines = [f"{word} {' '.join(f'{one:.4f}' for one in row)}" for word, row in zip(words, drawn, strict=True)]
        vectors.write_text("\n".join(lines) + "\n")
        own = {  # those that train, without the verb
            "compiled": ["hardware.compile=always"],
            "fp16": ["hardware.precision=fp16" if accelerator == "gpu" else "hardware.precision=fp32"],
            "fp32": ["hardware.precision=fp32"],
            "automatic batch": ["batch.tokens=auto" if accelerator == "gpu" else "batch.tokens=4096"],
            "folds": ["data.folds=3", "refit=true"],
            "devices=0": ["hardware.devices=0"] if accelerator == "gpu" else ["hardware.devices=2"],
            "recompute": ["hardware.recompute=true"],
            "deberta": ["model.encoder=deberta"],
            "gru": ["model.encoder=gru"],
            "static": ["model=static", f"init_from={vectors}"],
            "window and alibi": ["model.window=4", "model.positions=alibi"],
            "sparsemax": ["model.normaliser=sparsemax"],
            "init_from": [f"init_from={trained}", "optim=finetune"],
            "trim": [f"init_from={trained}", "tokenizer.trim=train", "tokenizer.reserve=100"],
            "teacher": [f"teacher={trained}", f"data.unlabelled={texts}"],
            "dates": ["task=seq2seq", "data=dates", "data.rows=200"],
        }
        others = {
            "evaluate": ["evaluate", f"run={trained}"],
            "predict": ["predict", f"run={trained}", f"input={texts}", f"output={folder}/device.csv"],
            "look": ["look", f"run={trained}", "text=a fine film", f"output={folder}/look.html"],
            "probe": ["probe", f"run={trained}", f"output={folder}/probe"],
            "export": ["export", f"run={trained}", "format=onnx", f"output={folder}/exported"],
            "pretrain": ["pretrain", on_device, short, f"output={folder}/pretrained"],
            "ablate": [
                "ablate",
                "vary=model.n_heads",
                "values=[2,4]",
                "seeds=1",
                "seconds=5",
                on_device,
                f"output={folder}/ablate",
            ],
            "tune": ["tune", "optim.lr=1e-4,1e-3", on_device, short, f"output={folder}/tune"],
            "curve": ["curve", "shares=[0.5,1.0]", "seeds=1", on_device, short, f"output={folder}/curve"],
        }
        asked = {name: ["train", on_device, short, *words, f"output={folder}/{name}"] for name, words in own.items()}
        found["train"] = typed(["train", on_device, short, f"output={trained}"])
        with ThreadPoolExecutor(max(2, min(8, (os.cpu_count() or 1) // 2))) as pool:  # of two threads each
            found |= zip(asked | others, pool.map(typed, [*asked.values(), *others.values()]), strict=True)
        by_cpu = ["predict", f"run={trained}", f"input={texts}", f"output={folder}/cpu.csv"]
        found["predict on the CPU"] = typed([*by_cpu, "hardware.accelerator=cpu"])
        answers = [folder / f"{one}.csv" for one in ("device", "cpu")]
        if all(path.exists() for path in answers):
            ours, theirs = ([line.split(",")[0] for line in path.read_text().splitlines()] for path in answers)
            found["labels as on the CPU"] = sum(map(operator.eq, ours, theirs)) / len(theirs)
    if failed := [name for name, one in found.items() if isinstance(one, list) and one[0]]:
        found["error"] = "failed: " + "; ".join(f"{name}: {found[name][2]}" for name in failed)
    return found


def typed(words: list[str]) -> list[Any]:
    """Exit code and seconds of a command, and what it said last if it failed."""
    since = time.time()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "manyheads", *words],
            env=os.environ | {"OMP_NUM_THREADS": "2"},  # several run side by side
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=COMMAND_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return [124, COMMAND_LIMIT, "it took too long"]
    said = done.stdout.decode(errors="replace")
    return [done.returncode, round(time.time() - since, 1)] + [said[-1500:]] * bool(done.returncode)


PARTS: dict[str, Callable[[Size], dict[str, Any]]] = {  # what tells most comes first
    "peak": peak,
    "long": lambda size: speed(size, "long"),
    "profile": profile,
    "commands": commands,
    "parity": parity,
    "kernels": kernels,
    "resume": resume,
    "huggingface": huggingface,
    "short": lambda size: speed(size, "short"),
    "minilm": lambda size: speed(size, "short", "minilm"),
    "strategies": strategies,
    "tiny": lambda size: speed(size, "short", "tiny"),
    "first_step": first_step,
    "small_batches": small_batches,
}
LEAST = 5.0  # seconds that a part is begun for
LIMIT = 90.0  # seconds of a part, all that it imports and compiles included
COMMAND_LIMIT = 110.0  # seconds of a command
LIMITS = {"long": 150.0, "commands": 150.0, "small_batches": 150.0}


def train_steps(
    size: Size,
    texts: str,
    *,
    shape: str = "base",
    mode: str = "never",
    hardware: HardwareConfig | None = None,
    dropout: float = 0.1,
    tokens: int = 0,
    rows: int,
    steps: int,
    more: list[Callback] | None = None,
) -> Clock:
    """manyheads' own fit, as the command line runs it."""
    model = size.model(shape)
    if not dropout:
        model = ModelConfig(**{**vars(model), "dropout": 0.0})
    run = RunConfig(
        model=model,
        batch=BatchConfig(tokens=tokens or size.tokens, rows=rows),
        optim=OptimConfig(lr=1e-4),
        hardware=hardware or HardwareConfig(compile=Compile[mode]),
        trainer={"max_epochs": -1, "max_steps": steps, "limit_val_batches": 0, "gradient_clip_val": 1.0},
    )
    torch.manual_seed(0)
    network = assemble(run.model, vocab_size=size.vocabulary, n_classes=N_CLASSES, max_length=size.max_length)
    split = rows_of(size, texts)
    clock = Clock(size.warm)
    labels = [str(one) for one in range(N_CLASSES)]
    run_trainer(run, network, {"train": split, "validation": split}, labels, [clock, *(more or [])])
    return clock


def trainer_steps(size: Size, texts: str, rows_of_batch: int, steps: int) -> tuple[float, float]:
    """Steps/s and real tokens/s of the Trainer: bf16, rows grouped by length and padded to the longest, fused AdamW."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    split = rows_of(size, texts)
    rows = [
        {"input_ids": ids.long(), "labels": int(label)}
        for ids, label in zip(split.ids_N.split(split.lengths.tolist()), split.labels, strict=True)
    ]
    times: list[float] = []
    counted = [0]

    class Times(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step in (size.warm, steps):
                times.append(now_all_done())
                counted.append(counted[0])

    def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids_BL = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
        lengths_B1 = torch.tensor([[len(row["input_ids"])] for row in rows])
        counted[0] += int(lengths_B1.sum())
        mask_BL = (torch.arange(ids_BL.size(1)) < lengths_B1).long()
        return {"input_ids": ids_BL, "attention_mask": mask_BL, "labels": torch.tensor([row["labels"] for row in rows])}

    shape = size.model()
    config = BertConfig(
        vocab_size=size.vocabulary,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        intermediate_size=4 * shape.d_model,
        num_labels=N_CLASSES,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),  # nothing is saved
        per_device_train_batch_size=rows_of_batch,
        max_steps=steps,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        train_sampling_strategy="group_by_length",
        optim="adamw_torch_fused",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model = BertForSequenceClassification(config)
    Trainer(model=model, args=arguments, train_dataset=rows, data_collator=padded, callbacks=[Times()]).train()
    seconds = times[1] - times[0]
    return (steps - size.warm) / seconds, (counted[2] - counted[1]) / seconds


def rows_of(size: Size, texts: str) -> Tokens:
    """As many texts as an epoch has, with lengths as in real data; a few ids are frequent, as words are."""
    generator = torch.Generator().manual_seed(0)
    quantiles = torch.tensor(LENGTHS[texts], dtype=torch.float64).clamp(max=size.max_length)
    n_rows = size.rows if texts == "short" else size.rows // 4
    at = torch.rand(n_rows, generator=generator, dtype=torch.float64) * 20
    low = at.long()
    lengths = (quantiles[low] + (at - low) * (quantiles[low + 1] - quantiles[low])).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    uniform = torch.rand(int(offsets[-1]), generator=generator)
    ids_N = (size.vocabulary**uniform).int() - 1  # frequency falls as 1 / rank: Zipf's law
    return Tokens(ids_N, offsets, None, torch.randint(N_CLASSES, (len(lengths),), generator=generator))


def table(figures: dict[str, Any]) -> str:
    """Each figure in a line, with the aim where there is one."""
    lines = [json.dumps(figures["machine"])]
    peak_flops = figures.get("peak", {}).get("all")
    if peak_flops:
        lines.append(f"matrix products of a layer: {peak_flops:.1f} TFLOP/s, the measured peak")
    for part in ("long", "short", "minilm", "tiny"):
        for mode, run in figures.get(part, {}).items():
            if not isinstance(run, dict):
                continue
            middle = statistics.median(run["tokens/s"])
            line = (
                f"{part}, {mode}: {middle:,.0f} tokens/s ({min(run['tokens/s']):,.0f} to {max(run['tokens/s']):,.0f})"
            )
            if peak_flops:
                line += f", {run['TFLOP/s'] / peak_flops:.1%} of the measured peak"
            line += f", {run['TFLOP/s'] * 1e12 / STATED_PEAK:.1%} of 989 TFLOP/s, {run['peak GiB']:.1f} GiB"
            aim = "; aim 600,000, then 780,000" if part in ("long", "short") else ""
            lines.append(f"{line}, {run['graphs']} graphs{aim}")
    theirs = figures.get("huggingface", {}).get("tokens/s")
    if theirs:
        line = f"Hugging Face's Trainer on long: {statistics.median(theirs):,.0f} tokens/s"
        best = [statistics.median(run["tokens/s"]) for run in figures.get("long", {}).values() if isinstance(run, dict)]
        if best:
            line += f"; ours is {max(best) / statistics.median(theirs):.2f} times as fast; aim 1.5"
        lines.append(line)
    for name in ("kernels", "parity", "resume", "commands", "strategies", "first_step", "small_batches"):
        if name in figures:
            lines.append(f"{name}: {json.dumps(figures[name])}")
    lines += [f"{part} FAILED: {found['error'][-300:]}" for part, found in figures.items() if "error" in found]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    names = ("torch", "lightning", "transformers", "accelerate")
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "cuda": torch.version.cuda,
        "versions": {name: version(name) for name in names if find_spec(name)},
    }


def largest_difference(losses: list[float], others: list[float]) -> float:
    """Of a loss and the loss of the same step in another run."""
    return max(abs(one - other) for one, other in zip(losses, others, strict=True))


def median_seconds(work: Callable[[], Any]) -> float:
    """The median of six runs of four calls, after two to warm up."""
    times = []
    for _ in range(8):
        since = now_all_done()
        for _ in range(4):
            work()
        times.append((now_all_done() - since) / 4)
    return statistics.median(times[2:])


def now_all_done() -> float:
    """The time, when the device has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.time()


if __name__ == "__main__":
    main()
