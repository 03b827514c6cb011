"""The verb `audit`: one page on labelled texts before anything is trained on them.

Classes, lengths, scripts, repeated and nearly repeated texts, leaks between splits, contradicting and probably wrong
labels, personal data by its patterns (counted, and masked on the page), and what more rows would bring. A linear model
stands for the classifiers to come. Of a large split a sample is looked at, which the page says.

n rows . C classes or labels . R resamples
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from manyheads.config import AuditConfig
from manyheads.config.fields import to_plain
from manyheads.data.rows import Rows, Splits, label_words
from manyheads.data.sources import read_splits
from manyheads.data.tokenizer import train_tokenizer
from manyheads.data.tokens import load_tokenizer, marks_of
from manyheads.evaluation.evaluation import rows_of_class, write_answers_csv
from manyheads.evaluation.metrics import Interval, interval, plain, resamples, share_interval
from manyheads.evaluation.report import (
    Example,
    Page,
    Section,
    Table,
    dotted,
    installed_versions,
    value_sections,
    write_page,
)
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import folded, linear_logits
from manyheads.runs.folder import refuse_unwritable, replace_file, start_folder
from manyheads.terminal import console, show_files

MISSING = "not looked for: pip install 'manyheads[audit]'"
ALIKE = 0.8  # Jaccard similarity of the runs of letters of two texts
RUN = 5  # letters
CANDIDATES, HASHES = 0.65, 128  # their similarity by a signature of so many hashes: of candidates it is then computed
SHOWN = 10  # of each kind of finding
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the training rows
TABLE = 30  # classes on the page
PERSONAL = {
    "IBAN": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b",
    "payment card": r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)",
    "e-mail address": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "web address": r"https?://\S+|www\.\w\S*",
    "telephone number": r"(?<![\w.])(?:\+|00)\d{1,3}[ /().-]{0,2}\d(?:[ /().-]{0,2}\d){6,12}(?!\w)"
    r"|(?<![\w-])\(?\d{3}\)?[ -]\d{3}-\d{4}(?![\w-])",
    "IP address": r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in PERSONAL.items()}


@dataclass(slots=True)
class Suspects:
    """Rows whose label is probably wrong, the worst first: their places in the rows, and the probability `(n, C)` of
    each class by models that have not learnt from the row."""

    at: list[int]
    probabilities_nC: np.ndarray


def audit(config: AuditConfig) -> dict[str, Any]:
    """Look at the data and write audit.html, audit.json and suspects.csv; returns the content of audit.json.

    Raises:
        ValueError: the data, as in training; or the output is not an empty folder.
    """
    splits = read_splits(config.data, config.seed, with_unread=True)
    folder = start_folder(config.output)
    with refuse_unwritable(folder):
        found, page, suspects = looked_at(splits, config)
        write_page(folder / "audit.html", page)
        with replace_file(folder / "audit.json") as part:
            part.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        names = ["audit.html", "audit.json"]
        if suspects is not None:
            write_suspects(folder / "suspects.csv", *suspects, splits.labels)
            names.append("suspects.csv")
    screen = console()
    for line in [*splits.notes, *sentences(found)]:
        screen.print(line, soft_wrap=True)
    show_files(folder, names)
    return found


def looked_at(splits: Splits, config: AuditConfig) -> tuple[dict[str, Any], Page, tuple[Rows, Suspects] | None]:
    """What audit.json holds, the page, and the training rows that were asked with those under suspicion."""
    some = {name: sample(rows, config.sample, config.seed) for name, rows in splits.by_name().items()}
    labels, n_classes = splits.labels, len(splits.labels)
    found: dict[str, Any] = {
        "source": splits.train.source,
        "rows": {name: len(rows) for name, rows in splits.by_name().items()},
        "sampled": {name: len(rows) for name, rows in some.items()},
        "classes": {
            name: dict(zip(labels, rows_of_class(rows, n_classes), strict=True))
            for name, rows in splits.by_name().items()
        },
        "lengths": lengths(some, config),
        "scripts": {name: scripts(rows) for name, rows in some.items()},
        "personal": {name: personal(rows) for name, rows in some.items()},
        "notes": splits.notes,
    }
    alike = None if find_spec("datasketch") is None else near_repeats(some)
    found["near_repeats"] = MISSING if alike is None else {name: len(pairs) for name, pairs in alike.items()}
    found["curve"] = learning_curve(some["train"], some["validation"], n_classes, config.seed)
    suspects = None
    if find_spec("cleanlab") is None:
        found["suspects"] = MISSING
    elif (asked := out_of_fold(some["train"], n_classes, config.folds, config.seed)) is None:
        found["suspects"] = f"not looked for: a class has fewer rows than there are folds ({config.folds})"
    else:
        suspects = (some["train"], Suspects(likely_wrong(some["train"], asked), asked))
        found["suspects"] = {"rows": len(suspects[1].at), "of": len(asked)}
    return found, page_of(found, splits, some, alike, suspects, config), suspects


def sample(rows: Rows, most: int, seed: int) -> Rows:
    """At most so many rows, drawn, in their order."""
    if len(rows) <= most:
        return rows
    return rows.pick(np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False)))


def both_texts(rows: Rows) -> Iterator[str]:
    """Of each row its text, or those of a pair as one."""
    yield from rows.texts if rows.pairs is None else map("{} {}".format, rows.texts, rows.pairs)


def lengths(some: dict[str, Rows], config: AuditConfig) -> dict[str, dict[str, float]]:
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


@cache
def script_of(letter: str) -> str:
    """The writing system of a letter by its Unicode name, such as Latin or CJK; empty of what is no letter."""
    return unicodedata.name(letter, "").split(" ")[0].capitalize().replace("Cjk", "CJK") if letter.isalpha() else ""


def scripts(rows: Rows) -> dict[str, int]:
    """Rows by the script that most letters of each are of."""
    counts: Counter[str] = Counter()
    for text in both_texts(rows):
        of_text = Counter(map(script_of, text))
        of_text.pop("", None)
        counts[of_text.most_common(1)[0][0] if of_text else "no letters"] += 1
    return dict(counts.most_common())


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


CHECKS: dict[str, Callable[[str], bool]] = {"IBAN": is_iban, "payment card": is_card}


def runs_of(text: str) -> set[int]:
    """Hashes of its runs of five letters, composed and in lower case; of a shorter text the whole."""
    letters = " ".join(folded(text).split())
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
            plain_text = " ".join(folded(text).split())
            if plain_text in first:
                continue
            place = first[plain_text] = (name, at)
            runs = runs_of(text)
            signature = MinHash(HASHES, hashfunc=int)
            signature.update_batch(runs)
            candidates: list[Any] = index.query(signature)
            near = [(jaccard(runs, runs_of(texts[one])), one) for one in candidates]
            if near and (best := max(near))[0] >= ALIKE:
                alike[name].append((name, at, *best[1], best[0]))
            texts[place] = text
            index.insert(place, signature)
    return alike


def jaccard(one: set[int], other: set[int]) -> float:
    """How much of both is in both."""
    return len(one & other) / len(one | other)


def answers_of(rows: Rows, n_classes: int) -> np.ndarray:
    """Class ids `(n,)`, or marks `(n, C)`."""
    return np.array(rows.labels) if rows.sets is None else marks_of(rows.sets, n_classes).bool().numpy()


def out_of_fold(rows: Rows, n_classes: int, n_folds: int, seed: int) -> np.ndarray | None:
    """The probability `(n, C)` of each class by a linear model of the other folds; None where a class has not enough
    rows to be in all of them. Rows of one text are in one fold, classes are spread over the folds."""
    from sklearn.model_selection import StratifiedGroupKFold

    if min(one for one in Counter(rows.labels).values()) < n_folds:
        return None
    probabilities_nC = np.zeros((len(rows), n_classes))
    groups = [folded(text) for text in both_texts(rows)]
    folds = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
    for others, own in folds.split(groups, rows.labels, groups):
        model = fit_linear(rows.pick(others.tolist()), n_classes)
        if model is None:
            return None
        part = rows.pick(own.tolist())
        logits_nC = linear_logits(model, part.texts, part.pairs).double()
        probabilities_nC[own] = (logits_nC.softmax(-1) if rows.sets is None else logits_nC.sigmoid()).numpy()
    return probabilities_nC


def likely_wrong(rows: Rows, probabilities_nC: np.ndarray) -> list[int]:
    """Rows whose label is probably wrong, the worst first: Northcutt, Jiang and Chuang (2021), "Confident Learning:
    Estimating Uncertainty in Dataset Labels", by cleanlab."""
    if rows.sets is None:
        from cleanlab.filter import find_label_issues

        by, labels = "normalized_margin", np.array(rows.labels)
        found = find_label_issues(labels, probabilities_nC, return_indices_ranked_by=by, n_jobs=1)
    else:
        from cleanlab.multilabel_classification.filter import find_label_issues

        by, sets = "self_confidence", [list(one) for one in rows.sets]
        found = find_label_issues(sets, probabilities_nC, return_indices_ranked_by=by, n_jobs=1)
    return np.asarray(found).tolist()


