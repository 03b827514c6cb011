"""Accuracy after the same epochs, compared with the Hugging Face Trainer: the speed costs no accuracy.

    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/accuracy_parity.py
    python benchmarks/accuracy_parity.py table

Contestants (a) and (f) of peers.py, as they are measured there, train the shape of d_model 128 and two layers for three
epochs, the Trainer's default, from ids that are the same for both. Both rise over the first 6 % of their steps and fall
linearly. Each takes the better of the same learning rates by validation accuracy with seed 0; then two more seeds. What
is judged are the last weights. Figures go to accuracy_parity.json after each run, and a second start makes only what is
missing.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from contestants.settings import SHAPES, Text
from contestants.tables import fill_document, markdown

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "accuracy_parity.json", HERE.parent / "docs" / "results" / "performance.md"
SETS = {"emotion": Text("emotion", 128), "ag_news_10k": Text("ag_news_10k", 128)}
SHAPE, EPOCHS, WARM_UP = SHAPES["128"], 3, 0.06
RATES, SEEDS = ("3e-4", "1e-3"), (0, 1, 2)
TRAINERS = {"f": "manyheads", "a": "Hugging Face Trainer, defaults"}
Runs = dict[str, dict[str, dict[str, dict[str, float]]]]  # contestant, rate, seed: accuracy of validation and test


def main() -> None:
    results: dict[str, Runs] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if sys.argv[1:] != ["table"]:
        measure(results)
    table = accuracy_table(results)
    print(table)
    fill_document(DOCUMENT, {"accuracy": table})


def measure(results: dict[str, Runs]) -> None:
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds NAME/{train,test}.csv")
    from contestants.texts import tokenize

    for name, text in SETS.items():
        tokenizer, tokens = tokenize(text, Path(data), with_test=True)
        trainers = {"f": train_ours, "a": train_peer}
        for seed in SEEDS:
            for trainer, train in trainers.items():
                runs = results.setdefault(name, {}).setdefault(trainer, {})
                for rate in RATES if seed == SEEDS[0] else [chosen(runs)]:
                    of_rate = runs.setdefault(rate, {})
                    if str(seed) not in of_rate:
                        of_rate[str(seed)] = accuracies(train(text, tokenizer, tokens, float(rate), seed), tokens)
                        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
                        print(name, trainer, rate, seed, of_rate[str(seed)], flush=True)


def train_ours(text: Text, tokenizer: Any, tokens: Any, rate: float, seed: int) -> Callable[[Any], Any]:
    """manyheads' own `fit`; returns logits of a batch."""
    from contestants.ours import fit_in, our_network, our_run
    from contestants.texts import n_classes

    ends = [f"trainer.max_epochs={EPOCHS}", "trainer.max_steps=-1", f"trainer.check_val_every_n_epoch={EPOCHS}"]
    more = [f"optim.lr={rate}", f"optim.warmup={WARM_UP}", f"seed={seed}", "trainer.limit_val_batches=1.0"]
    more += ["checkpoint.metric=accuracy"]  # which the command finds out from the data
    run = our_run(SHAPE, text, *ends, *more)
    network = our_network(run, n_classes(tokens["train"]))
    with tempfile.TemporaryDirectory() as scratch:
        fit_in(Path(scratch), run, network, tokens)
    network.eval()
    return lambda batch: network(batch.ids_N, batch.layout, batch.segments_N)


def train_peer(text: Text, tokenizer: Any, tokens: Any, rate: float, seed: int) -> Callable[[Any], Any]:
    """The Trainer with its defaults; returns logits of a batch."""
    import transformers
    from contestants import huggingface
    from contestants.texts import n_classes
    from contestants.torch_encoder import padded

    transformers.set_seed(seed)
    bert = huggingface.make_bert(SHAPE, n_classes(tokens["train"]), huggingface.DEFAULTS.attention)
    ends = {"num_train_epochs": EPOCHS, "learning_rate": rate, "warmup_steps": WARM_UP, "seed": seed}
    transformers.Trainer(
        model=bert,
        args=huggingface.make_arguments(huggingface.DEFAULTS, **ends),
        train_dataset=huggingface.make_dataset(tokens["train"]),
        data_collator=transformers.DataCollatorWithPadding(huggingface.wrapped(tokenizer)),
    ).train()
    bert.eval()

    def logits(batch: Any) -> Any:
        ids_BL, keep_BL = padded(batch)
        return bert(input_ids=ids_BL, attention_mask=keep_BL.long()).logits

    return logits


def accuracies(logits: Callable[[Any], Any], tokens: Any) -> dict[str, float]:
    """Share of right answers, in single precision."""
    import torch

    from manyheads.data.batches import Batches, plan_evaluation

    found = {}
    with torch.no_grad():
        for name in ("validation", "test"):
            plan = plan_evaluation(tokens[name].lengths, tokens=8192, rows=64)
            batches = Batches(tokens[name], plan)
            right = sum(int((logits(batch).argmax(1) == batch.labels_B).sum()) for batch in batches)
            found[name] = round(right / len(tokens[name]), 5)
    return found


def chosen(runs: dict[str, dict[str, dict[str, float]]]) -> str:
    """The rate that is best on validation with the first seed."""
    return max(runs, key=lambda rate: runs[rate][str(SEEDS[0])]["validation"])


def accuracy_table(results: dict[str, Runs]) -> str:
    """Test accuracy over seeds: mean and standard deviation, and the difference with Welch's 95 % interval."""
    lines = []
    for name, trainers in results.items():
        tests = {}
        for trainer in TRAINERS:
            runs = trainers.get(trainer, {})
            if runs and len(of_chosen := runs[chosen(runs)]) == len(SEEDS):
                tests[trainer] = [one["test"] for one in of_chosen.values()]
        if len(tests) < len(TRAINERS):
            continue
        cells = [f"{mean(tests[one]):.4f} ± {stdev(tests[one]):.4f} ({chosen(trainers[one])})" for one in TRAINERS]
        low, high = welch(tests["f"], tests["a"])
        difference = mean(tests["f"]) - mean(tests["a"])
        lines.append([name, *cells, f"{difference:+.4f} ({low:+.4f} to {high:+.4f})"])
    return markdown(["test accuracy", *TRAINERS.values(), "difference (95 %)"], lines)


def welch(ours: list[float], others: list[float]) -> tuple[float, float]:
    """The 95 % interval of the difference of two means whose variances may differ (Welch, 1947)."""
    from scipy.stats import ttest_ind

    interval = ttest_ind(ours, others, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


if __name__ == "__main__":
    main()
