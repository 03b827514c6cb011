"""Texts unlike those a classifier learnt from, marked at a stated rate of false alarms.

The score of a text is the squared distance of its vector, which the head of the network reads, from the mean of the
training rows (Mahalanobis, by their covariance), plus the mean surprise of its tokens by how often these occur there;
each is divided by its deviation over the training rows. So no classes are needed, and an unknown token counts as much
as it is rare. A writing system that no training row has is above any score.

Scores become p-values by the validation rows: split conformal prediction, Bates et al. (2023), "Testing for Outliers
with Conformal p-values", equation 4. Of texts like those rows at most a share `false_alarms` has a p-value as small.

n rows . N tokens . D width of the vectors . V vocabulary . Z rows that p-values are by
"""

import json
import math
import re
import sys
import unicodedata
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from manyheads.data.batches import ANSWER_TOKENS
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.evaluation.held_out import require_same
from manyheads.inference.classifier import TextClassifier, answer_in_chunks, read_vectors
from manyheads.inference.download import OUTLIERS
from manyheads.inference.format import WEIGHTS, ModelFolder, learnt_in
from manyheads.inference.rules import AnswerRule
from manyheads.plugins.judge.checks import AnswerSettings, require_held_out
from manyheads.runs.config_file import read_run
from manyheads.runs.files import replace_file
from manyheads.terminal import one_line

ROWS, HELD_OUT = 5_000, 20_000  # most rows of train and of validation, evenly spread
SHRINK = 0.01  # of the covariance, towards one variance for all directions
SMOOTH = 0.1  # added to how often a token occurs
FORMAT = "1"
LETTERS = 200  # of a text, by which its script is recognised


@dataclass(slots=True)
class Outliers:
    """What training rows are like, in fp64.

    Attributes:
        mean_D: of their vectors.
        whiten_DD: makes the covariance of their vectors one.
        surprise_V: of each token, in nats.
        spreads_2: standard deviations of distance and surprise.
        scripts: writing systems that occur.
        scores_Z: ascending, of validation rows.
        of_rows: the digest of these.
    """

    mean_D: Tensor
    whiten_DD: Tensor
    surprise_V: Tensor
    spreads_2: Tensor
    scripts: frozenset[str]
    scores_Z: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    of_rows: str = ""

    def answers(
        self, classifier: TextClassifier, texts: list[str], pairs: list[str] | None, *, tokens: int = ANSWER_TOKENS
    ) -> tuple[Tensor, Tensor]:
        """The network's logits `(n, C)`, and p-values `(n,)`: the texts are read once."""
        encoded, network_nC, vectors_nD = read_vectors(classifier, texts, pairs, tokens)
        return network_nC, self.p_values(self.scores(texts, pairs, encoded, vectors_nD))

    def p_values(self, scores_n: Tensor) -> Tensor:
        """Of each text the share of validation rows that are at least as strange, itself among them: `(n,)`. Such
        conformal p-values assume that validation rows and texts like them can be exchanged."""
        n_below_n = torch.searchsorted(self.scores_Z, scores_n)
        return (1 + len(self.scores_Z) - n_below_n).double() / (1 + len(self.scores_Z))

    def scores(self, texts: list[str], pairs: list[str] | None, encoded: Tokens, vectors_nD: Tensor) -> Tensor:
        """`(n,)`, the higher the stranger."""
        distance_n, surprise_n = self.parts(encoded, vectors_nD) / self.spreads_2[:, None]
        known_n = torch.tensor([one in self.scripts for one in scripts_of(texts, pairs)], dtype=torch.bool)
        return (distance_n + surprise_n).nan_to_num(torch.inf).where(known_n, torch.inf)

    def parts(self, encoded: Tokens, vectors_nD: Tensor) -> Tensor:
        """Squared distances, and mean surprises: `(2, n)`."""
        sums = torch.nn.functional.pad(self.surprise_V[encoded.ids_N.long()].cumsum(0), (1, 0))
        surprise_n = sums[encoded.offsets].diff() / encoded.offsets.diff().clamp(min=1)
        return torch.stack([((vectors_nD - self.mean_D) @ self.whiten_DD).square().sum(1), surprise_n])

    @property
    def digest(self) -> str:
        """Two of the same digest give the same p-values."""
        return sha256(self.scores_Z.numpy().tobytes()).hexdigest()


