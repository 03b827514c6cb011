"""The process of one contestant. Each imports what it needs and no more, so that its memory is its own."""

import json
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from contestants.settings import Way, shape_of, text_of

NAMES = {
    "a": "Hugging Face Trainer, defaults, dynamic padding",
    "b": "Hugging Face Trainer, padded to maximum",
    "c": "Hugging Face Trainer, best settings",
    "d": "nn.TransformerEncoder, bare loop, our batches, bf16",
    "e": "manyheads, bare loop",
    "f": "manyheads",
    "g": "manyheads, the shipped default",
    "h": "manyheads in fp32",
}
PEAK, SEARCH, BEST = "peak", "search", "trainer.json"  # BEST: the Trainer's settings, next to the tokens


def take_part(name: str, setting: str, folder: Path, driver: Connection) -> None:
    """Train as contestant `name` on what `texts.prepare` left in `folder`, turn by turn, until the driver ends it."""
    import torch

    driver.send(torch.get_num_threads())
    if name == PEAK:
        from contestants.peak import measure_peaks

        return measure_peaks(driver)
    from contestants.texts import n_classes, read
    from contestants.turns import Turns

    shape, text = shape_of(setting), text_of(setting)
    tokenizer, tokens = read(folder)
    turns = Turns(driver)
    if name in ("a", "b", "c", SEARCH):
        from contestants import huggingface

        def bert(attention: str) -> Any:
            return huggingface.make_bert(shape, text_classes, attention)

        text_classes = n_classes(tokens)
        if name == SEARCH:
            return driver.send(huggingface.search(bert, tokenizer, tokens, driver.recv()))
        way = {"a": huggingface.DEFAULTS, "b": huggingface.PADDED}.get(name) or best(folder)
        return huggingface.by_trainer(bert, text, tokenizer, tokens, turns, way)
    if name == "d":
        from contestants import torch_encoder

        return torch_encoder.by_hand(shape, text, tokens, turns)
    from contestants import ours

    if name == "e":
        return ours.by_hand(shape, text, tokens, turns)
    more = ["hardware.precision=fp32"] if name == "h" else []
    run = ours.shipped_run() if name == "g" else ours.our_run(shape, text, *more)
    ours.by_fit(run, Path(tempfile.mkdtemp(dir=folder)), tokens, turns)


def best(folder: Path) -> Way:
    """What the search found fastest, or was given up before."""
    return Way(**json.loads((folder / BEST).read_text()))