def learning_curve(train: Rows, validation: Rows, n_classes: int, seed: int) -> dict[str, Any]:
    """Errors of a linear model on validation rows by the number of training rows, and what twice as many would make of
    them: a power law through the errors, its interval by resampled validation rows. Nothing where a model cannot be
    fitted; Hestness et al. (2017), "Deep Learning Scaling is Predictable, Empirically"."""
    order = np.random.default_rng(seed).permutation(len(train))
    truth, wrong, counts = answers_of(validation, n_classes), [], []
    for share in SHARES:
        part = train.pick(np.sort(order[: max(1, round(share * len(train)))]).tolist())
        model = fit_linear(part, n_classes)
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
    more = interval(extrapolated(np.array(counts), error_RS, 2 * len(train), len(validation)))
    return {
        "rows": counts,
        "accuracy": [plain({"": Interval(1 - one.value, 1 - one.high, 1 - one.low)})[""] for one in errors],
        "twice": {"rows": 2 * len(train)} | plain({"": Interval(1 - more.value, 1 - more.high, 1 - more.low)})[""],
    }


def extrapolated(counts_S: np.ndarray, error_RS: np.ndarray, n_rows: int, n_judged: int) -> np.ndarray:
    """The error at `n_rows` of a power law, a line through the logarithms, that does not rise."""
    x_S, y_RS = np.log(counts_S), np.log(np.maximum(error_RS, 0.5 / n_judged))
    from_S = x_S - x_S.mean()
    slope_R = np.minimum(y_RS @ from_S / (from_S @ from_S), 0.0)
    return np.exp(y_RS.mean(1) + slope_R * (np.log(n_rows) - x_S.mean()))


