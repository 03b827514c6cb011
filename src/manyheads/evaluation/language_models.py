"""Evaluation of models that answer by tokens.

Of a seq2seq model: how often its text is exactly right, and where it errs. Of a masked language model: how often it
predicts a hidden token, and its perplexity; the tokens are those that training hides for its validation, so the figures
are those of the best epoch.

P hidden tokens . V vocabulary
"""

import csv
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from manyheads.config import GenerateConfig
from manyheads.config.fields import to_plain
from manyheads.data.batches import ANSWER_TOKENS, Planned, gather, held_out
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import same_text
from manyheads.evaluation.evaluation import NETWORK, Evaluation, Setup, figures_of, write_answers_csv
from manyheads.evaluation.metrics import Interval, mean_interval, ratio_interval, share_interval
from manyheads.evaluation.report import Example, Section, Table
from manyheads.inference.language_models import Followed, Guessed, MaskedLMPredictor, Seq2SeqPredictor
from manyheads.runs.atomic import replace_file

CHUNK = 1024  # rows answered together
TOKENS = 8192  # most of a batch
COPY, NEAREST = "the text itself", "target of the nearest training text"
COMMON = "how often tokens occur"
MASKED = ("masked_accuracy", "perplexity", "loss")  # figures of a masked language model
MOST_TEXTS = 20_000  # of training, among which the nearest is looked for, or in which tokens are counted
MOST_CELLS = 2**24  # similarities held at a time
MOST_WRONG, MOST_RIGHT = 20, 5  # rows of a report


@dataclass(slots=True)
class Generated:
    """Rows in their own order, each with its answer and how well its target was followed token by token."""

    rows: Rows
    answers: list[str]
    followed: list[Followed]

    @property
    def right(self) -> list[bool]:
        """Whether an answer is the target: in Unicode's composed form, but for white space at both ends."""
        return [same_text(answer, target) for answer, target in zip(self.answers, targets(self.rows), strict=True)]


@dataclass(slots=True)
class Seq2SeqScores:
    """Figures of one split. `token_accuracy` is the share of target tokens that are predicted, and `loss` the mean over
    rows of their cross-entropy in nats, each with all tokens before it given."""

    exact_match: Interval
    token_accuracy: Interval
    loss: Interval
    n_rows: int


