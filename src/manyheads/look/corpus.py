"""`look split=...`: the heads of a finished model over the rows of a split, as tables, a figure and files."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import EvaluateConfig, LookConfig
from manyheads.judge.task import Task, find_task
from manyheads.ship.files import find_model
from manyheads.ship.settings import read_labels, read_settings

if TYPE_CHECKING:
    from manyheads.look.study import Study


def study(config: LookConfig) -> dict[str, Any]:
    """Study the heads over the run's own rows; returns the content of study.json.

    Writes study.json, heads.csv, study.png and study.html to <run>/look/<split>/, or <output>/<split>/, all of them
    or none; what was there is replaced.

    Raises:
        ValueError: one sentence; the run, its data, a model without heads, or the folder. Mistakes in the data are
            found before torch is imported.
    """
    model = find_model(Path(config.run))
    home = model.parent if model.name == "model" and (model.parent / "config.yaml").is_file() else None
    if home is None:
        raise ValueError(
            f"run={config.run} is a model without its run folder, which would say what data it was trained on: "
            "name the run folder"
        )
    settings = read_settings(model / "config.json")
    labels = read_labels(model / "labels.json", settings)
    task = find_task(EvaluateConfig(run=config.run, split=config.split), home, settings, labels)

    from manyheads.judge.device import place
    from manyheads.look.study import some, study_rows
    from manyheads.look.study_table import show_study
    from manyheads.ship.deliverable import load

    deliverable = place(load(model), config.hardware)
    rows = some(task.rows, config.rows, config.seed)
    with _bar(2 * len(rows)) as progress:
        found = study_rows(
            deliverable,
            rows,
            budget=config.batch.tokens,
            n_resamples=config.bootstrap,
            seed=config.seed,
            progress=progress,
        )
    folder = Path(config.output or model.parent / "look") / config.split
    written = write_study(folder, found, task)
    show_study(found, f"{task.name}, {task.split}: the heads over {len(rows):,} rows")
    _tell(folder)
    return written


def write_study(folder: Path, found: "Study", task: Task) -> dict[str, Any]:
    """Write every file; returns what is in study.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    from manyheads.look.study_picture import draw_study
    from manyheads.look.study_table import study_page, write_csv
    from manyheads.whole import replace_folder

    written = {"data": task.name, "split": task.split, "source": task.rows.source, **found.as_json()}
    n_rows, n_heads = found.n_rows, len(found.silenced)
    title = f"{task.name}, {task.split} split: the heads"
    subtitle = f"{task.rows.source}, {n_rows:,} rows, {found.statistics.n_tokens:,} tokens, {n_heads} heads"
    try:
        with replace_folder(folder) as part:
            png = draw_study(found)
            (part / "study.png").write_bytes(png)
            (part / "study.html").write_text(study_page(found, png, title, subtitle), encoding="utf-8")
            write_csv(part / "heads.csv", found)
            (part / "study.json").write_text(
                json.dumps(written, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
            )
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}): name another folder by output=<folder>"
        ) from error
    return written


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        rows = bar.add_task("rows", total=total)
        yield lambda n_rows: bar.advance(rows, n_rows)


def _tell(folder: Path) -> None:
    from manyheads.terminal import as_text, console

    screen = console()
    for name in ("study.json", "heads.csv", "study.html"):
        screen.print(as_text(folder / name), soft_wrap=True)
