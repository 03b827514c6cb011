"""The verb `explain`: every experiment, its pictures, and one JSON of all figures."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyheads.config.explain import Claim, ExplainConfig
from manyheads.explain.finding import Finding
from manyheads.explain.page import check_page, update_page
from manyheads.whole import replace_file

JSON = "attention.json"


def explain(config: ExplainConfig) -> dict[str, Any]:
    """Run the experiments, all or the one that is asked for; returns the content of attention.json.

    Writes attention.json and attention-*.png to `output`, file by file as they are ready; other files there stay.
    Figures in `page` that name their place in the JSON are brought up to date.

    Raises:
        ValueError: one sentence; the output is a file, the attention.json in it is not ours, or the page.
    """
    folder = Path(config.output or f"outputs/explain-{config.seed}")
    figures = _figures_there(folder, config)
    check_page(config.page)
    folder.mkdir(parents=True, exist_ok=True)
    for claim, experiment in _experiments().items():
        if config.only not in (Claim.all, claim):
            continue
        started = time.perf_counter()
        finding = experiment(config)
        seconds = time.perf_counter() - started
        figures[claim.name] = _rounded({"seed": config.seed, "seconds": seconds, **finding.numbers})
        _write(folder, figures, finding)
        print(f"{claim.name}: {finding.says} ({seconds:.0f} s)", flush=True)
    print(f"figures: {folder / JSON}")
    update_page(config.page, figures)
    return figures


def _experiments() -> dict[Claim, Callable[[ExplainConfig], Finding]]:
    # torch and matplotlib take seconds to import: only now are they needed
    from manyheads.explain.formula import formula
    from manyheads.explain.heads import heads
    from manyheads.explain.length import length
    from manyheads.explain.order import order
    from manyheads.explain.relations import relations
    from manyheads.explain.retrieval import retrieval
    from manyheads.explain.scale import scale
    from manyheads.explain.senses import senses

    return {
        Claim.formula: formula,
        Claim.scale: scale,
        Claim.order: order,
        Claim.heads: heads,
        Claim.length: length,
        Claim.retrieval: retrieval,
        Claim.senses: senses,
        Claim.relations: relations,
    }


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


def _write(folder: Path, figures: dict[str, Any], finding: Finding) -> None:
    for name, png in finding.pictures.items():
        with replace_file(folder / f"attention-{name}.png") as part:
            part.write_bytes(png)
    ordered = {name: figures[name] for name in Claim.__members__ if name in figures}
    with replace_file(folder / JSON) as part:
        part.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Six digits of every figure: more would be noise."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