def evaluate_texts(model: Seq2SeqPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """The model, the text as it is, and the target of the most similar training text where those are known.

    Raises:
        ValueError: there are no rows.
    """
    found = generate(model, rows, setup.generate, tokens=setup.tokens, progress=setup.progress)
    scores = score_texts(found, **setup.draws)
    baselines = text_baselines(setup.train, rows) if setup.compare else {}
    return Evaluation(
        title="A model that answers texts by texts, and what it is worth",
        size=f"{scores.n_rows:,} rows",
        scores={**asdict(scores), "generate": to_plain(setup.generate)},
        members={NETWORK: figures_of(scores, "exact_match", "token_accuracy", "loss")},
        baselines={name: {"exact_match": figure} for name, figure in baselines.items()},
        verdict=verdict_of_texts(scores, baselines),
        tiles={
            "exact match": scores.exact_match,
            "token accuracy": scores.token_accuracy,
            "loss of a token": scores.loss,
        },
        comparison=beside_baselines(scores, baselines),
        details=lambda: [*examples(found, right=False), *examples(found, right=True)],
        write_csv=lambda path: write_generated_csv(path, found),
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


def score_texts(found: Generated, **draws: Any) -> Seq2SeqScores:
    """Figures with their 95 % intervals, all on the same resamples of whole rows.

    Raises:
        ValueError: there are no rows.
    """
    followed = found.followed
    right, all_tokens = [one.n_right for one in followed], [one.n_tokens for one in followed]
    return Seq2SeqScores(
        exact_match=share_interval(sum(found.right), len(followed)),
        token_accuracy=ratio_interval(right, all_tokens, share=True, **draws),
        loss=mean_interval([one.loss for one in followed], **draws),
        n_rows=len(followed),
    )


def text_baselines(train: Rows | None, rows: Rows) -> dict[str, Interval]:
    """Exact match of what needs no training of ours."""
    answers = {COPY: rows.texts}
    if train is not None:
        answers[NEAREST] = nearest_targets(train, rows)
    return {
        name: share_interval(sum(map(same_text, texts, targets(rows))), len(rows)) for name, texts in answers.items()
    }


def nearest_targets(train: Rows, rows: Rows) -> list[str]:
    """The target of the most similar training text, by TF-IDF of its letters in twos to fours; of equals the first.

    Of a large training split the first `MOST_TEXTS` rows are known.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4))
    known = letters.fit_transform(train.texts[:MOST_TEXTS]).T.tocsc()
    asked = letters.transform(rows.texts).tocsr()  # pyright: ignore[reportAttributeAccessIssue]
    step = max(1, MOST_CELLS // known.shape[1])
    nearest = [(asked[at : at + step] @ known).toarray().argmax(1) for at in range(0, len(rows), step)]
    return [targets(train)[row] for some in nearest for row in some.tolist()]


def targets(rows: Rows) -> list[str]:
    assert rows.targets is not None, "read_splits and read_split give them with task=seq2seq"
    return rows.targets


def verdict_of_texts(scores: Seq2SeqScores, baselines: dict[str, Interval]) -> str:
    """One sentence a hurried reader can repeat."""
    match = scores.exact_match
    said = (
        f"{match.value:.1%} of {scores.n_rows:,} texts are answered with exactly the target "
        f"(95 % interval {match.low:.1%} to {match.high:.1%})"
    )
    rival = max(baselines, key=lambda name: baselines[name].value, default=None)
    if rival is None:
        return f"{said}."
    other = baselines[rival]
    apart = match.low > other.high or match.high < other.low
    return f"{said}; {rival} is right in {other.value:.1%}{'' if apart else ', and the two intervals overlap'}."


def beside_baselines(scores: Seq2SeqScores, baselines: dict[str, Interval]) -> list[Section]:
    """The model and what needs no training, best first; nothing without baselines."""
    if not baselines:
        return []
    ranked = sorted({"this model": scores.exact_match, **baselines}.items(), key=lambda one: -one[1].value)
    rows: list[list[Any]] = [[name, figure, figure] for name, figure in ranked]
    own = next(at for at, (name, _) in enumerate(ranked) if name == "this model")
    table = Table(["answer", "exact match", "from 0 to 1"], rows, "wib", own)
    return [Section("Beside answers without a model, on the same rows", table)]


def examples(found: Generated, *, right: bool) -> list[Section]:
    """Some rows with text and answer, and the target where the answer is wrong."""
    which = [at for at, one in enumerate(found.right) if one == right]
    if not which:
        return []
    rows, most = found.rows, MOST_RIGHT if right else MOST_WRONG
    shown = [
        Example(
            f"row {rows.numbers[at]:,}",
            [rows.texts[at], found.answers[at], *([] if right else [targets(rows)[at]])],
            wrong=-1 if right else 1,
        )
        for at in which[:most]
    ]
    more = f" (the first {most} of {len(which):,})" if len(which) > most else ""
    return [Section(f"{'Right' if right else 'Wrong'} answers{more}", examples=shown, long=True)]


def write_generated_csv(path: Path, found: Generated) -> None:
    """The columns of `write_answers_csv`, then target, prediction, and whether that is right."""
    answers = map(list, zip(targets(found.rows), found.answers, map(int, found.right), strict=True))
    write_answers_csv(path, found.rows, ["target", "prediction", "right"], answers)


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """Figures of one split. `loss` is the mean cross-entropy of a hidden token in nats, `perplexity` e to its power:
    among how many equally likely ones the model is left to choose."""

    masked_accuracy: Interval
    perplexity: Interval
    loss: Interval
    n_pieces: int
    n_hidden: int


def evaluate_masked(model: MaskedLMPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """The model, and how often tokens occur in the training rows, or in these rows where those are unknown.

    Raises:
        ValueError: no token is hidden.
    """
    found = model.guess(held_out(model.pieces(rows.texts, rows.pairs)), tokens=setup.tokens or ANSWER_TOKENS)
    scores = score_masked(found, **setup.draws)
    common = score_masked(by_frequency(model, setup.train or rows, rows), **setup.draws) if setup.compare else None
    tiles = {"masked accuracy": scores.masked_accuracy, "perplexity": scores.perplexity}
    return Evaluation(
        title="A masked language model and what it is worth",
        size=f"{scores.n_pieces:,} pieces of text, {scores.n_hidden:,} hidden tokens",
        scores=asdict(scores),
        members={NETWORK: figures_of(scores, *MASKED)},
        baselines={COMMON: figures_of(common, *MASKED)} if common else {},
        verdict=verdict_of_guesses(scores, common),
        tiles=tiles | {"loss of a token": scores.loss},
        comparison=beside_counting(scores, common) if common else [],
        write_csv=lambda path: write_pieces_csv(path, found),
    )


def score_masked(found: list[Guessed], **draws: Any) -> MaskedScores:
    """Figures with their 95 % intervals, all on the same resamples of whole pieces of text.

    Raises:
        ValueError: no token is hidden.
    """
    hidden = [one for one in found if one.n_hidden]
    if not hidden:
        raise ValueError("the texts are too few and short to hide a word in them and judge by it: give more of them")
    n_hidden = [one.n_hidden for one in hidden]
    loss = ratio_interval([one.loss for one in hidden], n_hidden, **draws)
    return MaskedScores(
        masked_accuracy=ratio_interval([one.n_right for one in hidden], n_hidden, share=True, **draws),
        perplexity=Interval(*(math.exp(min(one, 700.0)) for one in (loss.value, loss.low, loss.high))),
        loss=loss,
        n_pieces=len(found),
        n_hidden=sum(n_hidden),
    )


def by_frequency(model: MaskedLMPredictor, train: Rows, rows: Rows) -> list[Guessed]:
    """The same tokens predicted by how often each occurs in train, whatever stands around them."""
    some = train.pick(list(range(min(len(train), MOST_TEXTS))))
    known, asked = model.pieces(some.texts, some.pairs), held_out(model.pieces(rows.texts, rows.pairs))
    special_V = model.vocabulary.special_V
    counts_V = torch.bincount(known.ids_N.long(), minlength=special_V.numel()).double() + 1
    counts_V[special_V] = 0
    losses_V, likeliest, found = -(counts_V / counts_V.sum()).log(), int(counts_V.argmax()), []
    for row in range(len(asked)):
        words_P = model.hidden(gather(asked, Planned(torch.tensor([row]), 1.0))).words_P
        found.append(Guessed(words_P.numel(), int((words_P == likeliest).sum()), float(losses_V[words_P].sum())))
    return found


def verdict_of_guesses(scores: MaskedScores, common: MaskedScores | None) -> str:
    """One sentence a hurried reader can repeat."""
    accuracy = scores.masked_accuracy
    said = (
        f"{accuracy.value:.1%} of {scores.n_hidden:,} hidden tokens are predicted correctly (95 % interval "
        f"{accuracy.low:.1%} to {accuracy.high:.1%}), at a perplexity of {scores.perplexity.value:.1f}"
    )
    if common is None:
        return f"{said}."
    return f"{said}; by {COMMON} alone {common.masked_accuracy.value:.1%}, at {common.perplexity.value:.0f}."


def beside_counting(scores: MaskedScores, common: MaskedScores) -> list[Section]:
    """The model and the baseline."""
    rows = [
        [name, one.masked_accuracy, one.masked_accuracy, one.perplexity]
        for name, one in (("this model", scores), (COMMON, common))
    ]
    table = Table(["model", "masked accuracy", "from 0 to 1", "perplexity"], rows, "wibi", own=0)
    return [Section("Beside counting, on the same hidden tokens", table)]


def write_pieces_csv(path: Path, found: list[Guessed]) -> None:
    """One line a piece of text: how many tokens were hidden, how many of them predicted, and their mean loss. The file
    appears whole or not at all."""
    with replace_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(["piece", "hidden", "right", "loss"])
        for number, one in enumerate(found, start=1):
            write([number, one.n_hidden, one.n_right, f"{one.loss / one.n_hidden:.6f}" if one.n_hidden else ""])
