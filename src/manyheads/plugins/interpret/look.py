"""The verb `look`: what a trained model attends to, as pages of single texts or as figures over a split.

This file finds mistakes before torch is imported; `pages.py` and `study.py` do the work.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import find_data
from manyheads.inference.format import enclosing_run, home_of, name_inner, open_folder
from manyheads.inference.reading import check_input
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.shown import NO_CAPTUM, choose_heads
from manyheads.runs.folder import refuse_unwritable_output, within
from manyheads.runs.verb_output import VerbOutput, refuse_occupied

WAYS = 'text="...", input=FILE or split=validation'
STUDIED = VerbOutput("look split=", "study.json", ('"heads":', '"split":'), ("study.html",))


def look(config: LookConfig) -> Any:
    """Look at texts, or over a split.

    A page a text goes to `output`, else <run>/look/, as 1.html, 2.html, ... after the highest number there: nothing
    is overwritten. Returns the files that were written, or of a split what `study` returns.

    Raises:
        UserError: the settings do not go together, the run is no classifier or has no attention, or the input or a line
            of it is wrong.
    """
    check(config)
    opened = open_folder(config.run)
    if opened.settings.task != "classify":
        raise UserError(
            f"run={config.run} has task={opened.settings.task}, but look shows the attention of classifiers: "
            f"{name_inner(opened.path, 'a run with task=classify')}"
        )
    chosen = choose_heads(opened.settings.model, config.layers, config.heads)
    if config.split:
        return study(config)
    folder = page_folder(config, opened.path)
    refuse_unwritable_output(str(folder))

    from manyheads.plugins.interpret.pages import look_at_texts

    return look_at_texts(config, opened, chosen, folder)


def study(config: LookConfig) -> dict[str, Any]:
    """Study the heads over the run's own rows; returns the content of study.json.

    Writes study.json and study.html to <run>/look/<split>/, or <output>/<split>/, both or none; what was there is
    replaced.

    Raises:
        UserError: the run has no data, or gives any number of labels, or the folder holds something else.
    """
    opened = open_folder(config.run)
    home = enclosing_run(opened.path)
    if home is None:
        raise UserError(
            f"run={config.run} is a model without its run folder, which would say what data it was trained on: "
            "name the run folder"
        )
    if opened.settings.multi:
        raise UserError(
            f"run={config.run} gives texts any number of labels, but split={config.split} judges heads by the one "
            'class of a text: look at single texts by text="..." or input=FILE'
        )
    labels = opened.labels()
    folder = Path(config.output, config.split) if config.output else within(home, "look", config.split)
    refuse_occupied(folder, STUDIED, overwrite=True)
    data = find_data(EvaluateConfig(run=config.run, split=config.split), home, opened.settings, labels)

    from manyheads.plugins.interpret.study import study_split

    return study_split(config, opened, data, folder)


def check(config: LookConfig) -> None:
    """Refuse settings that do not go together, and an input that is missing."""
    asked = [name for name in ("text", "input", "split") if getattr(config, name)]
    if len(asked) > 1:
        raise UserError(f"{' and '.join(asked)} are given together: give one of {WAYS}")
    if not asked:
        raise UserError(f"there is nothing to look at: give {WAYS}")
    if config.split not in ("", "validation", "test"):
        raise UserError(f"split={config.split} is not a split to look at: choose validation or test")
    if config.text and config.rows:
        raise UserError(f"rows={config.rows} does nothing with text, which is one: remove it")
    unread, why = ("seed", "batch"), "without split="
    if config.split:
        unread, why = ("layers", "heads", "attribution"), f"with split={config.split}, of which all heads are measured"
    defaults = LookConfig(run=config.run)
    for name in unread:
        value = getattr(config, name)
        if value != getattr(defaults, name):
            typed = "batch.tokens" if name == "batch" else f"{name}={format_value(value)}"
            raise UserError(f"{typed} does nothing {why}: remove it")
    if config.attribution and find_spec("captum") is None:
        raise UserError(NO_CAPTUM)
    if not config.split:
        check_input(config.text, config.input or "-")


def page_folder(config: LookConfig, model: Path) -> Path:
    """Where pages go."""
    if config.output:
        return Path(config.output)
    home_of(config.run, model)  # raises UserError where the model is the hub's copy
    run = Path(config.run)
    home = enclosing_run(model) if model == run else run
    if home is None:
        raise UserError(
            f"run={config.run} is a model without its run folder, which would hold what is found: name a folder by "
            "output="
        )
    return within(home, "look")