def write_suspects(path: Path, rows: Rows, suspects: Suspects, labels: list[str]) -> None:
    """One line a suspect row, the worst first: as predictions.csv, with its label, a likelier one, and how probable
    both are."""
    part = rows.pick(suspects.at)
    answers = []
    for own, probability_C in zip(label_words(part, labels), suspects.probabilities_nC[suspects.at], strict=True):
        given = probability_C >= 0.5 if rows.sets is not None else probability_C == probability_C.max()
        likelier = "|".join(labels[at] for at in np.flatnonzero(given).tolist())
        of_own = [probability_C[at] for at, name in enumerate(labels) if name in own.split("|")]
        answers.append([own, likelier, round(float(min(of_own, default=0.0)), 4), round(float(probability_C.max()), 4)])
    write_answers_csv(path, part, ["label", "likelier", "p_label", "p_likelier"], answers)


def sentences(found: dict[str, Any]) -> list[str]:
    """What was found, a line each."""
    said = []
    for name, of in found["lengths"].items():
        cut = f"; {of['cut']:.1%} are cut" if of["cut"] else ""
        said.append(
            f"{name}: a text has {of['least']:.0f} to {of['most']:.0f} tokens, {of['median']:.0f} in the middle{cut}"
        )
    for name, of in found["scripts"].items():
        if len(of) > 1:
            said.append(f"{name}: rows by script: {', '.join(f'{script} {count:,}' for script, count in of.items())}")
    for name, of in found["personal"].items():
        said += [f"{name}: {count:,} rows seem to hold personal data: {what}" for what, count in of.items()]
    alike = found["near_repeats"]
    said += (
        [f"near repeats: {alike}"]
        if isinstance(alike, str)
        else [f"{name}: {count:,} rows nearly repeat the text of another row" for name, count in alike.items() if count]
    )
    suspects = found["suspects"]
    if isinstance(suspects, str):
        said.append(f"wrong labels: {suspects}")
    else:
        said.append(f"train: {suspects['rows']:,} of {suspects['of']:,} labels may be wrong: a linear model disagrees")
    if curve := found["curve"]:
        more = curve["twice"]
        said.append(
            f"a linear model has an accuracy of {curve['accuracy'][-1]['value']:.3f} with {curve['rows'][-1]:,} "
            f"training rows; with {more['rows']:,} expect {more['value']:.3f} ({more['low']:.3f} to {more['high']:.3f})"
        )
    return said


