"""What each token adds to an answer, next to the attention it gets: integrated gradients by Captum.

Sundararajan, Taly and Yan (2017), "Axiomatic Attribution for Deep Networks", section 3: the gradient of a class's
logit is averaged along the straight line from a text without words to the text, and multiplied by the way. The sum over
tokens is then the difference of the two logits (completeness, proposition 1): by how much it is not says how far the
figures can be trusted. Positions and segments stay all the way.

Without words means word vectors of zero, as in a text whose every token is silent. Where nothing is added to words the
first norm would then see zero vectors, where it is discontinuous (a hundredth of a word is the whole word to it): no
number of points would suffice. Such a model starts from the mean of its word vectors.

L tokens of the text . B copies of it along the line . D d_model . C classes
"""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from manyheads.data.batches import Batch
from manyheads.data.class_names import ClassLookup
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier, likeliest_of
from manyheads.layout import Packed
from manyheads.nn import Classifier
from manyheads.plugins.interpret.maps import look_at_batch, only_batch, places, read_words
from manyheads.plugins.interpret.shown import NO_CAPTUM, short
from manyheads.plugins.interpret.statistics import received
from manyheads.runs.files import write_json
from manyheads.terminal import say

STEPS = (32, 64, 128, 256, 512)  # each is tried until the sum is as near as NEAR
NEAR = 0.01
MOST_DRAWN = 60  # tokens of a table or picture; of a longer text those that add most, in their order
MOST_SHOWN = 12  # on the terminal


@dataclass(slots=True)
class Attribution:
    """What each token of a text adds to the logit of a class.

    Attributes:
        tokens: their letters.
        added: what each adds.
        attention: what each gets, the mean over queries, heads and layers.
        logit: of the text.
        baseline: the logit of the same text without words.
        error: the sum of `added`, less the difference of these two.
        steps: points on the line between them.
    """

    label: str
    tokens: list[str]
    added: list[float]
    attention: list[float]
    logit: float
    baseline: float
    error: float
    steps: int

    @property
    def off(self) -> float:
        """The error as a share of the difference."""
        return abs(self.error) / max(abs(self.logit - self.baseline), 1e-12)

    @property
    def completeness(self) -> str:
        """The check of Sundararajan et al.: attributions sum to the difference of two logits."""
        return f"the words add {sum(self.added):+.3f} to the logit of {self.label}, exact to {self.off:.2%}"

    def largest(self, n: int) -> list[int]:
        """The tokens that add or take most, most first."""
        return sorted(range(len(self.added)), key=lambda token: -abs(self.added[token]))[:n]

    @property
    def rows(self) -> list[tuple[str, float, float, float]]:
        """Of the tokens drawn, in their order: letters, what each adds, that as a share of the largest, attention."""
        most = max(map(abs, self.added)) or 1.0
        rows = []
        for at in sorted(self.largest(MOST_DRAWN)):
            rows.append((self.tokens[at], self.added[at], abs(self.added[at]) / most, self.attention[at]))
        return rows


