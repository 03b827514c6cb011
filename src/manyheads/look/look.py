"""The verb `look`: what a trained model attends to, as pages of single texts or figures over a split."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import LookConfig, Task
from manyheads.config.plain import show
from manyheads.judge.reading import check_texts, opened_texts
from manyheads.links import within
from manyheads.look.chosen import Chosen, choose
from manyheads.ship.files import find_model, run_folder
from manyheads.ship.settings import read_settings

if TYPE_CHECKING:
    from manyheads.look.texts import Looked
    from manyheads.ship.deliverable import Deliverable

WAYS = 'text="...", input=FILE or split=validation'


def look(config: LookConfig) -> Any:
    """Look at texts, or over a split.

    A page a text goes to `output`, else <run>/look/, as 1.html, 2.html, ... behind the highest number there: nothing
    is overwritten. Returns what was written, or of a split what `manyheads.look.corpus.study` returns.

    Raises:
        ValueError: one sentence; the settings, the run, a model without attention maps, the input or a line in it.
    """
    _check(config)
    model = find_model(Path(config.run))
    settings = read_settings(model / "config.json")
    if settings.task is not Task.classify:
        raise ValueError(
            f"run={config.run} has task={settings.task.name}, but look shows the attention of "
            "classifiers: name a run with task=classify"
        )
    chosen = choose(settings.model, config.layers, config.heads)
    if config.split:
        from manyheads.look.corpus import study

        return study(config)
    folder = _folder(config, model)
    _check_output(folder)

    from manyheads.judge.device import place  # torch, once the settings are known to be good
    from manyheads.ship.deliverable import load

    deliverable = place(load(model), config.hardware)
    with opened_texts(config.text, config.input or "-", deliverable) as chunks:
        texts = list(islice(_texts(chunks), config.rows or None))  # all before the first page: a mistake writes none
    if not texts:
        raise ValueError(f"input={config.input} holds no texts: give one a line")
    source = (model.parent if model.name == "model" else model).name
    return [path for one in texts for path in _page(config, deliverable, one, chosen, folder, source)]


def _page(
    config: LookConfig,
    deliverable: "Deliverable",
    texts: tuple[str, str | None],
    chosen: Chosen,
    folder: Path,
    source: str,
) -> list[Path]:
    """The page of a text or pair, and what is written beside it."""
    from manyheads.look.texts import look_at

    if not config.attribution:
        looked = look_at(deliverable, *texts, chosen, folder=folder, source=source, png=config.png)
        _tell(looked)
        return looked.files
    from manyheads.look.attributed import attribution_section, show_attribution, write_attribution
    from manyheads.look.attribution import attribute

    found = attribute(deliverable, *texts)
    more = attribution_section(found)
    looked = look_at(deliverable, *texts, chosen, folder=folder, source=source, png=config.png, more=more)
    _tell(looked)
    show_attribution(found)
    return [*looked.files, *write_attribution(looked.files[0], found)]


def _check(config: LookConfig) -> None:
    """Find what is wrong before torch is imported."""
    asked = [name for name in ("text", "input", "split") if getattr(config, name)]
    if len(asked) > 1:
        raise ValueError(f"{' and '.join(asked)} are given together: give one of {WAYS}")
    if not asked:
        raise ValueError(f"there is nothing to look at: give {WAYS}")
    if config.split not in ("", "validation", "test"):
        raise ValueError(f"split={config.split} is not a split to look at: choose validation or test")
    if config.text and config.rows:
        raise ValueError(f"rows={config.rows} does nothing beside text, which is one: leave it away")
    _refuse_idle(config)
    if config.attribution and find_spec("captum") is None:
        raise ValueError("attribution=true needs a package that is not installed: pip install 'manyheads[attribute]'")
    if not config.split:
        check_texts("look", config.text, config.input or "-")


def _refuse_idle(config: LookConfig) -> None:
    """What was asked of pages while a split is studied, or of a study while pages are made."""
    usual = LookConfig(run=config.run)
    for name in ("layers", "heads", "png", "attribution") if config.split else ("seed", "bootstrap", "batch"):
        if getattr(config, name) != getattr(usual, name):
            typed = "batch.tokens" if name == "batch" else f"{name}={show(getattr(config, name))}"
            why = f"beside split={config.split}, of which all heads are measured" if config.split else "without split="
            raise ValueError(f"{typed} does nothing {why}: leave it away")


def _folder(config: LookConfig, model: Path) -> Path:
    """Where pages go."""
    if config.output:
        return Path(config.output)
    run = Path(config.run)
    if home := run if model != run else run_folder(model):
        return within(home, "look")
    raise ValueError(
        f"run={config.run} is a model without its run folder, which would hold what is found: name a folder by output="
    )


def _check_output(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output={folder} is a file: name a folder")


def _texts(chunks: Any) -> Iterator[tuple[str, str | None]]:
    for chunk in chunks:
        yield from zip(chunk.texts, chunk.pairs or [None] * len(chunk.texts), strict=True)


def _tell(looked: "Looked") -> None:
    """What a terminal is told of a page."""
    from manyheads.terminal import as_text, console

    shell = console()
    shell.print(as_text(f"{looked.files[0]}: {looked.label} {looked.probability:.1%}"), soft_wrap=True)
    checks = ", ".join(f"{re.sub('^Layer', 'layer', name)} {error:.1e}" for name, error in looked.errors.items())
    shell.print(as_text(f"  largest |map · V - fast path|: {checks}"), soft_wrap=True)
