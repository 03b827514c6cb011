"""The probabilities that a trained run gives to texts, once: they are kept in the cache.

n rows . C classes
"""

from hashlib import file_digest
from typing import Any

import numpy as np
import torch

from manyheads.config import InferenceHardware, RunConfig
from manyheads.data.disk_cache import cache_folder, cached_on_disk
from manyheads.data.rows import Rows
from manyheads.inference.classifier import TextClassifier, answer_in_chunks
from manyheads.inference.folder import load, place
from manyheads.inference.format import ModelFolder
from manyheads.terminal import progress_bar


def answers(folder: ModelFolder, rows: Rows, run: RunConfig) -> Any:
    """Probabilities `(n, C)`, float32, of the classes in their order in the model. Of processes that start together one
    asks the model; it computes in the quickest type, as `predict` does."""
    files = sorted(path for path in folder.path.iterdir() if path.suffix in (".safetensors", ".json"))
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append((path.name, file_digest(file, "sha256").hexdigest()))
    shape = (len(rows), len(folder.labels()))

    def make() -> dict[str, Any]:
        hardware = InferenceHardware(accelerator=run.hardware.accelerator, threads=run.hardware.threads)
        classifier = place(load(folder, TextClassifier), hardware, fast=True)

        def probabilities(texts: list[str], pairs: list[str] | None) -> dict[str, torch.Tensor]:
            return {"answers": classifier.probabilities(classifier.logits(texts, pairs))}

        with progress_bar(len(rows)) as progress:
            found = answer_in_chunks(probabilities, rows, shape[1], progress)
        return {name: found_nC.float().numpy() for name, found_nC in found.items()}

    def fits(found: dict[str, Any]) -> bool:
        return found["answers"].shape == shape and found["answers"].dtype == np.float32

    return cached_on_disk(cache_folder(run.data), "answers", (digests, rows.digest([])), make, fits)["answers"]
