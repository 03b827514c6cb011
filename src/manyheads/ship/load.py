"""Any deliverable: a classifier, or a model that answers by texts."""

from pathlib import Path

from manyheads.config import Task
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.deliverable import load as load_classifier
from manyheads.ship.files import find_model
from manyheads.ship.settings import read_settings
from manyheads.ship.translator import Translator, load_translator


def load(folder: str | Path) -> Deliverable | Translator:
    """Open a run folder or its model/ folder, wherever it was moved, in eval mode on the CPU.

    Raises:
        ValueError: one sentence; the folder is no run, or a file in it is missing, broken or does not fit.
    """
    settings = read_settings(find_model(Path(folder)) / "config.json")
    return load_translator(folder) if settings.task is Task.seq2seq else load_classifier(folder)
