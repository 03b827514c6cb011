"""The verb `explain`: every experiment, its pictures, and one JSON of all figures."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.config import Claim, ExplainConfig
from manyheads.plugin import resolve
from manyheads.runs.files import write_atomic, write_json

JSON = "attention.json"
EXPERIMENTS = {
    Claim.formula: "manyheads.explain.formula:formula",
    Claim.scale: "manyheads.explain.formula:scale",
    Claim.order: "manyheads.explain.formula:order",
    Claim.heads: "manyheads.explain.cost:heads",
    Claim.length: "manyheads.explain.cost:length",
    Claim.retrieval: "manyheads.explain.formula:retrieval",
    Claim.senses: "manyheads.explain.words:senses",
    Claim.relations: "manyheads.explain.words:relations",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`says` is one line for the screen, `numbers` go to the JSON, `pictures` are PNGs by the rest of their name."""

    says: str
    numbers: dict[str, Any]
    pictures: dict[str, bytes] = field(default_factory=dict)


def explain(config: ExplainConfig) -> dict[str, Any]:
    """Run the experiments, all or the one that is asked for; returns the content of attention.json.

    Writes attention.json and attention-*.png to `output`, file by file as they are ready; other files there stay.

    Raises:
        ValueError: one sentence; the output is a file, or the attention.json in it is not ours.
    """
    folder = Path(config.output or f"outputs/explain-{config.seed}")
    figures = _figures_there(folder, config)
    folder.mkdir(parents=True, exist_ok=True)
    for claim, experiment in EXPERIMENTS.items():
        if config.only not in (Claim.all, claim):
            continue
        started = time.perf_counter()
        finding = resolve(experiment)(config)  # torch and matplotlib take seconds to import: only now are they needed
        seconds = time.perf_counter() - started
        found = json.dumps({"seed": config.seed, "seconds": seconds, **finding.numbers})
        figures[claim.name] = json.loads(found, parse_float=lambda one: float(f"{float(one):.6g}"))  # more is noise
        for name, png in finding.pictures.items():
            write_atomic(folder / f"attention-{name}.png", png)
        ordered = {name: figures[name] for name in Claim.__members__ if name in figures}
        write_json(folder / JSON, ordered, indent=1)
        print(f"{claim.name}: {finding.says} ({seconds:.0f} s)", flush=True)
    print(f"figures: {folder / JSON}")
    return figures


def _figures_there(folder: Path, config: ExplainConfig) -> dict[str, Any]:
    """What an earlier run left, for an experiment that is done alone; else nothing."""
    file = folder / JSON
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output={folder} is a file: name a folder")
    if config.only is Claim.all or not file.exists():
        return {}
    try:
        figures = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        figures = None
    if not isinstance(figures, dict) or not figures.keys() <= Claim.__members__.keys():
        raise ValueError(f"{file} is not what explain writes: name another folder, or delete the file")
    return figures
