"""What a run trains: the network with its first weights, and the objective.

B documents . n rows . D width of what the head sees . C classes
"""

import copy
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.config import OptimConfig, PairKind, RunConfig
from manyheads.config.facts import hooks
from manyheads.data.batches import Batch
from manyheads.data.rows import Splits
from manyheads.data.tokenizer import kept_ids, load_tokenizer, tokenizer_sizes
from manyheads.data.tokens import Tokens
from manyheads.distributed.heartbeat import beat
from manyheads.errors import UserError
from manyheads.inference.batching import run_batches
from manyheads.inference.origin import find_origin, n_words
from manyheads.inference.precision import DTYPES, choose_device, choose_precision
from manyheads.linear.fit import logistic
from manyheads.nn import Classifier
from manyheads.nn.classifier import OwnNetwork
from manyheads.training.weights import SeenWords, load_pretrained

MOST_ROWS = 4096  # that the head is fitted to before training

Network = Any  # the module that `Task.assemble` makes


def assemble_network(run: RunConfig, splits: Splits, tokenizer: Tokenizer, own: nn.Module | None = None) -> Network:
    """The network before training: the architecture of `run.model` in the sizes that the data needs, with the weights
    of `run.init_from`.

    Its embedding has a row for every id, also those that a tokenizer which was not trained here leaves out.

    Args:
        own: a user's module to train in its place; a copy is made.

    Raises:
        UserError: the weights of `run.init_from` do not fit.
    """
    origin = find_origin(run.init_from, run.model.encoder) if run.init_from else None
    pairs = splits.train.pairs is not None
    pl.seed_everything(run.seed, workers=True, verbose=False)
    n_ids = tokenizer_sizes(tokenizer, pairs=pairs).n_ids
    kept = None
    if origin is not None and n_ids != origin.vocab_size:  # a plugin may have made it smaller
        kept = kept_ids(tokenizer, load_tokenizer(origin.tokenizer, pairs=pairs))
    n_rows = n_words(origin, n_ids if kept is None else max(kept) + 1, run)
    sizes = {"vocab_size": n_rows, "max_length": run.data.max_length}
    if own is not None:
        return OwnNetwork(copy.deepcopy(own), n_ids)
    sizes |= {"n_classes": len(splits.labels), "n_segments": 2 if pairs else 0}
    network = plugin.resolve(plugin.task(run.task).assemble)(run.model, **sizes)
    load_pretrained(network, origin)
    if kept is not None:  # only now, so that the rest begins with the same random numbers
        network.words.weight = nn.Parameter(network.words.weight.detach()[kept])
        network.words.num_embeddings = len(kept)
    return network


def make_objective(run: RunConfig, tokens: Tokens, labels: list[str]) -> Any:
    """The objective of the run's task, see `manyheads.hooks.Task`; `tokens` are the training rows."""
    return plugin.resolve(plugin.task(run.task).objective)(run, tokens, labels)


def compares_trained(run: RunConfig) -> bool:
    """Whether `run` compares vectors of trained weights: then the head is fitted whatever the number of rows, and the
    network learns at a lower rate."""
    return bool(run.init_from) and run.task == "classify" and run.model.pair is PairKind.compare


def optim_of(run: RunConfig) -> OptimConfig:
    """`run.optim` with the rate that its network learns at."""
    return replace(run.optim, lr=run.optim.lr * run.optim.compare_rate) if compares_trained(run) else run.optim


def prepare_weights(run: RunConfig, network: Network, tokens: Tokens, labels: list[str], *, first: bool) -> None:
    """Before the first step of a process: what plugins do to the weights, or freeze (`Section.begin`); then `fit_head`,
    with few training rows, `tokens`, or where trained vectors are compared. Only where these are the `first` weights
    of the run are they changed."""
    words = getattr(network, "words", None)
    held_VD = words.all_VD if isinstance(words, SeenWords) else torch.empty(0)
    version = held_VD._version  # which rises with each change
    for begin in hooks(run, "begin"):
        begin(run, network, tokens, labels, first=first)
    if isinstance(words, SeenWords):
        moved = words.all_VD is not held_VD and not words.all_VD.cpu().equal(held_VD)  # as to a GPU and back
        if moved or held_VD._version != version:
            raise UserError(
                "begin of a plugin changes vectors of words that no training text has, which no checkpoint holds: "
                "change those in network.words.weight alone"
            )
    few = run.task == "classify" and run.optim.are_few(len(tokens), len(labels))
    if first and (few or compares_trained(run)):
        fit_head(run, network, tokens)


@torch.no_grad()
def fit_head(run: RunConfig, classifier: Classifier, tokens: Tokens) -> None:
    """Fit the head by logistic regression to at most `MOST_ROWS` evenly spaced training rows, without random numbers.
    A head that fits few rows perfectly would leave an encoder no gradient to learn from: its penalty is a strong one.

    The gradients of a random head distort trained weights until it has learnt: Kumar et al. (2022), "Fine-Tuning can
    Distort Pretrained Features and Underperform Out-of-Distribution", section 4 (LP-FT).
    """
    n_rows = min(MOST_ROWS, len(tokens))
    rows = torch.arange(n_rows) * len(tokens) // n_rows
    labels, multi = tokens.labels[rows].long(), tokens.labels.ndim == 2
    if tokens.probabilities_nC is not None and tokens.any_of_n is None:  # votes, or the answers of a teacher
        labels = tokens.probabilities_nC[rows]
    x_nD = extract_features(run, classifier, tokens, rows)
    weights_n = None if tokens.weights_n is None else tokens.weights_n[rows]
    n_classes, strength = classifier.head.out_features, run.optim.strength_of(run.model)
    weight_CD, bias_C = logistic(x_nD, labels, n_classes, multi=multi, strength=strength, weights_n=weights_n)
    classifier.head.weight.copy_(weight_CD)
    classifier.head.bias.copy_(bias_C)


def extract_features(run: RunConfig, classifier: Classifier, tokens: Tokens, rows: Tensor) -> Tensor:
    """The input of the head for `rows`, without dropout: `(n, D)` on the CPU. A text in parts has their mean."""
    device = choose_device(run.hardware)
    dtype = DTYPES[choose_precision(run.hardware.precision, device)]

    def read(batch: Batch) -> Tensor:
        beat()
        return batch.layout.pooled(classifier.read(batch.ids_N, batch.layout, batch.segments_N)).float()

    classifier.to(device).eval()
    most = {"tokens": run.batch.tokens, "rows": run.batch.rows}
    features = run_batches(read, tokens, device=device, autocast=dtype, **most, among=rows)
    classifier.cpu().train()
    return features.values
