"""Facts of labelled texts that an audit reports: lengths, scripts, personal data, near repeats, labels that may be
wrong, and what more rows would bring, by a linear model in place of the classifiers to come.

n rows . C classes or labels . S sizes of the training rows . R resamples
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from manyheads.config import Terms
from manyheads.data.rows import Rows
from manyheads.data.splits import assign_folds, stratified_sample
from manyheads.data.table import coded
from manyheads.data.texts import script_of
from manyheads.data.tokenizer import train_tokenizer
from manyheads.data.tokens import load_tokenizer, multi_hot
from manyheads.evaluation.intervals import percentile_interval, resamples, share_interval
from manyheads.evaluation.power_law import error_at, power_law
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import fold_case, linear_logits
from manyheads.plugins.judge.config import AuditConfig
from manyheads.runs.summary import Interval

ALIKE = 0.8  # Jaccard similarity of the runs of letters of two texts
RUN = 5  # letters
CANDIDATES, HASHES = 0.65, 128  # their similarity by a signature of that many hashes: of candidates it is then computed
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the training rows
PERSONAL = {
    "IBAN": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b",
    "payment card": r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)",
    "e-mail address": r"[\w.+-]+(?:@[\w-]+(?:\.[\w-]+)+)?",  # or a run of letters as a whole, which is tried once
    "web address": r"https?://\S+|www\.\w\S*",
    "telephone number": r"(?<![\w.])(?:\+|00)\d{1,3}[ /().-]{0,2}\d(?:[ /().-]{0,2}\d){6,12}(?!\w)"
    r"|(?<![\w-])\(?\d{3}\)?[ -]\d{3}-\d{4}(?![\w-])",
    "IP address": r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in PERSONAL.items()}


def both_texts(rows: Rows) -> Iterator[str]:
    """Of each row its text, or those of a pair as one."""
    yield from rows.texts if rows.pairs is None else map("{} {}".format, rows.texts, rows.pairs)


def token_counts(some: dict[str, Rows], config: AuditConfig) -> dict[str, dict[str, float]]:
    """Tokens of the texts by split: least, quantiles, most; and the share of texts that `data.max_length` cuts."""
    pairs = some["train"].pairs is not None
    path = config.tokenizer.path
    tokenizer = load_tokenizer(path, pairs=pairs) if path else train_tokenizer(some["train"], config.tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    found = {}
    for name, rows in some.items():
        texts = list(rows.texts if rows.pairs is None else zip(rows.texts, rows.pairs, strict=True))
        counts_n = np.array([len(one.ids) for one in tokenizer.encode_batch(texts)])
        least, low, middle, high, most = np.quantile(counts_n, (0, 0.05, 0.5, 0.95, 1)).tolist()
        found[name] = {"least": least, "5 %": low, "median": middle, "95 %": high, "most": most}
        found[name] |= {"cut": float((counts_n > config.data.max_length).mean())}
    return found


def rows_by_script(rows: Rows) -> dict[str, int]:
    """Rows by the script of each."""
    words = {"cjk": "CJK", "none": "no letters"}
    counts = Counter(map(script_of, both_texts(rows)))
    return {words.get(name, name.capitalize()): n for name, n in counts.most_common()}


def personal(rows: Rows) -> dict[str, int]:
    """Rows in which personal data is found, by its kind."""
    counts = Counter(kind for text in both_texts(rows) for kind in masked(text)[1])
    return {kind: counts[kind] for kind in PATTERNS if counts[kind]}


def masked(text: str) -> tuple[str, set[str]]:
    """The text with personal data replaced by what it is, and the kinds of it. Patterns are tried in their order, IBANs
    and cards also by their check digits."""
    kinds = set[str]()

    def said(found: re.Match[str], kind: str) -> str:
        if not CHECKS.get(kind, bool)(found[0]):
            return found[0]
        kinds.add(kind)
        return f"[{kind}]"

    for kind, pattern in PATTERNS.items():
        if kind == "e-mail address" and "@" not in text:
            continue
        text = pattern.sub(partial(said, kind=kind), text)
    return text, kinds


def is_iban(text: str) -> bool:
    """ISO 7064, modulo 97: letters count from 10, the first four characters come last."""
    bare = text.replace(" ", "")
    return 15 <= len(bare) <= 34 and int("".join(str(int(one, 36)) for one in bare[4:] + bare[:4])) % 97 == 1


def is_card(text: str) -> bool:
    """ISO/IEC 7812: every second digit from the right is doubled, its digits added up (Luhn)."""
    digits = [int(one) for one in text if one.isdigit()][::-1]
    doubled = (sum(divmod(2 * one, 10)) for one in digits[1::2])
    return len({*digits}) > 1 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


CHECKS: dict[str, Callable[[str], bool]] = {
    "IBAN": is_iban,
    "payment card": is_card,
    "e-mail address": lambda text: "@" in text,
}


def letter_runs(text: str) -> set[int]:
    """Hashes of its runs of five letters, composed and in lower case; of a shorter text the whole."""
    letters = " ".join(fold_case(text).split())
    return {crc32(letters[at : at + RUN].encode()) for at in range(max(1, len(letters) - RUN + 1))}


def near_repeats(some: dict[str, Rows]) -> dict[str, list[tuple[str, int, str, int, float]]]:
    """By split its rows that nearly repeat an earlier row of it, or one of a split before: the row, the split and row
    that it is like, and their Jaccard similarity. Equal texts are no near repeats.

    MinHash finds candidates (Broder, 1997, "On the resemblance and containment of documents"), whose similarity is
    then computed.
    """
    from datasketch import MinHash, MinHashLSH

    index, texts = MinHashLSH(threshold=CANDIDATES, num_perm=HASHES, weights=(0.1, 0.9)), dict[tuple[str, int], str]()
    first: dict[str, tuple[str, int]] = {}
    alike: dict[str, list[tuple[str, int, str, int, float]]] = {name: [] for name in some}
    for name, rows in some.items():
        for at, text in enumerate(both_texts(rows)):
            plain_text = " ".join(fold_case(text).split())
            if plain_text in first:
                continue
            place = first[plain_text] = (name, at)
            runs = letter_runs(text)
            signature = MinHash(HASHES, hashfunc=int)
            signature.update_batch(runs)
            candidates: list[Any] = index.query(signature)
            near = [(len(runs & its) / len(runs | its), one) for one in candidates for its in [letter_runs(texts[one])]]
            if near and (best := max(near))[0] >= ALIKE:
                alike[name].append((name, at, *best[1], best[0]))
            texts[place] = text
            index.insert(place, signature)
    return alike


def answers_of(rows: Rows, n_classes: int) -> np.ndarray:
    """Class ids `(n,)`, or marks `(n, C)`."""
    return np.array(rows.labels) if rows.sets is None else multi_hot(rows.sets, n_classes).bool().numpy()


def without_rare(rows: Rows, n_folds: int) -> tuple[Rows, list[int]]:
    """The rows of classes that can be in all folds, and the other classes; all rows where at most one is left, or where
    they have any number of labels."""
    counts = Counter(rows.labels)
    rare = sorted(one for one, n in counts.items() if n < n_folds)
    if rows.sets is not None or not rare or len(counts) - len(rare) < 2:
        return rows, []
    return rows.pick(np.flatnonzero(~np.isin(np.array(rows.labels), rare))), rare


def out_of_fold(rows: Rows, n_classes: int, n_folds: int, seed: int, terms: Terms | None = None) -> np.ndarray | None:
    """The probability `(n, C)` of each class by a linear model, of these `terms`, of the other folds; None where a
    class has not enough rows to be in all of them, or no model can be fitted. Rows of one group, or text, are in one
    fold, classes are spread over the folds."""
    if min(one for one in Counter(rows.labels).values()) < n_folds:
        return None
    probabilities_nC = np.zeros((len(rows), n_classes))
    if rows.groups is None:
        rows = replace(rows, groups=coded([fold_case(text) for text in both_texts(rows)]).codes)
    fold_n = assign_folds(rows, n_folds, seed)
    for fold in range(1, n_folds + 1):
        own = np.flatnonzero(fold_n == fold)
        model = fit_linear(rows.pick(np.flatnonzero(fold_n != fold)), n_classes, terms=terms)
        if model is None:
            return None
        part = rows.pick(own)
        logits_nC = linear_logits(model, part.texts, part.pairs).double()
        probabilities_nC[own] = (logits_nC.softmax(-1) if rows.sets is None else logits_nC.sigmoid()).numpy()
    return probabilities_nC


def likely_wrong(rows: Rows, probabilities_nC: np.ndarray) -> list[int]:
    """Rows whose label is probably wrong, the worst first: Northcutt, Jiang and Chuang (2021), "Confident Learning:
    Estimating Uncertainty in Dataset Labels", by cleanlab."""
    if rows.sets is None:
        from cleanlab.filter import find_label_issues

        classes, labels = np.unique(np.array(rows.labels), return_inverse=True)  # those that some row has
        by, probabilities_nC = "normalized_margin", probabilities_nC[:, classes]
        found = find_label_issues(labels, probabilities_nC, return_indices_ranked_by=by, n_jobs=1)
    else:
        from cleanlab.multilabel_classification.filter import find_label_issues

        by, sets = "self_confidence", [list(one) for one in rows.sets]
        found = find_label_issues(sets, probabilities_nC, return_indices_ranked_by=by, n_jobs=1)
    return np.asarray(found).tolist()


