"""What a smaller tokenizer changes: the share of validation rows that get another label than with the whole one.

n rows that are looked at . C labels
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import manyheads.plugin as plugin
from manyheads.config.facts import hooks
from manyheads.data.batches import Batch
from manyheads.data.prepare_tokens import given_tokenizer, splits_as_read
from manyheads.data.tokenizer import kept_ids
from manyheads.data.tokens import Tokens, encode
from manyheads.evaluation.intervals import share_interval
from manyheads.inference.batching import run_batches
from manyheads.inference.format import open_folder, read_thresholds
from manyheads.linear.thresholds import given_of, probabilities_of
from manyheads.nn import Classifier
from manyheads.plugins.trim.config import Trim
from manyheads.runs.summary import Interval
from manyheads.training.build import assemble_network
from manyheads.training.context import RunContext
from manyheads.training.weights import WORDS

MOST_ROWS = 1000  # that are looked at, evenly spread
FIGURE = "labels changed by tokenizer.trim"


@torch.no_grad()
def changed_labels(context: RunContext) -> dict[str, Interval]:
    """Of validation rows the share whose label, by the network alone, changes where the entries that were dropped come
    back with the vectors of the weights that the run began with. With several labels a row: whether any changes.

    Rows that have none of these entries are read alike by both, so only the others are answered, twice.
    """
    run: Any = context.run
    if run.tokenizer.trim is Trim.none or not plugin.task(run.task).has_classes:
        return {}
    rows = splits_as_read(context.splits).validation
    n = min(MOST_ROWS, len(rows))
    rows = rows.pick(np.arange(n) * len(rows) // n)
    whole = given_tokenizer(run, pairs=rows.pairs is not None)
    untrimmed = replace(run, tokenizer=replace(run.tokenizer, trim=Trim.none))
    for change in hooks(untrimmed, "tokenizer"):  # of other plugins, which may add entries
        whole = change(untrimmed, context.splits, whole)
    kept = kept_ids(context.tokenizer, whole)
    if kept is None:
        return {FIGURE: share_interval(0, n)}
    tokens: list[Tokens] = []
    for tokenizer in (context.tokenizer, whole):
        texts, pairs = rows.texts[:], None if rows.pairs is None else rows.pairs[:]
        tokens.append(encode(tokenizer, texts, pairs, None, run.data.max_length, run.data.cutting))
    changed = rows_that_differ(tokens[0], tokens[1], torch.tensor(kept))
    if not changed.numel():
        return {FIGURE: share_interval(0, n)}

    network = assemble_network(run, context.splits, whole).eval()
    state = context.network.state_dict()
    words = network.state_dict()[WORDS]
    words[kept] = state[WORDS]
    network.load_state_dict(state | {WORDS: words})
    thresholds = None
    if context.splits.multi:
        folder = open_folder(context.folder / "model")
        of_members = read_thresholds(folder.path / "thresholds.json", folder.settings)
        thresholds = of_members.get("network", of_members["both"])
    before = answers_to(context.network, tokens[0], changed, thresholds)
    after = answers_to(network, tokens[1], changed, thresholds)
    return {FIGURE: share_interval(int((before != after).any(1).sum()), n)}


def rows_that_differ(small: Tokens, whole: Tokens, kept: Tensor) -> Tensor:
    """The numbers of the rows that have other tokens. `kept`: ids of the whole tokenizer, by those of the small one."""
    ids_N, found = kept[small.ids_N.long()], []
    for row in range(len(small)):
        of_row = [ids[one.offsets[row] : one.offsets[row + 1]] for one, ids in ((small, ids_N), (whole, whole.ids_N))]
        if not torch.equal(of_row[0], of_row[1].long()):
            found.append(row)
    return torch.tensor(found, dtype=torch.int64)


def answers_to(classifier: Classifier, tokens: Tokens, rows: Tensor, thresholds: list[float] | None) -> Tensor:
    """Which labels each row is given, from its `thresholds` on or, if these are None, by the likeliest: `(n, C)`."""

    def answer(batch: Batch) -> Tensor:
        return classifier(batch.ids_N, batch.layout, batch.segments_N).float()

    logits_nC = run_batches(answer, tokens, among=rows).values
    return given_of(probabilities_of(logits_nC, multi=thresholds is not None), thresholds)
