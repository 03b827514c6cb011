"""Facts of labelled texts, as an audit reports them: lengths, scripts, personal data, labels that may be wrong, and
what more rows would bring, by a linear model in place of the classifiers to come.

n rows . C classes or labels . S sizes of the training rows . R resamples
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from manyheads.config import Terms
from manyheads.data.ids.terms import fold_case
from manyheads.data.rows import Rows, class_counts
from manyheads.data.splits import assign_folds, stratified_sample
from manyheads.data.table import coded
from manyheads.data.tokenizer import load_tokenizer, train_tokenizer
from manyheads.data.tokens import multi_hot
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.statistics import error_at, percentile_interval, power_law, resamples
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import linear_logits
from manyheads.linear.near_repeats import both_texts
from manyheads.plugins.judge.config import AuditConfig
from manyheads.plugins.judge.outliers import script_of
from manyheads.runs.summary import Interval

SHARES = (0.125, 0.25, 0.5, 1.0)  # of the training rows: sizes of the learning curve
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


def token_counts(samples: dict[str, Rows], config: AuditConfig) -> dict[str, dict[str, float]]:
    """Tokens of the texts by split: least, quantiles, most; and the share of texts that `data.max_length` cuts."""
    train, path, fields = samples["train"], config.tokenizer.path, isinstance(config.data.text, list)
    if path:
        prefix = config.tokenizer.prefix
        tokenizer = load_tokenizer(path, pairs=train.pairs is not None, prefix=prefix, fields=fields)
    else:
        tokenizer = train_tokenizer(train, config.tokenizer, fields=fields)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    found = {}
    for name, rows in samples.items():
        texts: list[Any] = list(rows.texts)
        if rows.pairs is not None:
            texts = list(zip(rows.texts, rows.pairs, strict=True))
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
    counts = Counter[str]()
    for text in both_texts(rows):
        _, kinds = masked(text)
        counts.update(kinds)
    return {kind: counts[kind] for kind in PATTERNS if counts[kind]}


def masked(text: str) -> tuple[str, set[str]]:
    """The text with personal data replaced by what it is, and the kinds of it. Patterns are tried in their order, IBANs
    and cards also by their check digits."""
    kinds = set[str]()

    def name_kind(found: re.Match[str], kind: str) -> str:
        if kind in CHECKS and not CHECKS[kind](found[0]):
            return found[0]
        kinds.add(kind)
        return f"[{kind}]"

    for kind, pattern in PATTERNS.items():
        if kind == "e-mail address" and "@" not in text:
            continue
        text = pattern.sub(partial(name_kind, kind=kind), text)
    return text, kinds


def is_iban(text: str) -> bool:
    """ISO 7064, modulo 97: letters count from 10, the first four characters come last."""
    bare = text.replace(" ", "")
    if not 15 <= len(bare) <= 34:
        return False
    digits = [str(int(letter, 36)) for letter in bare[4:] + bare[:4]]
    return int("".join(digits)) % 97 == 1


def is_card(text: str) -> bool:
    """ISO/IEC 7812: every second digit from the right is doubled, its digits added up (Luhn)."""
    digits = [int(letter) for letter in text if letter.isdigit()]
    digits.reverse()
    total = sum(digits[::2])
    for digit in digits[1::2]:
        total += sum(divmod(2 * digit, 10))
    return len({*digits}) > 1 and total % 10 == 0  # not 0000 0000 0000 0000


CHECKS: dict[str, Callable[[str], bool]] = {
    "IBAN": is_iban,
    "payment card": is_card,
    "e-mail address": lambda text: "@" in text,
}


def labels_of(rows: Rows, n_classes: int) -> np.ndarray:
    """Class ids `(n,)`, or, of several labels, marks `(n, C)`."""
    if rows.sets is None:
        return np.asarray(rows.labels, dtype=np.int64)
    return multi_hot(rows.sets, n_classes).bool().numpy()


def without_rare(rows: Rows, n_folds: int) -> tuple[Rows, list[int]]:
    """The rows of classes that can be in all folds, and the other classes; all rows where at most one is left, or where
    they have any number of labels."""
    counts = Counter(rows.labels)
    rare = sorted(label for label, n in counts.items() if n < n_folds)
    if rows.sets is not None or not rare or len(counts) - len(rare) < 2:
        return rows, []
    return rows.pick(np.flatnonzero(~np.isin(np.array(rows.labels), rare))), rare


def fewest_rows(rows: Rows, n_classes: int) -> int:
    """How many rows the rarest class or label has of those that some row has."""
    return min((n for n in class_counts(rows, n_classes) if n), default=0)


def out_of_fold(rows: Rows, n_classes: int, n_folds: int, seed: int, terms: Terms | None = None) -> np.ndarray | None:
    """The probability `(n, C)` of each class by a linear model, of these `terms`, of the other folds; None where a
    class has too few rows to be in all of them, or no model can be fitted. Rows of one group, or text, are in one
    fold, classes are spread over the folds."""
    if fewest_rows(rows, n_classes) < n_folds:
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
        from cleanlab.filter import find_label_issues  # of the extra `audit`

        classes, labels = np.unique(np.array(rows.labels), return_inverse=True)  # those that some row has
        if len(classes) == 1:  # where others have votes, but never the most
            return []
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
    many would make of them: a power law through the errors, Hestness et al. (2017), "Deep Learning Scaling is
    Predictable, Empirically". Its interval is that of a bootstrap over the validation rows, and no narrower than that
    of all rows; it assumes rows to come of the same kind.

    Returns:
        The curve as audit.json has it; nothing where fewer than three models can be fitted.
    """
    truth, wrong, counts = labels_of(validation, n_classes), [], []
    for share in SHARES:
        part = stratified_sample(train, max(1, round(share * len(train))), seed)
        model = fit_linear(part, n_classes, terms=terms)
        if model is None:
            continue
        logits_nC = linear_logits(model, validation.texts, validation.pairs).numpy()
        if validation.sets is None:
            wrong.append(logits_nC.argmax(1) != truth)
        else:
            wrong.append(((logits_nC > 0) != truth).any(1))
        counts.append(len(part))
    if len(counts) < 3:
        return {}
    wrong_Sn = np.array(wrong, dtype=np.float64)
    error_RS = np.array([wrong_Sn @ times_n / len(validation) for times_n in resamples(len(validation), seed=seed)])
    errors = [share_interval(round(float(wrong_n.sum())), len(validation)) for wrong_n in wrong_Sn]
    more_R = error_at(power_law(np.array(counts), error_RS), 2 * len(train))
    more, last = percentile_interval(more_R), errors[-1]
    # if none is wrong, all resamples are alike, but rows are few
    more.low = max(0.0, min(more.low, more.value - (last.value - last.low)))
    more.high = min(1.0, max(more.high, more.value + (last.high - last.value)))
    return {
        "rows": counts,
        "accuracy": [_accuracy(error) for error in errors],
        "twice": {"rows": 2 * len(train)} | _accuracy(more),
    }


def _accuracy(error: Interval) -> dict[str, float]:
    """Of an interval of errors, as JSON has it."""
    return asdict(Interval(1 - error.value, 1 - error.high, 1 - error.low))
