"""Families of weights that `init_from=` opens: equal to transformers, and how fast they answer. To pretrained.json and
the tables of docs/pretrained.md.

    pip install -e '.[bench,hf]'
    OMP_NUM_THREADS=1 python benchmarks/pretrained.py [parity] [speed] [only=NAME]

Shapes are those of the published models, weights are random, and the vocabulary is cut to 1,000 words, as neither says
anything of speed: parameters are counted with the published one. `parity` is the largest difference of the last hidden
states and of the logits, in fp32, for texts of 1 to 300 tokens that transformers reads padded and manyheads packed.
`speed` answers batches of 512 tokens in turns of .3 seconds; a cell is the median of three turns, by the time that the
processor works for this process: run it with one thread. manyheads multiplies in bf16 where the processor does, as
`manyheads predict`; transformers by its default.
"""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
import transformers
from contestants.tables import fill_document, markdown
from machine import machine

from manyheads.config import Precision
from manyheads.inference.packed import cast_once
from manyheads.inference.precision import inference_dtype, multiplying_in
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters
from manyheads.plugins.hub.shapes import Shape, read_shape
from manyheads.plugins.hub.weights import read_family

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = RESULTS.parents[1] / "docs" / "pretrained.md"
LENGTHS = [1, 2, 17, 40, 128, 129, 300]
SPEEDS, TOKENS, TURNS, SECONDS = (32, 256), 512, 3, 0.3
WORDS, CLASSES = 1000, 4
CPU = torch.device("cpu")


