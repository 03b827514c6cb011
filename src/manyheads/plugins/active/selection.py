"""The work of `next`: repeats and outliers are set aside, the model is asked, and the chosen texts are written.

n texts . C classes or labels . D width of the vectors
"""

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyheads.config.sentences import install_extra, list_names
from manyheads.data.class_names import MULTI_LABEL, join_names
from manyheads.data.ids.terms import fold_case
from manyheads.data.rows import Rows
from manyheads.data.tokens import encode
from manyheads.errors import UserError
from manyheads.inference.answers import opened_answers
from manyheads.inference.chunks import plain_cell
from manyheads.inference.classifier import (
    LabelsPrediction,
    TextClassifier,
    answer_in_chunks,
    likeliest_of,
    read_vectors,
)
from manyheads.inference.folder import load, place
from manyheads.inference.format import ModelFolder, enclosing_run
from manyheads.linear.near_repeats import both_texts, near_repeats
from manyheads.linear.thresholds import probabilities_of
from manyheads.plugins.active.choosing import closeness, divergence, label_closeness, plus_plus, strange, unit
from manyheads.plugins.active.config import By, NextConfig
from manyheads.terminal import progress_bar, say, typed_path

Answers = dict[str, torch.Tensor]
ASIDE = {"known": "in the data of the run", "repeated": "repeating another"}
ASIDE |= {"nearly": "nearly repeating another or one of the run", "strange": "of other words than train"}
MOST_GUESSED = 5  # classes that are named on the screen


def select(config: NextConfig, folder: ModelFolder, rows: Rows, known: list[Rows], notes: list[str]) -> dict[str, int]:
    """See `choose_next`. `known` are the rows of the run, first those it has learnt from."""
    classifier = place(load(folder, TextClassifier), config.hardware, fast=True)
    rows, counts = set_aside(rows, known, config)
    train = [some.readable().sample(config.sample, config.seed) for some in known[:1]]
    for some in train:
        counts_V = np.bincount(all_tokens(classifier, some)[0], minlength=folder.settings.vocab_size)
        is_strange_n = strange(*all_tokens(classifier, rows), counts_V)
        counts["strange"], rows = int(is_strange_n.sum()), rows.pick(np.flatnonzero(~is_strange_n))
    answers = ask(classifier, rows, config)
    chosen, reasons = choose(config, classifier, enclosing_run(folder.path), rows, answers, train)
    counts |= {"considered": len(rows), "chosen": len(chosen)}
    columns = folder.settings.columns
    labels = columns.label_columns or [columns.votes or columns.label]
    if classifier.multi and labels == ["label"]:
        labels = [MULTI_LABEL]
    answered = answered_rows(classifier, rows.pick(np.array(chosen)), answers["logits"][chosen], reasons, labels)
    with opened_answers(config.output) as file:
        file.write(*answered)
    aside = [f"{counts[name]:,} {what}" for name, what in ASIDE.items() if counts.get(name)]
    if aside:
        notes.append(f"set aside of {counts['read']:,} texts: {', '.join(aside)}")
    if "nearly" not in counts:
        notes.append(f"texts that nearly repeat another are not looked for: {install_extra('audit')}")
    guesses = Counter(answer["guess"] or "no label" for answer in answered[1]).most_common(MOST_GUESSED)
    names = ", ".join(f"{name}: {n:,}" for name, n in guesses)
    notes.append(f"{len(chosen):,} of {len(rows):,} texts are chosen by {config.by.name}; the model answers {names}")
    notes.append(
        f"fill in {list_names(labels)}, and add the rows to train alone: rows to test on have to be drawn at random"
    )
    if config.output != "-":
        say(*notes, typed_path(Path(config.output)))
    return counts


def set_aside(rows: Rows, known: list[Rows], config: NextConfig) -> tuple[Rows, dict[str, int]]:
    """At most `sample` texts, of which none equals another or one of the run, nor nearly does; and how many were set
    aside. Case and white space do not count. A UserError where no text is left."""

    def plain(some: Rows) -> Iterator[str]:
        return (" ".join(fold_case(text).split()) for text in both_texts(some))

    known = [some.readable() for some in known]
    of_run = {text for some in known for text in plain(some)}
    seen, kept, counts = set(of_run), list[int](), {"read": len(rows), "known": 0, "repeated": 0}
    for at, text in enumerate(plain(rows)):
        if text in seen:
            counts["known" if text in of_run else "repeated"] += 1
        else:
            kept.append(at)
            seen.add(text)
    left = rows.pick(np.array(kept, dtype=np.int64)).sample(config.sample, config.seed)
    if find_spec("datasketch") is not None:
        samples = {str(at): some.sample(config.sample, config.seed) for at, some in enumerate(known)}
        nearly = [one.at for one in near_repeats(samples | {"": left})[""]]
        counts["nearly"], left = len(nearly), left.pick(np.delete(np.arange(len(left)), nearly))
    if not len(left):
        raise UserError(f"{rows.source} has no text that is new to run={config.run}: name others by data.path=")
    return left, counts


