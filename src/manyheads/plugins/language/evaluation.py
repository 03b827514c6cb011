"""Evaluation of models that answer by tokens.

A seq2seq model: how often its text is exactly right, and where it errs. A masked language model: how often it predicts
a hidden token, and its perplexity. The tokens are those that training hides in validation: the figures are those of the
best epoch.

P hidden tokens . V vocabulary
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from manyheads.config.conversion import to_plain
from manyheads.data.batches import ANSWER_TOKENS, Planned, gather
from manyheads.data.rows import Rows
from manyheads.errors import UserError
from manyheads.evaluation.evaluation import Evaluation, Setup, compared, write_answers
from manyheads.evaluation.intervals import mean_interval, ratio_interval, share_interval
from manyheads.evaluation.report import Example, ReportSection
from manyheads.inference.answers import replaced_answers
from manyheads.plugins.language.config import GenerateConfig
from manyheads.plugins.language.pieces import held_out
from manyheads.plugins.language.predictors import Followed, Guessed, MaskedLMPredictor, Seq2SeqPredictor
from manyheads.plugins.language.spelling import same_text
from manyheads.runs.summary import NETWORK, Figures, Interval, figures_to_plain

CHUNK = 1024  # rows answered together
TOKENS = 8192  # most of a batch
COPY, NEAREST = "the text itself", "target of the nearest training text"
COMMON = "how often tokens occur"
MOST_TEXTS = 20_000  # of training, among which the nearest is looked for, or in which tokens are counted
MOST_CELLS = 2**24  # similarities held at a time
MOST_WRONG, MOST_RIGHT = 20, 5  # rows of a report


@dataclass(slots=True)
class Generated:
    """Rows in their own order, each with its answer and how well its target is predicted token by token."""

    rows: Rows
    answers: list[str]
    followed: list[Followed]

    @property
    def right(self) -> list[bool]:
        """Whether each answer is the target, compared in Unicode's composed form without white space at both ends."""
        return [same_text(answer, target) for answer, target in zip(self.answers, targets(self.rows), strict=True)]


