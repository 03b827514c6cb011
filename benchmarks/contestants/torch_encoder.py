"""`nn.TransformerEncoder` in a bare loop, with our batches and precision."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contestants.ours import LOG_EVERY, counts, endless, our_run
from contestants.settings import CLIP, DROPOUT, LR, N_STEPS, VOCAB_SIZE, WEIGHT_DECAY, Shape, Text
from contestants.texts import n_classes
from contestants.turns import Turns
from manyheads.data.batches import Batch
from manyheads.data.tokens import Tokens
from manyheads.inference.precision import cpu_multiplies_bf16


class TorchClassifier(nn.Module):
    """Words and learned positions, the encoder, a mean over real tokens, a linear classifier."""

    def __init__(self, shape: Shape, text: Text, n_classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB_SIZE, shape.d_model)
        self.positions = nn.Embedding(text.max_length, shape.d_model)
        self.dropout = nn.Dropout(DROPOUT)
        layer = nn.TransformerEncoderLayer(
            shape.d_model, shape.n_heads, shape.d_ff, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, shape.n_layers, norm=nn.LayerNorm(shape.d_model), enable_nested_tensor=False
        )
        self.head = nn.Linear(shape.d_model, n_classes)

    def forward(self, ids_BL: Tensor, keep_BL: Tensor) -> Tensor:
        x_BLD = self.words(ids_BL) + self.positions(torch.arange(ids_BL.size(1)))
        x_BLD = self.encoder(self.dropout(x_BLD), src_key_padding_mask=None if keep_BL.all() else ~keep_BL)
        mean_BD = (x_BLD * keep_BL[..., None]).sum(1) / keep_BL.sum(1, keepdim=True)
        return self.head(self.dropout(mean_BD))


def by_hand(shape: Shape, text: Text, tokens: Tokens, turns: Turns) -> None:
    torch.manual_seed(0)
    network = TorchClassifier(shape, text, n_classes(tokens))
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, N_STEPS)
    for step, batch in enumerate(endless(our_run(shape, text), tokens)):
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu_multiplies_bf16()):
            loss = F.cross_entropy(network(*padded(batch)).float(), batch.labels_B)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            loss.item()
        turns.step(*counts(batch.layout))


def padded(batch: Batch) -> tuple[Tensor, Tensor]:
    """The same rows side by side: ids and which of them are real, `(B, L)`."""
    n_real = int(batch.layout.offsets[-1])
    rows = batch.ids_N[:n_real].split(batch.layout.lengths_B.tolist())
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True), batch.layout.keep_BL