def scripts_of(texts: list[str], pairs: list[str] | None) -> list[str]:
    """The writing system of each row; of a pair that of both together."""
    if pairs is None:
        return [script_of(text) for text in texts]
    return [script_of(f"{text} {pair}") for text, pair in zip(texts, pairs, strict=True)]


def fit_outliers(classifier: TextClassifier, train: Rows, held_out: Rows, tokens: int = ANSWER_TOKENS) -> Outliers:
    """By some training rows, and p-values by some others; always in fp32 and by one process."""
    alone = replace(classifier.on(next(classifier.network.parameters()).device), workers=None)
    some, others = _spread(train, ROWS), _spread(held_out, HELD_OUT)
    encoded, _, vectors_nD = read_vectors(alone, some.texts, some.pairs, tokens)
    counts_V = torch.bincount(encoded.ids_N, minlength=classifier.settings.vocab_size) + SMOOTH
    covariance_DD = torch.cov(vectors_nD.T, correction=0).reshape(vectors_nD.size(1), -1)
    even_D = covariance_DD.diagonal().mean().clamp(min=1e-30).expand(vectors_nD.size(1))
    shrunk_DD = (1 - SHRINK) * covariance_DD + SHRINK * even_D.diag()
    found = Outliers(
        mean_D=vectors_nD.mean(0),
        whiten_DD=torch.linalg.inv(torch.linalg.cholesky(shrunk_DD)).T.contiguous(),
        surprise_V=-(counts_V.double() / counts_V.sum().double()).log(),
        spreads_2=torch.ones(2, dtype=torch.float64),
        scripts=frozenset({*scripts_of(some.texts, some.pairs), "none"}),  # a text without letters may be of any
    )
    spreads_2 = found.parts(encoded, vectors_nD).std(1, correction=0)
    found.spreads_2 = spreads_2.where(spreads_2 > 0, 1.0)

    def ask(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        encoded, _, vectors_nD = read_vectors(alone, texts, pairs, tokens)
        return {"": found.scores(texts, pairs, encoded, vectors_nD)}

    found.scores_Z = answer_in_chunks(ask, others, 1, lambda n_rows: None)[""].sort().values
    return found


def _spread(rows: Rows, most: int) -> Rows:
    """At most `most` of them, evenly spread from the first to the last."""
    if len(rows) <= most:
        return rows
    at = torch.linspace(0, len(rows) - 1, most).long()  # in fp32, which may round the last number of many up
    return rows.pick(at.clamp(max=len(rows) - 1).unique().numpy())


def outlier_rule(config: AnswerSettings, folder: ModelFolder, classifier: TextClassifier) -> AnswerRule:
    """What predict and evaluate do with texts by `Outliers`."""
    alarms, outliers = config.outliers.false_alarms, set_outliers(config, folder, classifier)

    def apply(answers: list[dict[str, Any]], predictions: list[Any], p_n: Tensor) -> None:
        for answer, p in zip(answers, p_n.tolist(), strict=True):
            answer |= {"outlier": p <= alarms, "outlier_p": round(p, 6)}

    return AnswerRule(
        apply=apply,
        columns=("outlier", "outlier_p"),
        digest=outliers.digest,
        mark=outliers.answers,
        judge="manyheads.plugins.judge.decisions:outlier_rows",
        fitted=(outliers, alarms),
        set_on=outliers.of_rows,
        refusal="outliers.false_alarms is set by the rows of {source}, which are judged: judge others",
    )


def set_outliers(config: AnswerSettings, folder: ModelFolder, classifier: TextClassifier) -> Outliers:
    """What is kept in the model folder, else fitted on the data of its run and kept there.

    Raises:
        UserError: the run's data is not there, or has too few validation rows for so few false alarms.
    """
    file, of_model, alarms = folder.path / OUTLIERS, _digest(folder), config.outliers.false_alarms
    found = read_outliers(file, of_model, classifier.settings.vocab_size, classifier.network.head.in_features)
    if found is None:
        home = learnt_in(folder.path)
        if home is None:
            raise UserError(
                f"run={config.run} is a model without its run folder, whose rows outliers.false_alarms={alarms:g} is "
                "set by: name the run folder"
            )
        run = read_run(home / "config.yaml")
        require_held_out(run, "outliers.false_alarms", "remove it, or train with other validation rows")
        splits = read_rows(run, with_test=False)
        require_same(splits, "validation", home, "remove outliers.false_alarms")
        found = fit_outliers(classifier, splits.train, splits.validation, config.batch.tokens or ANSWER_TOKENS)
        found.of_rows = splits.validation.digest(splits.labels)
        try:
            write_outliers(found, file, of_model)
        except OSError as error:
            print(one_line(f"{file} cannot be written ({error.strerror}): it is made again each time"), file=sys.stderr)
    if (1 + len(found.scores_Z)) * alarms < 1:
        least = math.ceil(1e6 / (1 + len(found.scores_Z))) / 1e6
        raise UserError(
            f"outliers.false_alarms={alarms:g} needs more than {len(found.scores_Z):,} validation rows: set "
            f"{least:g} or more"
        )
    return found


def _digest(folder: ModelFolder) -> str:
    """Of the files that vectors and tokens follow from."""
    digests = []
    for name in (WEIGHTS, "tokenizer.json", "config.json"):
        with (folder.path / name).open("rb") as file:
            digests.append(file_digest(file, "sha256").hexdigest())
    return sha256("".join(digests).encode()).hexdigest()


def write_outliers(found: Outliers, file: Path, of_model: str) -> None:
    """The file appears whole or not at all."""
    tensors = {"mean": found.mean_D, "whiten": found.whiten_DD, "surprise": found.surprise_V}
    tensors |= {"spreads": found.spreads_2, "scores": found.scores_Z}
    about = {"format": FORMAT, "model": of_model, "rows": found.of_rows, "scripts": json.dumps(sorted(found.scripts))}
    with replace_file(file) as part:
        save_file(tensors, part, about)


def read_outliers(file: Path, of_model: str, vocab_size: int, width: int) -> Outliers | None:
    """What was written for this model; None where there is nothing, or it is of another one.

    Raises:
        UserError: the file is broken.
    """
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            about = opened.metadata() or {}
            if (about.get("format"), about.get("model")) != (FORMAT, of_model):
                return None
            names = ("mean", "whiten", "surprise", "spreads", "scores")
            tensors = [opened.get_tensor(name) for name in names]
            scripts = frozenset(str(script) for script in json.loads(about.get("scripts", "[]")))
        mean_D, whiten_DD, surprise_V, spreads_2, scores_Z = tensors
        shapes = [(width,), (width, width), (vocab_size,), (2,), (len(scores_Z),)]
        fits = [tuple(tensor.shape) for tensor in tensors] == shapes
        fits = fits and all(tensor.dtype == torch.float64 for tensor in tensors)
    except (OSError, SafetensorError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{file} is broken ({one_line(str(error))}): remove it, and it is made again") from error
    if not fits:
        raise UserError(f"{file} is not of the sizes of its model: remove it, and it is made again")
    return Outliers(mean_D, whiten_DD, surprise_V, spreads_2, scripts, scores_Z, about.get("rows", ""))


def script_of(text: str) -> str:
    """The writing system of most letters at the beginning of a text, by Unicode's names of them, such as `latin` or
    `cjk`; `none` where there is no letter."""
    letters = (sign for sign in text if sign.isalpha())
    counts = Counter(map(_script_of_letter, islice(letters, LETTERS)))
    if not counts:
        return "none"
    return counts.most_common(1)[0][0]


@lru_cache(maxsize=2**14)
def _script_of_letter(letter: str) -> str:
    return re.split("[ -]", unicodedata.name(letter, "unknown"))[0].lower()