def all_tokens(classifier: TextClassifier, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all texts, end to end, and where each text begins and ends."""
    pairs = None if rows.pairs is None else list(rows.pairs)
    texts = classifier.as_read(list(rows.texts))
    found = encode(classifier.tokenizer, texts, pairs, None, classifier.max_length, classifier.cutting)
    return found.ids_N.numpy(), found.offsets.numpy()


def ask(classifier: TextClassifier, rows: Rows, config: NextConfig) -> Answers:
    """`logits` of the model, those of its `network` alone `(n, C)`, and the `vectors` that its head reads `(n, D)`."""

    def answers(texts: list[str], pairs: list[str] | None) -> Answers:
        _, network_nC, vectors_nD = read_vectors(classifier, texts, pairs, config.batch.tokens)
        logits_nC = classifier.logits(texts, pairs, network_nC=network_nC)
        return {"logits": logits_nC, "network": network_nC, "vectors": vectors_nD.float()}

    with progress_bar(len(rows)) as progress:
        return answer_in_chunks(answers, rows, len(classifier.labels), progress)


def choose(
    config: NextConfig, classifier: TextClassifier, home: Path | None, rows: Rows, answers: Answers, train: list[Rows]
) -> tuple[list[int], list[str]]:
    """Places of the chosen texts, the most useful first, and why each was chosen. A UserError where network and linear
    model are to disagree, and there is just one of them."""
    probabilities_nC, vectors_nD = classifier.probabilities(answers["logits"]), unit(answers["vectors"].numpy())
    p_nC, limits_C = probabilities_nC.numpy(), None
    if classifier.thresholds is not None:
        limits_C = np.array(classifier.thresholds)

    def named(of_nC: np.ndarray, at: int, n: int = 1) -> str:
        order_C = -of_nC[at] if limits_C is None else -label_closeness(of_nC[at], limits_C)
        return " or ".join(f"{classifier.labels[label]} ({of_nC[at, label]:.2f})" for label in order_C.argsort()[:n])

    def why(at: int) -> str:
        return named(p_nC, at, 2)

    if config.by is By.both:
        errors_nC = (classifier.given(probabilities_nC).double() - probabilities_nC).float().numpy()
        chosen = plus_plus(vectors_nD, config.n, config.seed, errors_nC)
        return chosen, [f"{why(at)}; unlike those before it" for at in chosen]
    if config.by is By.diversity:
        known = [unit(ask(classifier, some, config)["vectors"].numpy()) for some in train]
        chosen = plus_plus(vectors_nD, config.n, config.seed, known=known)
        return chosen, ["unlike those with labels, and those before it"] * len(chosen)
    if config.by is By.random:
        chosen = np.random.default_rng(config.seed).permutation(len(rows))[: config.n].tolist()
        return chosen, ["drawn"] * len(chosen)
    scores_n = closeness(p_nC, limits_C)
    if config.by is By.disagreement:
        baseline = classifier.baseline(home)
        if baseline is None:
            raise UserError(f"by=disagreement needs a linear model, but run={config.run} has none: choose by=both")
        linear_nC = probabilities_of(
            baseline.logits(classifier.as_read(list(rows.texts)), rows.pairs), multi=classifier.multi
        ).numpy()
        network_nC = probabilities_of(answers["network"], multi=classifier.multi).numpy()
        scores_n = divergence(network_nC, linear_nC, multi=classifier.multi)

        def why(at: int) -> str:
            if classifier.multi:
                by_label_C2 = (np.stack([of_nC[at], 1 - of_nC[at]], axis=1) for of_nC in (network_nC, linear_nC))
                label = int(divergence(*by_label_C2, multi=False).argmax())
                of_both = f"network ({network_nC[at, label]:.2f}), linear model ({linear_nC[at, label]:.2f})"
                return f"{classifier.labels[label]}: {of_both}"
            return f"network: {named(network_nC, at)}, linear model: {named(linear_nC, at)}"

    chosen = np.argsort(-scores_n, kind="stable")[: config.n].tolist()
    return chosen, [why(at) for at in chosen]


def answered_rows(
    classifier: TextClassifier, rows: Rows, logits_nC: torch.Tensor, reasons: list[str], labels: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cells of the rows in all columns of their file, and what is added to each: `labels` to be filled in, unless
    the file has these columns, and what the model says."""
    assert rows.unread is not None
    table, answers = rows.unread.table, list[dict[str, Any]]()
    cells = {name: table.column(name) for name in table.names}
    kept = [{name: plain_cell(of[int(at)]) for name, of in cells.items()} for at in rows.unread.at]
    empty = {name: "" for name in labels if name not in cells}
    for one, why in zip(classifier.predictions(logits_nC, rows.texts), reasons, strict=True):
        guess = join_names(one.labels) if isinstance(one, LabelsPrediction) else one.label
        probability = round(one.probabilities[likeliest_of(one)], 4)
        answers.append(empty | {"guess": guess, "probability": probability, "why": why})
    return kept, answers