def attribute(
    predictor: TextClassifier, text: str, pair: str | None = None, *, label: str = "", tokens: int = 4096
) -> Attribution:
    """Attribute the network's logit of `label`, else of the class that is answered, to the tokens of a text or pair; in
    fp32.

    Args:
        tokens: most tokens that go through the model together.

    Raises:
        UserError: Captum is not installed, no such class, or not the kind of text the model takes.
    """
    if label:
        label = ClassLookup(predictor.labels, any_case=True).find(label)
        if label not in predictor.labels:
            raise UserError(f"{label} is not a class of the model: choose one of {', '.join(predictor.labels)}")
    (text,) = predictor.as_read([text])
    in_fp32 = replace(predictor, autocast=None)
    batch = only_batch(in_fp32, text, pair)
    maps = look_at_batch(in_fp32, batch)
    if not label:
        (prediction,) = predictor.predict([text], None if pair is None else [pair], network_nC=maps.logits_BC)
        label = likeliest_of(prediction)
    answer = predictor.labels.index(label)
    logits = from_word_vectors(predictor.network, batch)
    with torch.no_grad():
        words_LD = predictor.network.embeddings.words(batch.ids_N)
        embeddings = predictor.network.embeddings
        marked = embeddings.segments is not None and batch.segments_N is not None and predictor.network.cross is None
        mean_D = embeddings.words.weight.mean(0)
        nothing_D = torch.zeros_like(mean_D) if marked or embeddings.positions is not None else mean_D
        nothing_LD = nothing_D.expand_as(words_LD)
        logit, baseline = logits(torch.stack([words_LD, nothing_LD]))[:, answer].tolist()
    most = max(tokens // len(batch.ids_N), 1)
    added_L, steps = integrated_gradients(logits, words_LD, nothing_LD, answer, logit - baseline, most=most)
    reading = read_words(predictor.tokenizer, text, pair, predictor.max_length, predictor.cutting)
    return Attribution(
        label=predictor.labels[answer],
        tokens=[word.text for word in reading.words],
        added=added_L.tolist(),
        attention=received(maps, len(batch.ids_N)).tolist(),
        logit=logit,
        baseline=baseline,
        error=float(added_L.sum()) - (logit - baseline),
        steps=steps,
    )


def from_word_vectors(classifier: Classifier, batch: Batch) -> Callable[[Tensor], Tensor]:
    """The classifier as a function of the word vectors of one document: `(B, L, D)` to logits `(B, C)`."""
    lengths = batch.layout.lengths_B.tolist()

    def logits(words_BLD: Tensor) -> Tensor:
        n = len(words_BLD)
        counts, segments_N = None, None
        if batch.layout.counts_R is not None:  # a document is read in several windows
            counts = batch.layout.counts_R.tolist() * n
        if batch.segments_N is not None:
            segments_N = batch.segments_N.repeat(n)
        layout = Packed.of_lengths(lengths * n, counts).to(words_BLD.device)
        ids_N = batch.ids_N.repeat(n)
        words_PD = words_BLD.flatten(0, 1)[places(classifier, layout, segments_N)]
        with classifier.embeddings.words.register_forward_hook(lambda words, args, output: words_PD):
            return classifier(ids_N, layout, segments_N)

    return logits


def integrated_gradients(
    logits: Callable[[Tensor], Tensor],
    words_LD: Tensor,
    nothing_LD: Tensor,
    answer: int,
    difference: float,
    *,
    most: int,
) -> tuple[Tensor, int]:
    """What each token adds, `(L,)`, and the number of points; more are taken until the sum is near `difference`.

    Args:
        nothing_LD: where the line begins.
        answer: the class whose logit is attributed.
        difference: the logit of the text, less that at the beginning.
        most: points that go through the model together.

    Raises:
        UserError: Captum is not installed.
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise UserError(NO_CAPTUM) from error
    added_L, steps = torch.zeros(len(words_LD)), 0
    for steps in STEPS:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="captum")
            added_1LD = IntegratedGradients(logits, multiply_by_inputs=True).attribute(
                words_LD[None], nothing_LD[None], answer, n_steps=steps, internal_batch_size=most
            )
        added_L = added_1LD[0].sum(-1).detach().cpu()
        if abs(float(added_L.sum()) - difference) <= NEAR * abs(difference):
            break
    return added_L, steps


def write_attribution(page: Path, found: Attribution) -> Path:
    """Write `<page>-attribution.json` next to the page, whole or not at all."""
    record = page.with_name(f"{page.stem}-attribution.json")
    write_json(record, asdict(found))
    return record


def show_attribution(found: Attribution) -> None:
    """Print whether the parts make up the whole, and the tokens that add or take most."""
    say(f"  {found.completeness}")
    widest = max(len(short(token)) for token in found.tokens)
    for token in found.largest(MOST_SHOWN):
        letters = f"{short(found.tokens[token]):{widest}}"
        say(f"  {letters}  adds {found.added[token]:+.3f}  attention {found.attention[token]:.3f}")
