"""Training speed on one GPU: a BERT-base shape in bf16 against the card's peak, small batches against Hugging Face.

    python benchmarks/gpu.py                 everything, about eight minutes; or `make bench-gpu`
    python benchmarks/gpu.py --rehearse      a tiny shape and a few steps on any device, to see that it runs

Only tokens of texts are counted, and time is that of the whole loop: loader, loss, clip, optimiser, logging. Ids are
drawn at random, lengths as they occur in real data (see `LENGTHS`), so no data and no tokenizer is needed, and no
package but torch, lightning and tokenizers; `transformers` and `accelerate` where they are installed. From a checkout
on a bare machine: PYTHONPATH=src python3 benchmarks/gpu.py. Figures go to gpu.json next to this file, those of a
rehearsal nowhere.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from manyheads.config import BatchConfig, HardwareConfig, ModelConfig, OptimConfig, RunConfig
from manyheads.config.training import Compile
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.nn.assemble import flops_per_token
from manyheads.training.trainer import run_trainer

RESULTS = Path(__file__).with_suffix(".json")
PEAK = 989e12
"""bf16 FLOP/s of an H100 or H200 without sparsity, as NVIDIA states it."""
LENGTHS = {  # tokens of a text, every twentieth of the way from the shortest to the longest (or nearly: an outlier)
    "short": (9, 24, 27, 29, 31, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 47, 49, 51, 55, 68, 110),  # ag_news_10k
    "long": (21, 82, 120, 144, 155, 163, 173, 184, 196, 211, 226, 245, 267, 293, 326, 365, 418, 484, 582, 761, 1563),
}  # long: imdb, which is cut at 512
BARS = {  # the first target, and the goal
    "short tokens/s": (600_000, 780_000),
    "long tokens/s": (600_000, 780_000),
    "batch of 32, times the steps/s of Hugging Face": (3.0, None),
    "seconds to the first step, compiled": (45.0, None),
    "seconds to the first step, not compiled": (8.0, None),
}
N_CLASSES = 4


class Size:
    """How large everything is: of the measurement, or of its rehearsal."""

    def __init__(self, *, rehearse: bool) -> None:
        self.rehearse = rehearse
        self.d_model, self.n_layers, self.n_heads = (32, 2, 4) if rehearse else (768, 12, 12)
        self.vocabulary = 64 if rehearse else 30_522
        self.max_length = 64 if rehearse else 512
        self.tokens = 256 if rehearse else 65_536
        self.rows = 64 if rehearse else 60_000
        self.warm, self.timed = (1, 2) if rehearse else (20, 60)
        self.rounds = 1 if rehearse else 3
        self.square = 64 if rehearse else 65_536  # tokens of the matrix products
        self.modes = ("never",) if rehearse else ("always", "never")

    def model(self) -> ModelConfig:
        """Dropout as BERT has it, but for attention weights: the kernel for packed texts knows none."""
        d_head = self.d_model // self.n_heads
        return ModelConfig(
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            d_model=self.d_model,
            d_k=d_head,
            d_v=d_head,
            d_ff=4 * self.d_model,
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


def main() -> None:
    parser = argparse.ArgumentParser(description="training speed on one GPU")
    parser.add_argument("--rehearse", action="store_true", help="tiny, on any device")
    parser.add_argument("--out", type=Path, help="where the figures go; default: gpu.json, of a rehearsal nowhere")
    parser.add_argument("--first", choices=("always", "never"), help="train one step and print the time (used inside)")
    asked = parser.parse_args()
    size = Size(rehearse=asked.rehearse)
    if asked.first:
        print(ours(size, "short", asked.first, tokens=size.tokens, rows=size.rows, steps=1).first)
        return
    if not (asked.rehearse or torch.cuda.is_available()):
        sys.exit("torch sees no GPU here: python benchmarks/gpu.py --rehearse tries the script without one")
    figures = measure(size)
    show(figures)
    out = asked.out or (None if asked.rehearse else RESULTS)
    if out:
        out.write_text(json.dumps(figures, indent=1) + "\n")


def measure(size: Size) -> dict[str, Any]:
    figures: dict[str, Any] = {"machine": machine(), "peak TFLOP/s of our products": matrix_peak(size)}
    for mode in size.modes:
        figures[f"seconds to the first step, {'' if mode == 'always' else 'not '}compiled"] = cold_start(size, mode)
    for texts in LENGTHS:
        for mode in size.modes:
            runs = [large(size, texts, mode) for _ in range(size.rounds)]
            figures[f"{texts}, compile={mode}"] = runs
            print(texts, mode, [round(run["tokens/s"]) for run in runs], flush=True)
    figures["batch of 32"] = small(size)
    return figures


def large(size: Size, texts: str, mode: str) -> dict[str, float]:
    """Batches that fill the card."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    clock = ours(size, texts, mode, tokens=size.tokens, rows=size.rows, steps=size.warm + size.timed)
    lengths = rows_of(size, texts).lengths.double()
    met = float((lengths**2).sum() / lengths.sum())  # of the text that a token is in
    flops = 3 * flops_per_token(size.model(), met)
    per_second = clock.tokens / clock.seconds
    return {
        "tokens/s": per_second,
        "FLOPs a token": flops,
        "TFLOP/s": per_second * flops / 1e12,
        "share of 989 TFLOP/s": per_second * flops / PEAK,
        "seconds a step": clock.seconds / size.timed,
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0,
    }


