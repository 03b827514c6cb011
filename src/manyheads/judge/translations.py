"""The answers of a model that answers texts by texts, and what they are worth.

n rows
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.config import GenerateConfig
from manyheads.data.rows import Rows
from manyheads.data.targets import same_text
from manyheads.judge.predictions import write_answers_csv
from manyheads.judge.scores import Interval, mean_interval, ratio_interval, share_interval
from manyheads.ship.translator import Followed, Translator

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
    translator: Translator,
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
