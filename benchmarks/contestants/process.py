"""The process of one contestant. Each imports what it needs and no more, so that its memory is its own."""

import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from contestants.settings import shape_of, text_of

NAMES = {
    "a": "Hugging Face Trainer, defaults, dynamic padding",
    "b": "Hugging Face Trainer, padded to maximum",
    "c": "Hugging Face Trainer, best settings",
    "d": "nn.TransformerEncoder, bare loop, our batches, bf16",
    "e": "manyheads, bare loop",
    "f": "manyheads",
    "g": "manyheads, averaging weights as by default",
    "h": "manyheads in fp32",
}
PEAK = "peak"


def take_part(name: str, setting: str, folder: Path, driver: Connection) -> None:
    """Train as contestant `name` on what `texts.prepare` left in `folder`, turn by turn, until the driver ends it."""
    import torch

    driver.send(torch.get_num_threads())
    if name == PEAK:
        from contestants.peak import measure_peaks

        return measure_peaks(driver)
    from contestants.texts import read
    from contestants.turns import Turns

    shape, text = shape_of(setting), text_of(setting)
    tokenizer, tokens = read(folder)
    turns = Turns(driver)
    if name in "abc":
        from contestants import huggingface

        way = {"a": huggingface.DEFAULTS, "b": huggingface.PADDED, "c": huggingface.best(text)}[name]
        return huggingface.by_trainer(shape, text, tokenizer, tokens, turns, way)
    if name == "d":
        from contestants import torch_encoder

        return torch_encoder.by_hand(shape, text, tokens, turns)
    from contestants import ours

    if name == "e":
        return ours.by_hand(shape, text, tokens, turns)
    more = {"f": [], "g": ["optim.average=300"], "h": ["hardware.precision=fp32"]}[name]
    ours.by_fit(shape, text, Path(tempfile.mkdtemp(dir=folder)), tokens, turns, *more)