def small(size: Size) -> dict[str, Any]:
    """Batches of 32 short texts, in turn with the Trainer of Hugging Face at its best settings."""
    steps = size.warm + (size.timed if size.rehearse else 5 * size.timed)
    has_peer = all(find_spec(name) for name in ("transformers", "accelerate"))
    found: dict[str, Any] = {f"steps/s, compile={mode}": [] for mode in size.modes}
    found["steps/s, Hugging Face"] = [] if has_peer else None
    for _ in range(size.rounds):
        for mode in size.modes:
            clock = ours(size, "short", mode, tokens=32 * size.max_length, rows=32, steps=steps)
            found[f"steps/s, compile={mode}"].append((steps - size.warm) / clock.seconds)
        if has_peer:
            found["steps/s, Hugging Face"].append(huggingface(size, steps))
    return found


def ours(size: Size, texts: str, mode: str, *, tokens: int, rows: int, steps: int) -> Clock:
    """manyheads' own fit, as the command line runs it."""
    run = RunConfig(
        model=size.model(),
        batch=BatchConfig(tokens=tokens, rows=rows),
        optim=OptimConfig(lr=1e-4),
        hardware=HardwareConfig(compile=Compile[mode]),
        trainer={"max_epochs": -1, "max_steps": steps, "limit_val_batches": 0, "gradient_clip_val": 1.0},
    )
    torch.manual_seed(0)
    network = assemble(run.model, vocab_size=size.vocabulary, n_classes=N_CLASSES, max_length=size.max_length)
    split = rows_of(size, texts)
    clock = Clock(size.warm)
    run_trainer(run, network, {"train": split, "validation": split}, [str(one) for one in range(N_CLASSES)], [clock])
    return clock


