"""What report.html says of a model that answers by texts: how often it is right, beside what, and where it errs."""

from collections.abc import Iterator

from manyheads.judge.markup import Html, excerpt, interval_bar, section, shown, table, two_lines
from manyheads.judge.report import Sections
from manyheads.judge.scores import Interval
from manyheads.judge.sections import tile_row
from manyheads.judge.translations import Translations, TranslationScores, targets

MOST_WRONG, MOST_RIGHT = 20, 5


def translation_sections(
    scores: TranslationScores, translations: Translations, baselines: dict[str, Interval]
) -> Sections:
    """Scores and answers of one split, and the exact match of `baselines` on the same rows."""
    figures = {
        "exact match": scores.exact_match,
        "token accuracy": scores.token_accuracy,
        "loss of a token": scores.loss,
    }
    said = Html(f"<p class=verdict>{shown(verdict(scores, baselines))}</p>")
    right = translations.right
    return Sections(
        [tile_row(figures), said, *comparison(scores, baselines)],
        [
            *listed("Wrong answers", translations, [at for at, good in enumerate(right) if not good], MOST_WRONG),
            *listed("Right answers", translations, [at for at, good in enumerate(right) if good], MOST_RIGHT),
        ],
    )


def verdict(scores: TranslationScores, baselines: dict[str, Interval]) -> str:
    """One sentence a hurried reader can repeat."""
    match = scores.exact_match
    said = (
        f"{match.value:.1%} of {scores.n_rows:,} texts are answered with exactly the target "
        f"(95 % interval {match.low:.1%} to {match.high:.1%})"
    )
    rival = max(baselines, key=lambda name: baselines[name].value, default=None)
    if rival is None:
        return f"{said}."
    beside = baselines[rival]
    apart = match.low > beside.high or match.high < beside.low
    return f"{said}; {rival} is right in {beside.value:.1%}{'' if apart else ', and the two intervals overlap'}."


def comparison(scores: TranslationScores, baselines: dict[str, Interval]) -> Iterator[Html]:
    """The model and what needs no training, best first."""
    if not baselines:
        return
    judged = sorted({"this model": scores.exact_match, **baselines}.items(), key=lambda one: -one[1].value)
    rows = [[name, two_lines(figure), interval_bar(figure)] for name, figure in judged]
    own = next(at for at, (name, _) in enumerate(judged) if name == "this model")
    yield section(
        "Beside answers without a model, on the same rows",
        table(["answer", "exact match", "from 0 to 1"], rows, "wnb", own=own),
    )


def listed(title: str, translations: Translations, which: list[int], most: int) -> Iterator[Html]:
    """Some rows with text, answer and, where the answer is wrong, target."""
    if not which:
        return
    rows, right = translations.rows, translations.right
    items = [
        f'<li><div class="head"><span class="soft">row {rows.numbers[at]:,}</span></div>'
        f'<div class="text">{excerpt(rows.texts[at])}</div>'
        f'<div class="text second{"" if right[at] else " wrong"}">{excerpt(translations.answers[at])}</div>'
        + ("" if right[at] else f'<div class="text second">{excerpt(targets(rows)[at])}</div>')
        + "</li>"
        for at in which[:most]
    ]
    more = f" (the first {most} of {len(which):,})" if len(which) > most else ""
    yield section(f"{title}{more}", f'<ol class="mistakes">{"".join(items)}</ol>', long=True)
