"""What a search leaves behind beside its runs: report.html, trials.csv and trials.png."""

from collections.abc import Sequence
from pathlib import Path

from manyheads.config import TuneConfig
from manyheads.judge.markup import Html, picture, section, shown, table
from manyheads.judge.report import installed_versions, page
from manyheads.judge.sections import named_values
from manyheads.sheet import Sheet
from manyheads.tune.outcome import Outcome
from manyheads.tune.picture import draw_search
from manyheads.tune.ranking import Ranked
from manyheads.tune.sheets import sheet_of, words, write_csv
from manyheads.tune.sheets import shown as shown_value
from manyheads.whole import replace_file

FILES = ("report.html", "trials.csv", "trials.png")


def write_results(
    folder: Path, config: TuneConfig, ranked: Sequence[Ranked], outcomes: Sequence[Outcome], command: str
) -> list[str]:
    """Write what there is to show, each file whole.

    Returns:
        The names of the files.
    """
    write_csv(folder / "trials.csv", config, outcomes)
    drawn = draw_search(config, ranked)
    if drawn is not None:
        with replace_file(folder / "trials.png") as part:
            part.write_bytes(drawn)
    with replace_file(folder / "report.html") as part:
        part.write_text(render(config, ranked, drawn, command), encoding="utf-8", errors="replace")
    return [name for name in FILES if drawn is not None or name != "trials.png"]


def render(config: TuneConfig, ranked: Sequence[Ranked], drawn: bytes | None, command: str) -> str:
    """The page as a string."""
    sheet = sheet_of(config, ranked)
    spaces = {name: given if isinstance(given, str) else ", ".join(map(shown_value, given))
              for name, given in config.search.items()}  # fmt: skip
    metric = words(config.checkpoint.metric)
    parts: list[Html] = [_table(sheet)]
    if drawn is not None:
        caption = f"validation {metric} of each setting; red: the best so far; grey: single seeds"
        parts.append(section("Trials", f'<div class="pictures">{picture(drawn, caption, full=True)}</div>'))
    if command:
        wrapped = f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{shown(command)}</pre>'
        parts.append(section("Train the best setting, and judge it on the test split", wrapped))
    rules = {"method": config.chosen.name, "prune": config.prune.name, "seeds": config.seeds, "minutes": config.minutes}
    parts += [*named_values("Searched", dict(spaces)), *named_values("How", dict(rules))]
    parts += named_values("Versions", dict(installed_versions()))
    return page("A search for settings", f"{len(ranked)} settings, {config.seeds} run(s) each", parts)


def _table(sheet: Sheet) -> Html:
    kinds = "n" * len(sheet.columns)
    kinds = kinds[:-1] + "w" if sheet.columns[-1] == "remarks" else kinds
    notes = "".join(f"<p class=soft>{shown(note)}</p>" for note in sheet.notes)
    return section(sheet.title, table(sheet.columns, sheet.lines, kinds, own=0), notes, long=True)