def evaluate_texts(model: Seq2SeqPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """Judge the model, compared with the text itself, and with the target of the most similar training text if those
    are known.

    Raises:
        UserError: there are no rows.
    """
    asked = GenerateConfig() if setup.config is None else setup.config.generate
    found = generate(model, rows, asked, tokens=setup.tokens, progress=setup.progress)
    figures = score_texts(found)
    match, token_accuracy, loss = figures.values()
    baselines = text_baselines(setup.train, rows) if setup.compare else {}
    models = {"this model": figures, **baselines}
    return Evaluation(
        title="Evaluation of a text-to-text model",
        size=f"{len(rows):,} rows",
        scores={**figures_to_plain(figures), "n_rows": len(rows), "generate": to_plain(asked)},
        members={NETWORK: figures},
        baselines=baselines,
        verdict=verdict_of_texts(match, len(rows), baselines),
        tiles={"exact match": match, "token accuracy": token_accuracy, "loss of a token": loss},
        comparison=compared(
            "Compared with answers without a model, on the same rows", models, "exact_match", column="answer"
        ),
        mistakes=lambda: examples(found, right=False),
        details=lambda: examples(found, right=True),
        write=lambda path: write_generated(path, found),
    )


def generate(
    model: Seq2SeqPredictor,
    rows: Rows,
    config: GenerateConfig,
    *,
    tokens: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Generated:
    """Answer every row; `progress` is called with the number of further rows that are answered."""
    found = Generated(rows, [], [])
    for start in range(0, len(rows), CHUNK):
        texts, wanted = rows.texts[start : start + CHUNK], targets(rows)[start : start + CHUNK]
        found.answers += model.generate(texts, **asdict(config), tokens=tokens or TOKENS)
        found.followed += model.follow(texts, wanted, tokens=tokens or TOKENS)
        progress(len(texts))
    return found


def score_texts(found: Generated) -> Figures:
    """The share of answers that are the target; the share of target tokens that are predicted, and the mean over rows
    of their cross-entropy in nats, each with all tokens before it given.

    Raises:
        UserError: there are no rows.
    """
    followed = found.followed
    right, all_tokens = [one.n_right for one in followed], [one.n_tokens for one in followed]
    return {
        "exact_match": share_interval(sum(found.right), len(followed)),
        "token_accuracy": ratio_interval(right, all_tokens, share=True),
        "loss": mean_interval([one.loss for one in followed], skewed=True),
    }


def text_baselines(train: Rows | None, rows: Rows) -> dict[str, Figures]:
    """The exact match of answers that need no model."""
    answers = {COPY: rows.texts}
    if train is not None:
        answers[NEAREST] = nearest_targets(train, rows)
    figures: dict[str, Figures] = {}
    for name, texts in answers.items():
        n_right = sum(map(same_text, texts, targets(rows)))
        figures[name] = {"exact_match": share_interval(n_right, len(rows))}
    return figures


def nearest_targets(train: Rows, rows: Rows) -> list[str]:
    """The target of the most similar training text, by TF-IDF of its letters in twos to fours; of equals the first.

    Of a large training split the first `MOST_TEXTS` rows are known.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4))
    known = letters.fit_transform(train.texts[:MOST_TEXTS]).T.tocsc()
    asked = letters.transform(rows.texts).tocsr()  # pyright: ignore[reportAttributeAccessIssue]
    step = max(1, MOST_CELLS // known.shape[1])
    found: list[str] = []
    for start in range(0, len(rows), step):
        nearest_n = (asked[start : start + step] @ known).toarray().argmax(1)
        found += [targets(train)[row] for row in nearest_n.tolist()]
    return found


def targets(rows: Rows) -> list[str]:
    assert rows.targets is not None, "read_splits and read_split give them with task=seq2seq"
    return rows.targets


def verdict_of_texts(match: Interval, n_rows: int, baselines: dict[str, Figures]) -> str:
    """One sentence a hurried reader can repeat."""
    said = (
        f"{match.value:.1%} of {n_rows:,} texts are answered with exactly the target "
        f"(95 % interval {match.low:.1%} to {match.high:.1%})"
    )
    if not baselines:
        return f"{said}."
    rival = max(baselines, key=lambda name: baselines[name]["exact_match"].value)
    other = baselines[rival]["exact_match"]
    said = f"{said}; {rival} is right in {other.value:.1%}"
    if match.low > other.high or match.high < other.low:
        return f"{said}."
    return f"{said}, and the two intervals overlap."


def examples(found: Generated, *, right: bool) -> list[ReportSection]:
    """Some rows with text and answer, and the target where the answer is wrong."""
    which = [at for at, is_right in enumerate(found.right) if is_right == right]
    if not which:
        return []
    rows, most = found.rows, MOST_RIGHT if right else MOST_WRONG
    shown = []
    for at in which[:most]:
        cells = [rows.texts[at], found.answers[at]]
        if not right:
            cells.append(targets(rows)[at])
        shown.append(Example(f"row {rows.numbers[at]:,}", cells, wrong=-1 if right else 1))
    title = "Right answers" if right else "Wrong answers"
    if len(which) > most:
        title += f" (the first {most} of {len(which):,})"
    return [ReportSection(title, examples=shown, long=True)]


def write_generated(path: Path, found: Generated) -> None:
    """The columns of `write_answers`, then target, prediction, and whether that is right."""
    answers = []
    for target, answer, is_right in zip(targets(found.rows), found.answers, found.right, strict=True):
        answers.append([target, answer, int(is_right)])
    write_answers(path, found.rows, ["target", "prediction", "right"], answers)


def evaluate_masked(model: MaskedLMPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """Judge the model, compared with predictions by how often tokens occur in the training rows, or in these rows where
    those are unknown.

    Raises:
        UserError: no token is hidden.
    """
    found = model.guess(held_out(model.pieces(rows.texts, rows.pairs)), tokens=setup.tokens or ANSWER_TOKENS)
    figures, n_hidden = score_masked(found), sum(one.n_hidden for one in found)
    accuracy, perplexity, loss = figures.values()
    common = by_frequency(model, setup.train or rows, rows) if setup.compare else []
    baselines = {COMMON: score_masked(common)} if common else {}
    title, shown = "Compared with counting, on the same hidden tokens", ("masked_accuracy", "perplexity")
    return Evaluation(
        title="Evaluation of a masked language model",
        size=f"{len(found):,} pieces of text, {n_hidden:,} hidden tokens",
        scores={**figures_to_plain(figures), "n_pieces": len(found), "n_hidden": n_hidden},
        members={NETWORK: figures},
        baselines=baselines,
        verdict=verdict_of_guesses(figures, n_hidden, baselines.get(COMMON)),
        tiles={"masked accuracy": accuracy, "perplexity": perplexity, "loss of a token": loss},
        comparison=compared(title, {"this model": figures, **baselines}, *shown, ranked=False),
        write=lambda path: write_pieces(path, found),
    )


def score_masked(found: list[Guessed]) -> Figures:
    """The share of hidden tokens that are predicted, their mean cross-entropy in nats, and the perplexity: e to the
    power of that, the number of equally likely tokens that are as hard to choose from.

    Raises:
        UserError: no token is hidden.
    """
    hidden = [piece for piece in found if piece.n_hidden]
    if not hidden:
        raise UserError("the texts are too few and short to hide a word in them and judge by it: give more of them")
    n_hidden = [piece.n_hidden for piece in hidden]
    loss = ratio_interval([piece.loss for piece in hidden], n_hidden)
    perplexity = [math.exp(min(bound, 700.0)) for bound in (loss.value, loss.low, loss.high)]  # e^700 is near inf
    return {
        "masked_accuracy": ratio_interval([piece.n_right for piece in hidden], n_hidden, share=True),
        "perplexity": Interval(*perplexity),
        "loss": loss,
    }


def by_frequency(model: MaskedLMPredictor, train: Rows, rows: Rows) -> list[Guessed]:
    """The same tokens predicted by how often each occurs in train, without their context."""
    some = train.pick(list(range(min(len(train), MOST_TEXTS))))
    known, asked = model.pieces(some.texts, some.pairs), held_out(model.pieces(rows.texts, rows.pairs))
    special_V = model.vocabulary.special_V
    counts_V = torch.bincount(known.ids_N.long(), minlength=special_V.numel()).double() + 1
    counts_V[special_V] = 0
    losses_V, likeliest = -(counts_V / counts_V.sum()).log(), int(counts_V.argmax())
    found = []
    for row in range(len(asked)):
        words_P = model.hidden(gather(asked, Planned(torch.tensor([row]), 1.0))).words_P
        found.append(Guessed(words_P.numel(), int((words_P == likeliest).sum()), float(losses_V[words_P].sum())))
    return found


def verdict_of_guesses(figures: Figures, n_hidden: int, common: Figures | None) -> str:
    """One sentence a hurried reader can repeat."""
    accuracy = figures["masked_accuracy"]
    said = (
        f"{accuracy.value:.1%} of {n_hidden:,} hidden tokens are predicted correctly (95 % interval "
        f"{accuracy.low:.1%} to {accuracy.high:.1%}), at a perplexity of {figures['perplexity'].value:.1f}"
    )
    if common is None:
        return f"{said}."
    of = common["masked_accuracy"].value, common["perplexity"].value
    return f"{said}; by {COMMON} alone {of[0]:.1%}, at {of[1]:.0f}."


def write_pieces(path: Path, found: list[Guessed]) -> None:
    """One line a piece of text: how many tokens were hidden, how many of them were predicted, and their mean loss. The
    file appears whole or not at all."""
    lines: list[dict[str, Any]] = []
    for number, piece in enumerate(found, start=1):
        loss = round(piece.loss / piece.n_hidden, 6) if piece.n_hidden else None
        lines.append({"piece": number, "hidden": piece.n_hidden, "right": piece.n_right, "loss": loss})
    with replaced_answers(path) as file:
        file.write([{}] * len(lines), lines)
