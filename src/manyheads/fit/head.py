"""The head of trained weights before the first step: a linear classifier of what they see in the training rows.

A head that begins at random sends noise down into good weights until it has learnt: Kumar et al. (2022), "Fine-Tuning
can Distort Pretrained Features and Underperform Out-of-Distribution", section 4 (LP-FT).

n rows . D width of what the head sees . C classes
"""

import torch
from torch import Tensor

from manyheads.config import RunConfig
from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.tokens import Tokens
from manyheads.fit.hardware import autocast_type, uses_gpu
from manyheads.fit.logistic import logistic
from manyheads.nn import Classifier
from manyheads.ranks import this_process

MOST_ROWS = 4096  # that are read for it
STRENGTH = 0.1  # of the rows against the pull to zero: a head that knows few rows by heart leaves nothing to learn


@torch.no_grad()
def begin_head(run: RunConfig, classifier: Classifier, tokens: Tokens) -> None:
    """Fit the head to at most `MOST_ROWS` training rows, drawn at even distances, where these are few. No generator is
    touched."""
    rows = torch.arange(min(MOST_ROWS, len(tokens))) * len(tokens) // min(MOST_ROWS, len(tokens))
    labels = tokens.labels[rows]
    weight_CD, bias_C = linear(seen(run, classifier, tokens, rows), labels, classifier.head.out_features)
    classifier.head.weight.copy_(weight_CD)
    classifier.head.bias.copy_(bias_C)


def seen(run: RunConfig, classifier: Classifier, tokens: Tokens, rows: Tensor) -> Tensor:
    """What the head sees in `rows`, as without dropout: `(n, D)` on the CPU, of a text in several parts their mean."""
    on_gpu, dtype = uses_gpu(run.hardware.accelerator), autocast_type(run.hardware)
    device = torch.device("cuda", this_process().local_rank) if on_gpu else torch.device("cpu")
    plan = plan_evaluation(tokens.lengths[rows], tokens=run.batch.tokens, rows=run.batch.rows)
    found = torch.empty(len(rows), classifier.head.in_features)
    classifier.to(device).eval()
    with torch.autocast(device.type, dtype, enabled=dtype is not None):
        for batch in Batches(tokens, [one._replace(rows=rows[one.rows]) for one in plan]):
            near = batch.to(device)
            vectors_BD = near.layout.pooled(classifier.read(near.ids_N, near.layout, near.segments_N))
            found[torch.searchsorted(rows, batch.rows_B)] = vectors_BD.float().cpu()
    classifier.cpu().train()
    return found


def linear(x_nD: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Matrix `(C, D)` and bias `(C,)` of the logistic regression of `labels`, class ids `(n,)` or marks `(n, C)`."""
    middle_D, size = x_nD.mean(0), x_nD.norm(dim=1).mean().clamp(min=1e-6)
    weight_CD, bias_C = logistic((x_nD - middle_D) / size, labels, n_classes, strength=STRENGTH)
    weight_CD = weight_CD / size
    return weight_CD, bias_C - weight_CD @ middle_D