def bert(layers: int, width: int, heads: int, vocab: int = 30_522, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    return sizes | {"intermediate_size": 4 * width, "vocab_size": vocab, "max_position_embeddings": 512} | more


def modern(layers: int, width: int, heads: int, inner: int, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    return sizes | {"intermediate_size": inner, "vocab_size": 50_368, "max_position_embeddings": 1024} | more


OF_XLM_R = {"vocab": 250_002, "type_vocab_size": 1, "max_position_embeddings": 514, "layer_norm_eps": 1e-5}
OF_V3: dict[str, Any] = {
    **{"vocab": 128_100, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256},
    **{"pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm", "layer_norm_eps": 1e-7},
    **{"position_biased_input": False},
}
ETTIN = {"global_rope_theta": 160_000.0, "local_rope_theta": 160_000.0, "classifier_pooling": "mean"}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "all-MiniLM-L6-v2": ("Bert", bert(6, 384, 12)),
    "bge-small-en-v1.5, e5-small-v2, MiniLM-L12": ("Bert", bert(12, 384, 12)),
    "multilingual-e5-small": ("Bert", bert(12, 384, 12, 250_037)),
    "bert-base, bge-base-en-v1.5, e5-base-v2": ("Bert", bert(12, 768, 12)),
    "distilbert-base": (
        "DistilBert",
        {"n_layers": 6, "dim": 768, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30_522},
    ),
    "roberta-base": ("Roberta", bert(12, 768, 12, **OF_XLM_R | {"vocab": 50_265})),
    "xlm-roberta-base, multilingual-e5-base": ("XLMRoberta", bert(12, 768, 12, **OF_XLM_R)),
    "electra-small": ("Electra", bert(12, 256, 4, embedding_size=128)),
    "ettin-encoder-17m": ("ModernBert", modern(7, 256, 4, 384, **ETTIN)),
    "ettin-encoder-32m": ("ModernBert", modern(10, 384, 6, 576, **ETTIN)),
    "ettin-encoder-68m": ("ModernBert", modern(19, 512, 8, 768, **ETTIN)),
    "ettin-encoder-150m": ("ModernBert", modern(22, 768, 12, 1152, **ETTIN)),
    "ModernBERT-base": ("ModernBert", modern(22, 768, 12, 1152)),
    "deberta-v3-xsmall": ("DebertaV2", bert(12, 384, 6, **OF_V3)),
    "deberta-v3-small": ("DebertaV2", bert(6, 768, 12, **OF_V3)),
    "deberta-v3-base": ("DebertaV2", bert(12, 768, 12, **OF_V3)),
}


def main() -> None:
    words = sys.argv[1:]
    only = [word.removeprefix("only=") for word in words if word.startswith("only=")]
    todo = [word for word in words if "=" not in word] or ["parity", "speed"]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"models": {}}
    results["machine"] = machine() | {"threads": torch.get_num_threads()}
    results["versions"] = {name: version(name) for name in ("torch", "transformers", "manyheads")}
    for name, (kind, sizes) in SHAPES.items():
        if only and not any(part in name for part in only):
            continue
        theirs, ours, shape = make(kind, sizes)
        found = results["models"].setdefault(name, {"class": kind})
        found["parameters"] = published_parameters(shape, sizes["vocab_size"])
        if "parity" in todo:
            found["parity"] = parity(theirs, ours)
        if "speed" in todo:
            found["texts per second"] = {str(length): speeds(theirs, ours, shape, length) for length in SPEEDS}
        print(name, json.dumps(found), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        del theirs, ours
        gc.collect()
    fill_document(DOCUMENT, {"parity": parity_table(results), "speed": speed_table(results)})


def make(kind: str, sizes: dict[str, Any]) -> tuple[Any, Classifier, Shape]:
    """A model of transformers with random weights, ours with the same, and its shape."""
    torch.manual_seed(0)
    marks = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    config = getattr(transformers, f"{kind}Config")(**sizes | {"vocab_size": WORDS, "num_labels": CLASSES} | marks)
    theirs = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    with tempfile.TemporaryDirectory() as scratch:
        theirs.save_pretrained(scratch)
        shape = read_shape(scratch)
        ours = assemble(shape.config(), vocab_size=WORDS, n_classes=CLASSES, max_length=shape.max_length).eval()
        wanted = {name: list(tensor.shape) for name, tensor in ours.state_dict().items()}
        ours.load_state_dict(read_family(scratch, shape, wanted))
    return theirs, ours, shape


def published_parameters(shape: Shape, n_words: int) -> int:
    """With its whole vocabulary, without a head."""
    with torch.device("meta"):
        network = assemble(shape.config(), vocab_size=n_words, n_classes=1, max_length=shape.max_length)
    return count_parameters(network.embeddings) + count_parameters(network.encoder)


@torch.inference_mode()
def parity(theirs: Any, ours: Classifier) -> dict[str, float]:
    keep_BL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids_BL = torch.randint(5, WORDS, keep_BL.shape).masked_fill(~keep_BL, 1)
    expected = theirs(input_ids=ids_BL, attention_mask=keep_BL.long(), output_hidden_states=True)
    ids_N, layout = ids_BL[keep_BL], Packed.of_lengths(LENGTHS)
    states_ND = ours.encode(ids_N, layout)
    return {
        "hidden states": float((states_ND - expected.hidden_states[-1][keep_BL]).abs().max()),
        "logits": float((ours(ids_N, layout) - expected.logits).abs().max()),
    }


@torch.inference_mode()
def speeds(theirs: Any, ours: Classifier, shape: Shape, length: int) -> dict[str, float]:
    """Texts of `length` tokens a second, of each contestant."""
    dtype = inference_dtype(Precision.auto, shape.config(), CPU)
    narrow = ours if dtype is None else cast_once(ours, dtype)
    n_texts = TOKENS // length
    ids_BL, layout = torch.randint(5, WORDS, (n_texts, length)), Packed.of_lengths([length] * n_texts)
    mask_BL = torch.ones_like(ids_BL)

    def as_predict() -> Any:
        with multiplying_in(dtype, CPU):
            return narrow(ids_BL.flatten(), layout)

    calls = {
        "manyheads": as_predict,
        "manyheads, fp32": lambda: ours(ids_BL.flatten(), layout),
        "transformers, fp32": lambda: theirs(input_ids=ids_BL, attention_mask=mask_BL),
    }
    return {name: n_texts / seconds for name, seconds in in_turns(calls).items()}


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of a call of each."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 1):
        for name, call in calls.items():
            began, n = process_time(), 0
            while not n or process_time() - began < SECONDS:
                call()
                n += 1
            if turn:  # the first is not counted
                taken[name].append((process_time() - began) / n)
    return {name: median(seconds) for name, seconds in taken.items()}


def parity_table(results: dict[str, Any]) -> str:
    lines = []
    for name, found in results["models"].items():
        if "parity" in found:
            lines.append([name, found["class"], *(f"{value:.1e}" for value in found["parity"].values())])
    return markdown(["shape of", "class of transformers", "hidden states", "logits"], lines)


def speed_table(results: dict[str, Any]) -> str:
    lines = []
    for name, found in results["models"].items():
        if "texts per second" not in found:
            continue
        cells = []
        for length in map(str, SPEEDS):
            of_length = found["texts per second"][length]
            ours, theirs = of_length["manyheads"], of_length["transformers, fp32"]
            cells += [shown(ours), shown(of_length["manyheads, fp32"]), shown(theirs)]
        lines.append([name, f"{found['parameters'] / 1e6:,.0f} M", *cells])
    columns = ["shape of", "parameters"]
    for length in SPEEDS:
        columns += [f"{length} tokens", "in fp32", "transformers"]
    on, versions = results["machine"], results["versions"]
    note = (
        f"Texts a second; {on['processor']}, threads: {on['threads']}; torch {versions['torch']}, transformers "
        f"{versions['transformers']}."
    )
    return f"{markdown(columns, lines)}\n\n{note}"


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
