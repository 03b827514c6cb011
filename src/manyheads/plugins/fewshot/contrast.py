"""With few rows an encoder is first fine-tuned until texts of one class are nearer to each other than to all others.

Khosla et al. (2020), "Supervised Contrastive Learning", section 3.2.2, on the vectors that the head reads. That
encoders of sentences learn so from few rows, before a head is fitted: Tunstall et al. (2022), "Efficient Few-Shot
Learning Without Prompts" (SetFit).

B documents . D width of what the head sees
"""

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.data.batches import Planned, gather
from manyheads.data.tokens import Tokens
from manyheads.distributed.heartbeat import beat
from manyheads.inference.precision import DTYPES, choose_device, choose_precision, multiplying_in
from manyheads.nn import Classifier
from manyheads.terminal import progress_bar
from manyheads.training.build import fit_head
from manyheads.training.optim import clip_gradients, freeze

ROWS, MOST_ROWS = 16, 64  # of a step: at least two of each class in it, and of many classes more rows
TEMPERATURE = 0.1
WARMUP = 0.1  # share of the steps
WEIGHT_DECAY, CLIP = 0.01, 1.0
log = logging.getLogger("manyheads")


def begin(run: Any, network: Classifier, tokens: Tokens, labels: list[str], *, first: bool) -> None:
    """With at most `optim.contrast` rows per class: learn by contrast if these are the `first` weights, and let
    training change the head alone, which is fitted to the encoder as it is then."""
    at_n = rows_that_count(tokens)
    if not run.optim.contrast or len(at_n) > run.optim.contrast * len(labels):
        return
    if tokens.probabilities_nC is not None:
        log.info("no contrast, as rows have probabilities of classes")
        return
    if tokens.labels[at_n].bincount().max() < 2:
        return
    freeze(network, run.optim)
    if not any(one.requires_grad for one in network.encoder.parameters()):
        return
    kept = ("head.", "embeddings.")  # the head is fitted next, and word vectors gain nothing
    weights = [one for name, one in network.named_parameters() if one.requires_grad and not name.startswith(kept)]
    if first:
        learn(run, network, tokens, weights)
        if not run.optim.are_few(len(tokens), len(labels)):  # otherwise what follows does it
            fit_head(run, network, tokens)
    for name, one in network.named_parameters():
        one.requires_grad_(name.startswith("head."))


def learn(run: Any, network: Classifier, tokens: Tokens, weights: list[nn.Parameter]) -> None:
    """Fine-tune the `weights` of encoder and pooling, `optim.contrast_epochs` times over the rows, in no more steps
    than training may have.

    The order of rows and the dropout follow from the seed of the run alone, and torch's generators are left as they
    were. Word vectors stay as they are: to learn them gains nothing.
    """
    at_n = rows_that_count(tokens)
    n_rows = rows_of_step(tokens, len(tokens.labels[at_n].unique()), run.batch.tokens)
    n_steps = max(1, round(run.optim.contrast_epochs * len(at_n) / n_rows))
    most = run.trainer.get("max_steps")
    if most not in (None, -1):
        n_steps = min(n_steps, most)
    log.info("the encoder is fine-tuned by contrast for %d steps; then the head learns alone", n_steps)
    device = choose_device(run.hardware)
    dtype = DTYPES[choose_precision(run.hardware.precision, device)]
    for one in network.parameters():
        one.requires_grad_(any(one is weight for weight in weights))
    optimizer = torch.optim.AdamW(weights, run.optim.contrast_lr, weight_decay=WEIGHT_DECAY)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
    network.to(device).train()
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        torch.enable_grad(),
        progress_bar(n_steps, "contrast") as progress,
    ):
        torch.manual_seed(run.seed)
        order = torch.Generator().manual_seed(run.seed)
        for step in range(n_steps):
            beat()
            batch = gather(tokens, Planned(at_n[draw_rows(tokens.labels[at_n], n_rows, order)], 1.0)).to(device)
            with multiplying_in(dtype, device):
                vectors_BD = batch.layout.pooled(network.read(batch.ids_N, batch.layout, batch.segments_N))
            scaler.scale(contrastive_loss(vectors_BD.float(), batch.labels_B)).backward()
            scaler.unscale_(optimizer)
            clip_gradients(network, CLIP, "norm")
            optimizer.param_groups[0]["lr"] = run.optim.contrast_lr * rate(step, n_steps)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            progress(1)
    network.cpu()


def rows_that_count(tokens: Tokens) -> Tensor:
    """The numbers of the rows `(n,)` whose weight is above 0."""
    return torch.arange(len(tokens)) if tokens.weights_n is None else tokens.weights_n.nonzero().flatten()


def rows_of_step(tokens: Tokens, n_classes: int, most_tokens: int) -> int:
    """How many rows a step has: with many classes two of each, up to `MOST_ROWS`, as in small steps classes that are
    easily confused rarely meet; but no more than fit into `most_tokens` if all texts were as long as the longest."""
    longest = int(tokens.offsets.diff().max())
    return max(ROWS, min(2 * n_classes, MOST_ROWS, most_tokens // longest))


def draw_rows(labels: Tensor, n_rows: int, order: torch.Generator) -> Tensor:
    """At most `n_rows` rows of a step `(B,)`: as many of each class, at least two if it has them, of as many classes as
    fit."""
    classes = labels.unique()
    n_classes = min(len(classes), n_rows // 2)
    drawn = []
    for label in classes[torch.randperm(len(classes), generator=order)[:n_classes]]:
        rows = (labels == label).nonzero().flatten()
        drawn.append(rows[torch.randperm(len(rows), generator=order)[: n_rows // n_classes]])
    return torch.cat(drawn)


def contrastive_loss(vectors_BD: Tensor, labels_B: Tensor) -> Tensor:
    """The mean over rows of minus the log probability, among all other rows, of those of its class."""
    unit_BD = F.normalize(vectors_BD, dim=1)
    itself_BB = torch.eye(len(labels_B), dtype=torch.bool, device=labels_B.device)
    scores_BB = (unit_BD @ unit_BD.T / TEMPERATURE).masked_fill(itself_BB, -torch.inf)
    logs_BB = scores_BB.log_softmax(1)
    same_BB = (labels_B[:, None] == labels_B) & ~itself_BB
    n_same_B = same_BB.sum(1)
    losses_B = -logs_BB.where(same_BB, 0.0).sum(1) / n_same_B.clamp(min=1)
    return losses_B.sum() / (n_same_B > 0).sum().clamp(min=1)


def rate(step: int, n_steps: int) -> float:
    """The share of the peak rate in a step: up in the first tenth, then down to the end."""
    return min((step + 1) / max(1.0, WARMUP * n_steps), (n_steps - step) / ((1 - WARMUP) * n_steps))