def learning_curve(
    train: Rows, validation: Rows, n_classes: int, seed: int, terms: Terms | None = None
) -> dict[str, Any]:
    """Errors of a linear model, of these `terms`, on validation rows by the number of training rows, and what twice as
    many would make of them: a power law through the errors, its interval by resampled validation rows, and no narrower
    than that of all rows. Nothing where a model cannot be fitted; Hestness et al. (2017), "Deep Learning Scaling is
    Predictable, Empirically"."""
    truth, wrong, counts = answers_of(validation, n_classes), [], []
    for share in SHARES:
        part = stratified_sample(train, max(1, round(share * len(train))), seed)
        model = fit_linear(part, n_classes, terms=terms)
        if model is None:
            continue
        logits_nC = linear_logits(model, validation.texts, validation.pairs).numpy()
        given = logits_nC.argmax(1) if validation.sets is None else logits_nC > 0
        wrong.append(given != truth if validation.sets is None else (given != truth).any(1))
        counts.append(len(part))
    if len(counts) < 3:
        return {}
    wrong_Sn = np.array(wrong, dtype=np.float64)
    error_RS = np.array([wrong_Sn @ times_n / len(validation) for times_n in resamples(len(validation), 1000, seed)])
    errors = [share_interval(round(float(one.sum())), len(validation)) for one in wrong_Sn]
    more_R = error_at(power_law(np.array(counts), error_RS), 2 * len(train))
    more, last = percentile_interval(more_R), errors[-1]
    # if none is wrong, all resamples are alike, but rows are few
    more.low = max(0.0, min(more.low, more.value - (last.value - last.low)))
    more.high = min(1.0, max(more.high, more.value + (last.high - last.value)))
    return {
        "rows": counts,
        "accuracy": [asdict(Interval(1 - one.value, 1 - one.high, 1 - one.low)) for one in errors],
        "twice": {"rows": 2 * len(train), **asdict(Interval(1 - more.value, 1 - more.high, 1 - more.low))},
    }
