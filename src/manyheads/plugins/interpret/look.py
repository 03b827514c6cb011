"""The verb `look`: what a trained model attends to, as pages of single texts or as figures over a split."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import find_data
from manyheads.inference.format import enclosing_run, home_of, open_folder
from manyheads.inference.reading import check_input, open_texts
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.shown import NO_CAPTUM, choose_heads
from manyheads.runs.folder import within
from manyheads.runs.verb_output import VerbOutput, refuse_occupied
from manyheads.terminal import progress_bar, say, show_files

if TYPE_CHECKING:
    from manyheads.inference.classifier import TextClassifier

WAYS = 'text="...", input=FILE or split=validation'
STUDIED = VerbOutput("look split=", "study.json", ('"heads":', '"split":'), ("study.html",))


def look(config: LookConfig) -> Any:
    """Look at texts, or over a split.

    A page a text goes to `output`, else <run>/look/, as 1.html, 2.html, ... after the highest number there: nothing
    is overwritten. Returns what was written, or of a split what `manyheads.plugins.interpret.look.study` returns.

    Raises:
        UserError: one sentence; the settings, the run, a model without attention maps, the input or a line in it.
    """
    _check(config)
    opened = open_folder(config.run)
    model, settings = opened
    if settings.task != "classify":
        raise UserError(
            f"run={config.run} has task={settings.task}, but look shows the attention of "
            "classifiers: name a run with task=classify"
        )
    chosen = choose_heads(settings.model, config.layers, config.heads)
    if config.split:
        return study(config)
    folder = _folder(config, model)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"output={folder} is a file: name a folder")

    from manyheads.inference.classifier import TextClassifier, likeliest_of
    from manyheads.inference.folder import load, place
    from manyheads.plugins.interpret.attribution import attribute, show_attribution, write_attribution
    from manyheads.plugins.interpret.page import look_at

    others = {name: part for name, part in plugin.parts("view").items() if name != "heads"}
    loaded = load(opened, TextClassifier)
    deliverable = place(loaded, config.hardware, fast=False)
    answering = place(loaded, config.hardware, fast=True)  # as predict answers
    texts, faults = _read_texts(config, deliverable)
    if faults:
        many = "1 row has no page" if len(faults) == 1 else f"{len(faults):,} rows have no page"
        say(f"{many} (first: {faults[0]})")
    if not texts:
        raise UserError(f"input={config.input} holds no texts: give one a line")
    source = (model.parent if model.name == "model" else model).name
    written: list[Path] = []
    for text, pair in texts:
        (answer,) = answering.predict([text], None if pair is None else [pair])
        found = attribute(deliverable, text, pair, label=likeliest_of(answer)) if config.attribution else None
        page = look_at(deliverable, text, pair, chosen, folder=folder, source=source, answer=answer, attribution=found)
        written.append(page.page)
        say(f"{page.page}: {page.label} {page.probability:.1%}")
        checks = ", ".join(f"{re.sub('^Layer', 'layer', name)} {error:.1e}" for name, error in page.errors.items())
        say(f"  largest |map · V - fast path|: {checks}")
        if found is not None:
            show_attribution(found)
            written.append(write_attribution(page.page, found))
        for name, part in others.items():
            file = page.page.with_name(f"{page.page.stem}-{name}.html")
            file.write_text(plugin.resolve(part.make)(deliverable, text, pair, answer=answer, source=source), "utf-8")
            written.append(file)
    return written


def _read_texts(config: LookConfig, model: "TextClassifier") -> tuple[list[tuple[str, str | None]], list[str]]:
    """The texts or pairs to show, all before the first page, so that a mistake writes none; and what is wrong with rows
    among them that cannot be answered."""
    texts: list[tuple[str, str | None]] = []
    faults: list[str] = []
    with open_texts(config.text, config.input or "-", model) as chunks:
        for chunk in chunks:
            faults += chunk.faults.values()
            pairs = chunk.pairs or [None] * len(chunk.texts)
            for at, one in enumerate(zip(chunk.texts, pairs, strict=False)):
                if at in chunk.faults:
                    continue
                texts.append(one)
                if len(texts) == config.rows:  # 0: all
                    return texts, faults
    return texts, faults


def _check(config: LookConfig) -> None:
    """Find what is wrong before torch is imported."""
    asked = [name for name in ("text", "input", "split") if getattr(config, name)]
    if len(asked) > 1:
        raise UserError(f"{' and '.join(asked)} are given together: give one of {WAYS}")
    if not asked:
        raise UserError(f"there is nothing to look at: give {WAYS}")
    if config.split not in ("", "validation", "test"):
        raise UserError(f"split={config.split} is not a split to look at: choose validation or test")
    if config.text and config.rows:
        raise UserError(f"rows={config.rows} does nothing with text, which is one: remove it")
    usual = LookConfig(run=config.run)
    for name in ("layers", "heads", "attribution") if config.split else ("seed", "batch"):
        if getattr(config, name) != getattr(usual, name):
            typed = "batch.tokens" if name == "batch" else f"{name}={format_value(getattr(config, name))}"
            why = f"with split={config.split}, of which all heads are measured" if config.split else "without split="
            raise UserError(f"{typed} does nothing {why}: remove it")
    if config.attribution and find_spec("captum") is None:
        raise UserError(NO_CAPTUM)
    if not config.split:
        check_input(config.text, config.input or "-")


def _folder(config: LookConfig, model: Path) -> Path:
    """Where pages go."""
    if config.output:
        return Path(config.output)
    home_of(config.run, model)  # which refuses the hub's copy
    run = Path(config.run)
    if home := run if model != run else enclosing_run(model):
        return within(home, "look")
    raise UserError(
        f"run={config.run} is a model without its run folder, which would hold what is found: name a folder by output="
    )


def study(config: LookConfig) -> dict[str, Any]:
    """Study the heads over the run's own rows; returns the content of study.json.

    Writes study.json and study.html to <run>/look/<split>/, or <output>/<split>/, both or none; what was there is
    replaced.

    Raises:
        UserError: one sentence; the run, its data, a model without heads, or the folder. Mistakes in the data are
            found before torch is imported.
    """
    opened = open_folder(config.run)
    model, settings = opened
    home = enclosing_run(model)
    if home is None:
        raise UserError(
            f"run={config.run} is a model without its run folder, which would say what data it was trained on: "
            "name the run folder"
        )
    if settings.multi:
        raise UserError(
            f"run={config.run} gives texts any number of labels, but split={config.split} judges heads by the one "
            'class of a text: look at single texts by text="..." or input=FILE'
        )
    labels = opened.labels()
    folder = Path(config.output, config.split) if config.output else within(home, "look", config.split)
    refuse_occupied(folder, STUDIED, overwrite=True)
    task = find_data(EvaluateConfig(run=config.run, split=config.split), home, settings, labels)

    from manyheads.inference.classifier import TextClassifier
    from manyheads.inference.folder import load, place
    from manyheads.plugins.interpret.study import show_study, study_rows, write_study

    deliverable = place(load(opened, TextClassifier), config.hardware)
    rows = task.rows.sample(config.rows, config.seed)
    with progress_bar(2 * len(rows)) as progress:
        found = study_rows(
            deliverable,
            rows,
            budget=config.batch.tokens,
            seed=config.seed,
            progress=progress,
        )
    written = write_study(folder, found, task)
    show_study(found, f"{task.name}, {task.split}: the heads over {len(rows):,} rows")
    show_files(folder, ["study.json", "study.html"])
    return written
