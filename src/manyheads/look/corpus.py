"""`look split=...`: the heads of a finished model over the rows of a split, as tables, a figure and files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import EvaluateConfig, LookConfig
from manyheads.judge.task import Task, find_task
from manyheads.links import within
from manyheads.ship.files import find_model, run_folder
from manyheads.ship.settings import read_labels, read_settings
from manyheads.terminal import progress_bar, show_files
from manyheads.whole import refuse_unwritable, replace_folder

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
    home, settings = _home(config.run, model), read_settings(model / "config.json")
    if settings.multi:
        raise ValueError(
            f"run={config.run} gives texts any number of labels, but split={config.split} judges heads by the one "
            'class of a text: look at single texts by text="..." or input=FILE'
        )
    labels = read_labels(model / "labels.json", settings)
    task = find_task(EvaluateConfig(run=config.run, split=config.split), home, settings, labels)

    from manyheads.judge.device import place
    from manyheads.look.study import some, study_rows
    from manyheads.look.study_table import show_study
    from manyheads.ship.deliverable import load

    deliverable = place(load(model), config.hardware)
    rows = some(task.rows, config.rows, config.seed)
    with progress_bar(2 * len(rows)) as progress:
        found = study_rows(
            deliverable,
            rows,
            budget=config.batch.tokens,
            n_resamples=config.bootstrap,
            seed=config.seed,
            progress=progress,
        )
    folder = Path(config.output, config.split) if config.output else within(home, "look", config.split)
    written = write_study(folder, found, task)
    show_study(found, f"{task.name}, {task.split}: the heads over {len(rows):,} rows")
    show_files(folder, ["study.json", "heads.csv", "study.html"])
    return written


def _home(run: str, model: Path) -> Path:
    home = run_folder(model)
    if home is None:
        raise ValueError(
            f"run={run} is a model without its run folder, which would say what data it was trained on: "
            "name the run folder"
        )
    return home


def write_study(folder: Path, found: "Study", task: Task) -> dict[str, Any]:
    """Write every file; returns what is in study.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    from manyheads.look.study_picture import draw_study
    from manyheads.look.study_table import study_page, write_csv

    written = {**task.about, **found.as_json()}
    n_rows, n_heads = found.n_rows, len(found.silenced)
    title = f"{task.name}, {task.split} split: the heads"
    subtitle = f"{task.rows.source}, {n_rows:,} rows, {found.statistics.n_tokens:,} tokens, {n_heads} heads"
    with refuse_unwritable(folder), replace_folder(folder) as part:
        png = draw_study(found)
        (part / "study.png").write_bytes(png)
        (part / "study.html").write_text(study_page(found, png, title, subtitle), encoding="utf-8")
        write_csv(part / "heads.csv", found)
        (part / "study.json").write_text(
            json.dumps(written, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
    return written