def rows_of(size: Size, texts: str) -> Tokens:
    """As many texts as an epoch has, with lengths as in real data; a few ids are frequent, as words are."""
    generator = torch.Generator().manual_seed(0)
    quantiles = torch.tensor(LENGTHS[texts], dtype=torch.float64).clamp(max=size.max_length)
    at = torch.rand(size.rows if texts == "short" else size.rows // 4, generator=generator, dtype=torch.float64) * 20
    low = at.long()
    lengths = (quantiles[low] + (at - low) * (quantiles[low + 1] - quantiles[low])).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    uniform = torch.rand(int(offsets[-1]), generator=generator)
    ids_N = (size.vocabulary**uniform).int() - 1  # frequency falls as 1 / rank: Zipf's law
    return Tokens(ids_N, offsets, None, torch.randint(N_CLASSES, (len(lengths),), generator=generator))


def huggingface(size: Size, steps: int) -> float:
    """Steps/s of the Trainer at batches of 32: bf16, rows grouped by length, the fused AdamW, padded to the longest."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    split = rows_of(size, "short")
    rows = [
        {"input_ids": ids.long(), "labels": int(label)}
        for ids, label in zip(split.ids_N.split(split.lengths.tolist()), split.labels, strict=True)
    ]
    times: list[float] = []

    class Times(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step in (size.warm, steps):
                times.append(now_all_done())

    config = BertConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.d_model,
        num_hidden_layers=size.n_layers,
        num_attention_heads=size.n_heads,
        intermediate_size=4 * size.d_model,
        num_labels=N_CLASSES,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),  # nothing is saved
        per_device_train_batch_size=32,
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
    return (steps - size.warm) / (times[1] - times[0])


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids_BL = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    lengths_B1 = torch.tensor([[len(row["input_ids"])] for row in rows])
    mask_BL = (torch.arange(ids_BL.size(1)) < lengths_B1).long()
    return {"input_ids": ids_BL, "attention_mask": mask_BL, "labels": torch.tensor([row["labels"] for row in rows])}


def cold_start(size: Size, mode: str) -> float:
    """Seconds from the start of a process to the end of its first step, with empty caches of compiled code."""
    with tempfile.TemporaryDirectory() as empty:
        caches = {name: f"{empty}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        command = [sys.executable, __file__, "--first", mode, *(["--rehearse"] if size.rehearse else [])]
        since = time.time()
        answer = subprocess.run(command, env=os.environ | caches, check=True, stdout=subprocess.PIPE, text=True)
    return float(answer.stdout.split()[-1]) - since


def matrix_peak(size: Size) -> dict[str, float]:
    """TFLOP/s of the four products of a layer by themselves, and of all of them one after another."""
    device, d_model = "cuda" if torch.cuda.is_available() else "cpu", size.d_model
    shapes = {"qkv": (d_model, 3 * d_model), "output": (d_model, d_model)}
    shapes |= {"widen": (d_model, 4 * d_model), "narrow": (4 * d_model, d_model)}
    found, operations, seconds = {}, 0.0, 0.0
    for name, (inner, outer) in shapes.items():
        x = torch.randn(size.square, inner, device=device, dtype=torch.bfloat16)
        weight = torch.randn(outer, inner, device=device, dtype=torch.bfloat16)
        times = []
        for _ in range(8):
            since = now_all_done()
            for _ in range(4):
                torch.nn.functional.linear(x, weight)
            times.append((now_all_done() - since) / 4)
        count, median = 2 * size.square * inner * outer, statistics.median(times[2:])
        found[name] = count / median / 1e12
        operations, seconds = operations + count, seconds + median
    return found | {"all": operations / seconds / 1e12}


def show(figures: dict[str, Any]) -> None:
    """The medians, next to the aims."""
    print(json.dumps(figures["machine"]))
    peak = figures["peak TFLOP/s of our products"]["all"]
    print(f"matrix products of a layer: {peak:.1f} TFLOP/s")
    medians: dict[str, float] = {name: one for name, one in figures.items() if name.startswith("seconds")}
    for name, runs in figures.items():
        if ", compile=" in name:
            speeds = [run["tokens/s"] for run in runs]
            middle = statistics.median(speeds)
            texts, share = name.partition(",")[0], middle * runs[0]["FLOPs a token"]
            medians[f"{texts} tokens/s"] = max(middle, medians.get(f"{texts} tokens/s", 0.0))
            print(
                f"{name}: {middle:,.0f} tokens/s ({min(speeds):,.0f} to {max(speeds):,.0f}), {share / PEAK:.1%} of 989 "
                f"TFLOP/s, {share / peak / 1e12:.1%} of the products alone, {runs[0]['peak GiB']:.1f} GiB"
            )
    of_32 = {name: statistics.median(runs) for name, runs in figures["batch of 32"].items() if runs}
    for name, middle in of_32.items():
        print(f"batch of 32: {middle:.1f} {name}")
    if theirs := of_32.pop("steps/s, Hugging Face", None):
        medians["batch of 32, times the steps/s of Hugging Face"] = max(of_32.values()) / theirs
    for name, (bar, goal) in BARS.items():
        has = f"{medians[name]:,.1f}" if name in medians else "not measured"
        print(f"{name}: {has}; asked for {bar:,}{f', goal {goal:,}' if goal else ''}")


def machine() -> dict[str, Any]:
    names = ("torch", "lightning", "transformers", "accelerate")
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "cuda": torch.version.cuda,
        "versions": {name: version(name) for name in names if find_spec(name)},
    }


def now_all_done() -> float:
    """The time, when the device has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.time()


if __name__ == "__main__":
    main()