def page_of(
    found: dict[str, Any],
    splits: Splits,
    some: dict[str, Rows],
    alike: dict[str, list[Any]] | None,
    suspects: tuple[Rows, Suspects] | None,
    config: AuditConfig,
) -> Page:
    """The page: what was found, then classes, lengths, repeats, suspects and the curve."""
    drawn = [f"{name}: {len(rows):,} of {found['rows'][name]:,} rows, drawn, were looked at"
             for name, rows in some.items() if len(rows) < found["rows"][name]]  # fmt: skip
    sections = [
        Section("What was found", items=[*splits.notes, *sentences(found), *drawn]),
        classes_section(found, len(splits.train)),
        lengths_section(found),
        *repeats_sections(some, alike),
        *suspects_sections(suspects, splits.labels),
        *curve_sections(found["curve"]),
        *value_sections({"Settings": dict(dotted(to_plain(config))), "Versions": installed_versions()}),
    ]
    rows = ", ".join(f"{name} {count:,}" for name, count in found["rows"].items())
    return Page(
        title="Texts and labels before training",
        subtitle=f"{splits.train.source}: {rows} rows; {len(splits.labels)} {'labels' if splits.multi else 'classes'}",
        sections=sections,
    )


def classes_section(found: dict[str, Any], n_train: int) -> Section:
    """Rows of each class by split, those of many training rows first."""
    counts = found["classes"]
    names = sorted(counts["train"], key=lambda name: -counts["train"][name])
    lines = [
        [name, *(f"{of[name]:,}" for of in counts.values()), counts["train"][name] / n_train] for name in names[:TABLE]
    ]
    more = [f"{len(names) - TABLE:,} more have fewer rows."] if len(names) > TABLE else []
    columns = ["class", *counts, "share of train"]
    return Section("Classes", Table(columns, lines, f"w{'n' * len(counts)}b"), notes=more, long=True)


def lengths_section(found: dict[str, Any]) -> Section:
    """Tokens of a text by split."""
    lines = [[name, *(f"{of[key]:,.0f}" for key in of if key != "cut"), f"{of['cut']:.1%}"]
             for name, of in found["lengths"].items()]  # fmt: skip
    return Section(
        "Tokens of a text", Table(["split", "least", "5 %", "median", "95 %", "most", "cut"], lines, "wnnnnnn")
    )


def repeats_sections(some: dict[str, Rows], alike: dict[str, list[Any]] | None) -> list[Section]:
    """Nearly equal texts; those of other splits than their own first, as these leak."""
    pairs = sorted((one for of in (alike or {}).values() for one in of), key=lambda one: (one[0] == one[2], -one[4]))
    shown = []
    for name, at, other, there, share in pairs[:SHOWN]:
        texts = [masked(next(both_texts(some[split].pick([row]))))[0] for split, row in ((name, at), (other, there))]
        place = f"{share:.0%} alike: {name} row {some[name].numbers[at]:,}, {other} row {some[other].numbers[there]:,}"
        shown.append(Example(place, texts))
    return [Section("Nearly the same text", examples=shown, long=True)] if shown else []


def suspects_sections(suspects: tuple[Rows, Suspects] | None, labels: list[str]) -> list[Section]:
    """Rows whose label is probably wrong, with the class that is likelier."""
    if suspects is None or not suspects[1].at:
        return []
    rows, found = suspects
    part, shown = rows.pick(found.at[:SHOWN]), []
    for own, at, text, number in zip(
        label_words(part, labels), found.at[:SHOWN], both_texts(part), part.numbers, strict=True
    ):
        likelier = int(found.probabilities_nC[at].argmax())
        place = f"{found.probabilities_nC[at, likelier]:.0%} sure, row {number:,}"
        shown.append(Example(place, [masked(text)[0]], own, labels[likelier]))
    note = (
        "The label, and the answer of a linear model that has not learnt from the row. suspects.csv has all of them, "
        "the worst first. Read them before you change any: a right label of an unusual text looks the same."
    )
    return [Section("Labels that may be wrong", notes=[note], examples=shown, long=True)]


def curve_sections(curve: dict[str, Any]) -> list[Section]:
    """Accuracy by training rows, and with twice as many."""
    if not curve:
        return []
    figures = [Interval(**one) for one in curve["accuracy"]]
    more = dict(curve["twice"])
    lines = [[f"{n:,}", of, of] for n, of in zip(curve["rows"], figures, strict=True)]
    guess = Interval(more["value"], more["low"], more["high"])
    lines.append([f"{more['rows']:,}, by a power law", guess, guess])
    note = "Accuracy of a linear model on validation rows. The last line is a guess, for more rows of the same kind."
    return [
        Section("What more rows would bring", Table(["training rows", "accuracy", "from 0 to 1"], lines, "wib"), [note])
    ]
