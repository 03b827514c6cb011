"""How well `outliers.false_alarms` tells the texts of one real set from those of others, and its rate of false alarms.

A default run of three epochs learns each of the sets `known`; its judged split is set against that of every other set,
at most ROWS rows of each, evenly spread. AUROC is the share of pairs in which the text of the other set has the higher
score, with DeLong's 95 % interval (1988). Compared are its two parts alone, the relative Mahalanobis distance (Ren
et al., 2021), the cosine to the 50th nearest training row (Sun et al., 2022), and the likeliest class
(Hendrycks and Gimpel, 2017). The score was chosen on the validation splits; sets without one give training rows there.

    python benchmarks/outliers.py benchmarks/outliers.json validation test    in $MANYHEADS_DATA; KEEP=folder keeps runs

n rows . D width of the vectors
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from numpy.typing import NDArray
from scipy.stats import rankdata

from manyheads.config import DataConfig
from manyheads.data.opening import read_file
from manyheads.data.sources import read_split
from manyheads.evaluation.intervals import Z, share_interval
from manyheads.inference.classifier import TextClassifier, read_vectors
from manyheads.inference.folder import load
from manyheads.plugins.judge.outliers import Outliers, fit_outliers
from manyheads.runs.summary import figures_to_plain

KNOWN = ("emotion", "sst2", "snips")
OTHERS = (*KNOWN, "indonlu_smsa", "goemotions", "trec6", "banking77", "ag_news_10k", "imdb")
ROWS, ALARMS, NEIGHBOUR = 1_500, 0.05, 50
Floats = NDArray[np.float64]


def texts_of(name: str, split: str, most: int = ROWS) -> list[str]:
    """Texts of a set, evenly spread."""
    folder = Path(os.environ["MANYHEADS_DATA"], name)
    file = folder / f"{split}.csv"
    texts = list(read_file(file if file.exists() else folder / "train.csv").column("text"))
    return [texts[at] for at in np.unique(np.linspace(0, len(texts) - 1, most).astype(int))]


def auroc(like_n: Floats, unlike_n: Floats) -> dict[str, float]:
    """With the interval of DeLong, DeLong and Clarke-Pearson (1988), by the placements of either side."""
    n, m = len(like_n), len(unlike_n)
    every = rankdata(np.concatenate([like_n, unlike_n]))
    of_unlike = (every[n:] - rankdata(unlike_n)) / n
    of_like = 1 - (every[:n] - rankdata(like_n)) / m
    value = float(of_unlike.mean())
    far = Z * float(np.sqrt(of_unlike.var(ddof=1) / m + of_like.var(ddof=1) / n))
    return {"value": value, "low": max(0.0, value - far), "high": min(1.0, value + far)}


class Known:
    """A run, and what is known of its training rows."""

    def __init__(self, name: str, folder: Path) -> None:
        data, run = Path(os.environ["MANYHEADS_DATA"], name), folder / name
        if not (run / "model").exists():
            words = [f"data.path={data}", f"output={run}", "trainer.max_epochs=3"]
            subprocess.run([sys.executable, "-m", "manyheads", "train", *words], check=True, stdout=subprocess.DEVNULL)
        self.classifier = load(run, TextClassifier)
        columns = DataConfig(source="files", path=str(data))
        train, held = (read_split(columns, one, self.classifier.labels) for one in ("train", "validation"))
        self.outliers: Outliers = fit_outliers(self.classifier, train, held)
        step = max(1, len(train) // 5_000)
        self.labels_n = np.array(train.labels[::step])
        _, _, vectors = read_vectors(self.classifier, list(train.texts[::step]), None, 4096)
        self.vectors_nD = vectors.numpy()

    def scores(self, texts: list[str]) -> dict[str, Floats]:
        """Of every way, the higher the stranger."""
        encoded, logits, vectors = read_vectors(self.classifier, texts, None, 4096)
        distance_n, surprise_n = self.outliers.parts(encoded, vectors).numpy()
        logits_nC = self.classifier.logits(texts, network_nC=logits).double()
        return {
            "score": self.outliers.scores(texts, None, encoded, vectors).numpy(),
            "distance alone": distance_n,
            "surprise alone": surprise_n,
            "relative Mahalanobis": self._relative(vectors.numpy()),
            "nearest neighbours": self._far(vectors.numpy()),
            "likeliest class": -logits_nC.softmax(-1).max(1).values.numpy(),
        }

    def _relative(self, vectors_nD: Floats) -> Floats:
        """The distance from the nearest class, by the covariance within classes, less that from the mean of all."""

        def nearest(labels_n: NDArray[np.int64]) -> Floats:
            means_CD = np.stack([self.vectors_nD[labels_n == at].mean(0) for at in range(labels_n.max() + 1)])
            inside_nD = self.vectors_nD - means_CD[labels_n]
            covariance_DD = inside_nD.T @ inside_nD / len(inside_nD)
            even_DD = np.trace(covariance_DD) / len(covariance_DD) * np.eye(len(covariance_DD))
            inverse_DD = np.linalg.inv(0.99 * covariance_DD + 0.01 * even_DD)
            far = [np.einsum("nd,de,ne->n", vectors_nD - one, inverse_DD, vectors_nD - one) for one in means_CD]
            return np.min(far, axis=0)

        return nearest(self.labels_n) - nearest(np.zeros_like(self.labels_n))

    def _far(self, vectors_nD: Floats) -> Floats:
        own, theirs = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (self.vectors_nD, vectors_nD))
        return np.sort(-theirs @ own.T, axis=1)[:, NEIGHBOUR - 1]


def measured(known: Known, name: str, split: str) -> dict[str, Any]:
    """Against every other set: AUROC of every way, and the share of texts that is marked."""
    own, found = known.scores(texts_of(name, split)), dict[str, Any]()
    for other in (one for one in OTHERS if one != name):
        texts = texts_of(other, split)
        theirs = known.scores(texts)
        p_n = known.outliers.p_values(torch.from_numpy(theirs["score"])).numpy()
        marked = share_interval(int((p_n <= ALARMS).sum()), len(p_n))
        aurocs = {way: auroc(own[way], theirs[way]) for way in own}
        found[other] = {"auroc": aurocs, **figures_to_plain({"marked": marked})}
        best = found[other]["auroc"]["score"]
        words = ", ".join(f"{way} {one['value']:.3f}" for way, one in found[other]["auroc"].items())
        line = f"{split}: {name} against {other}: {words} ({best['low']:.3f} to {best['high']:.3f} the first)"
        print(f"{line}; marked {marked.value:.3f}", flush=True)
    p_n = known.outliers.p_values(torch.from_numpy(own["score"])).numpy()
    false_alarms = share_interval(int((p_n <= ALARMS).sum()), len(p_n))
    means = {way: float(np.mean([one["auroc"][way]["value"] for one in found.values()])) for way in own}
    print(
        f"{split}: {name}: false alarms {false_alarms.value:.3f}; mean "
        + ", ".join(f"{way} {one:.3f}" for way, one in means.items()),
        flush=True,
    )
    return {"others": found, "means": means, "rows": len(p_n)} | figures_to_plain({"false_alarms": false_alarms})


def main(out: str, *splits: str) -> None:
    folder = Path(os.environ.get("KEEP") or tempfile.mkdtemp())
    figures: dict[str, Any] = {"machine": machine(), "alarms": ALARMS, "splits": {split: {} for split in splits}}
    for name in KNOWN:
        known = Known(name, folder)
        for split in splits:
            figures["splits"][split][name] = measured(known, name, split)
    Path(out).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
