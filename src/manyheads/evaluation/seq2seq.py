"""A model that answers by texts, judged.

The answers of a model that answers texts by texts, and what they are worth.

n rows

What report.html says of a model that answers by texts: how often it is right, beside what, and where it errs.

What an evaluation found of a model that answers by texts: judged, written to a folder, shown on the screen.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig, GenerateConfig
from manyheads.config.fields import to_plain
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import same_text
from manyheads.evaluation.answers import write_answers_csv
from manyheads.evaluation.evaluate import EvaluationData
from manyheads.evaluation.page import Html, excerpt, interval_bar, section, shown, table, two_lines
from manyheads.evaluation.report import Sections, tile_row
from manyheads.evaluation.results import Found, interval_cells, publish
from manyheads.evaluation.scores import Interval, mean_interval, ratio_interval, share_interval
from manyheads.inference.seq2seq import Followed, Seq2SeqPredictor
from manyheads.terminal import progress_bar

CHUNK = 1024  # rows answered together
COPY, NEAREST = "the text itself", "target of the nearest training text"
MOST_TRAIN = 20_000  # rows among which the nearest is looked for
MOST_CELLS = 2**24  # likenesses held at a time


@dataclass(slots=True)
class Translations:
    """Rows in their own order, each with its answer and how well its target was followed token by token."""

    rows: Rows
    answers: list[str]
    followed: list[Followed]

    @property
    def right(self) -> list[bool]:
        """Whether an answer is the target: in Unicode's composed form, but for white space at both ends."""
        return [same_text(answer, target) for answer, target in zip(self.answers, targets(self.rows), strict=True)]


@dataclass(slots=True)
class TranslationScores:
    """Figures of one split. `token_accuracy` is the share of target tokens, and `loss` the mean over rows of their
    cross-entropy in nats, each told with all tokens before it given."""

    exact_match: Interval
    token_accuracy: Interval
    loss: Interval
    n_rows: int

    def by_name(self) -> dict[str, Interval]:
        return {"exact_match": self.exact_match, "token_accuracy": self.token_accuracy, "loss": self.loss}


def judge_texts(
    translator: Seq2SeqPredictor,
    rows: Rows,
    generate: GenerateConfig,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Translations:
    """Answer every row; `progress` hears how many more rows are done."""
    found = Translations(rows, [], [])
    for start in range(0, len(rows), CHUNK):
        texts, wanted = rows.texts[start : start + CHUNK], targets(rows)[start : start + CHUNK]
        found.answers += translator.generate(texts, **asdict(generate), tokens=tokens)
        found.followed += translator.follow(texts, wanted, tokens=tokens)
        progress(len(texts))
    return found


def score_texts(translations: Translations, *, n_resamples: int = 1000, seed: int = 0) -> TranslationScores:
    """Figures with their 95 % intervals, all on the same resamples of whole rows.

    Raises:
        ValueError: there are no rows.
    """
    followed = translations.followed
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    right, told = [one.n_right for one in followed], [one.n_tokens for one in followed]
    return TranslationScores(
        exact_match=share_interval(sum(translations.right), len(followed)),
        token_accuracy=ratio_interval(right, told, share=True, **draws),
        loss=mean_interval([one.loss for one in followed], **draws),
        n_rows=len(followed),
    )


def text_baselines(train: Rows | None, rows: Rows) -> dict[str, Interval]:
    """Exact match of what needs no training of ours: the text as it is, and the target of the most alike text."""
    answers = {COPY: rows.texts}
    if train is not None:
        answers[NEAREST] = nearest_targets(train, rows)
    return {
        name: share_interval(sum(map(same_text, texts, targets(rows))), len(rows)) for name, texts in answers.items()
    }


def nearest_targets(train: Rows, rows: Rows) -> list[str]:
    """The target of the training text most alike, by TF-IDF of its letters in twos to fours; of equals the first.

    Of a large training split the first `MOST_TRAIN` rows are known.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4))
    known = letters.fit_transform(train.texts[:MOST_TRAIN]).T.tocsc()
    asked = letters.transform(rows.texts).tocsr()  # pyright: ignore[reportAttributeAccessIssue]
    step = max(1, MOST_CELLS // known.shape[1])
    nearest = [(asked[at : at + step] @ known).toarray().argmax(1) for at in range(0, len(rows), step)]
    return [targets(train)[row] for some in nearest for row in some.tolist()]


def write_translations_csv(path: Path, translations: Translations) -> None:
    """One line a row, as of `write_answers_csv`: target, prediction, and whether that is right."""
    said = [
        [target, answer, int(right)]
        for target, answer, right in zip(
            targets(translations.rows), translations.answers, translations.right, strict=True
        )
    ]
    write_answers_csv(path, translations.rows, ["target", "prediction", "right"], said)


def targets(rows: Rows) -> list[str]:
    assert rows.targets is not None, "read_splits and read_split give them with task=seq2seq"
    return rows.targets


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


def evaluate_texts(
    task: EvaluationData, translator: Seq2SeqPredictor, config: EvaluateConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Judge the rows of `task`; write metrics.json, predictions.csv, pictures and report.html into `folder`.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    with progress_bar(len(task.rows)) as progress:
        found = judge_texts(translator, task.rows, config.generate, tokens=config.batch.tokens, progress=progress)
    draws: dict[str, Any] = {"n_resamples": config.bootstrap, "seed": config.seed}
    scores = score_texts(found, **draws)
    baselines = text_baselines(task.splits.train if task.splits else None, task.rows)
    shown = {name: {"exact_match": asdict(figure)} for name, figure in baselines.items()}
    figures = scores.by_name() | {f"exact match of {name}": figure for name, figure in baselines.items()}
    judged = Found(
        figures={**asdict(scores), "generate": to_plain(config.generate), "baselines": shown},
        size=f"{scores.n_rows:,} rows",
        sections=translation_sections(scores, found, baselines),
        write_csv=lambda path: write_translations_csv(path, found),
        columns=["value", "95 % interval"],
        rows=[[name.replace("_", " "), *interval_cells(figure)] for name, figure in figures.items()],
    )
    return publish(judged, task, config, translator.model, folder, home)
