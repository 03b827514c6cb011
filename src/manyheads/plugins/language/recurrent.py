"""What came before self-attention: recurrent layers, and an attention over their states.

... tokens in a layout (N packed, or B L padded) . B documents . L query positions . M positions of the memory
D d_model . S layers of a stack
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from manyheads.config import ModelConfig
from manyheads.layout import Layout, Padded
from manyheads.nn.attention import Normaliser, Score, make_score, softmax
from manyheads.nn.dropout import Dropout
from manyheads.nn.kernels import attention
from manyheads.nn.parts import make_block
from manyheads.plugins.language.decoder import KeysValues

Hidden = tuple[Tensor, ...]
"""The states `(S, B, D)` of all layers after a token; an LSTM's are followed by its cells."""


class Recurrent(nn.Module):
    """Layers of GRU (Cho et al., 2014) or LSTM (Hochreiter and Schmidhuber, 1997), dropout on the output of each; read
    both ways, each has half the width in each direction, and its states are both side by side."""

    def __init__(
        self, *, kind: str, d_model: int, n_layers: int, bidirectional: bool, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        assert d_model % (1 + bidirectional) == 0, "ModelConfig refuses an odd width that is read both ways"
        self.d_model, self.n_layers, self.n_states = d_model, n_layers, 2 if kind == "lstm" else 1
        self.bidirectional = bidirectional
        self.cells = {"gru": nn.GRU, "lstm": nn.LSTM}[kind](
            d_model,
            d_model // (1 + bidirectional),
            n_layers,
            bias=bias,
            batch_first=True,
            dropout=dropout if n_layers > 1 else 0.0,  # torch's is between the layers alone
            bidirectional=bidirectional,
        )
        self.dropout = Dropout(dropout)

    def init_weights(self) -> None:
        """Each gate's matrices by themselves; torch keeps an LSTM's gates in the order input, forget, cell, output."""
        for name, parameter in self.cells.named_parameters():
            if name.startswith("weight_ih"):
                for weight in parameter.split(self.cells.hidden_size):
                    nn.init.xavier_uniform_(weight)
            elif name.startswith("weight_hh"):
                for weight in parameter.split(self.cells.hidden_size):
                    nn.init.orthogonal_(weight)
            else:
                nn.init.zeros_(parameter)
                if isinstance(self.cells, nn.LSTM) and name.startswith("bias_ih"):
                    nn.init.ones_(parameter.split(self.cells.hidden_size)[1])

    def forward(self, x: Tensor, layout: Layout, first: Hidden | None = None) -> Tensor:
        """Tokens `(..., D)` to the top layer's states `(..., D)`; what follows a document is never read.
        `first` are the states before the first token; default: zeros."""
        if torch.compiler.is_exporting() and isinstance(layout, Padded):
            return self._scanned(x, layout)
        n_documents, longest = layout.n_documents, layout.longest
        none, short = int(n_documents == 0), int(longest == 0)  # torch reads no empty batch and no empty document
        x_BLD = F.pad(self._in_own_type(layout.grid(x)), (0, 0, 0, short, 0, none))
        lengths_B = F.pad(layout.lengths_B.clamp(min=1), (0, none), value=1)
        if first is not None:
            first = tuple(F.pad(state_SBD, (0, 0, 0, none)) for state_SBD in first)
        packed = pack_padded_sequence(x_BLD, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = self._read(packed, first)
        states_BLD, _ = pad_packed_sequence(states, batch_first=True, total_length=longest + short)
        return self.dropout(layout.flat(states_BLD[:n_documents, :longest]))

    def _scanned(self, x_BLD: Tensor, layout: Padded) -> Tensor:
        """The same in a graph, which has no packed sequences: each direction of each layer is a loop over positions.
        What is read backwards is reversed first, so that padding still follows it."""
        every_L = torch.arange(x_BLD.size(1), device=x_BLD.device)
        turned_BL = torch.where(layout.keep_BL, layout.lengths_B[:, None] - 1 - every_L, every_L)

        def turn(x: Tensor) -> Tensor:
            return x.gather(1, turned_BL[..., None].expand(-1, -1, x.size(-1)))

        for at in range(0, len(self.cells.all_weights), 1 + self.bidirectional):
            forwards = self._loop(x_BLD, *self.cells.all_weights[at])
            if self.bidirectional:
                backwards = turn(self._loop(turn(x_BLD), *self.cells.all_weights[at + 1]))
                forwards = torch.cat([forwards, backwards], dim=-1)
            x_BLD = forwards
        return x_BLD

    def _loop(
        self, x_BLD: Tensor, w_in: Tensor, w_state: Tensor, b_in: Tensor | None = None, b_state: Tensor | None = None
    ) -> Tensor:
        """One layer in one direction: the equations of torch's GRU and LSTM."""
        from torch._higher_order_ops.scan import scan  # an operator of torch.export, which has no other name yet

        def gru(h: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
            r, z, n = gates.chunk(3, -1)
            r_h, z_h, n_h = F.linear(h, w_state, b_state).chunk(3, -1)
            new = (n + (r + r_h).sigmoid() * n_h).tanh()
            h = new + (z + z_h).sigmoid() * (h - new)
            return h, h.clone()

        def lstm(before: Hidden, gates: Tensor) -> tuple[Hidden, Tensor]:
            h, cell = before
            i, f, n, o = (gates + F.linear(h, w_state, b_state)).chunk(4, -1)
            cell = f.sigmoid() * cell + i.sigmoid() * n.tanh()
            h = o.sigmoid() * cell.tanh()
            return (h, cell), h.clone()

        start = x_BLD.new_zeros(x_BLD.size(0), w_state.size(1))
        gates_LBG = F.linear(x_BLD, w_in, b_in).transpose(0, 1)
        if self.n_states == 1:
            _, states_LBD = scan(gru, start, gates_LBG)
        else:
            _, states_LBD = scan(lstm, (start, start.clone()), gates_LBG)
        return states_LBD.transpose(0, 1)

    def step(self, x_B1D: Tensor, before: Hidden) -> tuple[Tensor, Hidden]:
        """Read one more token: the top layer's states `(B, 1, D)`, and those of all layers."""
        states_B1D, after = self._read(self._in_own_type(x_B1D), before)
        return self.dropout(states_B1D), after

    def _read(self, x: Any, first: Hidden | None) -> tuple[Any, Hidden]:
        """The outputs of the cells for `x`, in the type of their weights, and the states of all layers after it.

        Without autocast: it would run them in fp16 on a GPU, whatever type it is for, and nothing scales the loss then;
        on a CPU bf16 is no faster (123 against 150 ms). Each step would round.
        """
        given: Any = None  # a GRU takes one tensor, an LSTM a pair
        if first is not None:
            given = tuple(self._in_own_type(state_SBD) for state_SBD in first)
            if self.n_states == 1:
                (given,) = given
        with torch.autocast(self.cells.weight_hh_l0.device.type, enabled=False):
            states, after = self.cells(x, given)
        return states, after if isinstance(after, tuple) else (after,)

    def _in_own_type(self, x: Tensor) -> Tensor:
        return x.to(self.cells.weight_hh_l0.dtype)


class StateAttention(nn.Module):
    """tanh(W [c; q]): c, the states of a memory weighed by how well they match a query q, next to that query.

    Global attention of Luong et al. (2015), section 3.1, equations 5 to 8. The additive score is that of Bahdanau
    et al. (2015), appendix A.1.2; general, concat and dot are Luong's.
    """

    def __init__(self, *, d_model: int, score: Score, normaliser: Normaliser = softmax, dropout: float = 0.0) -> None:
        super().__init__()
        self.score, self.normalise, self.dropout = score, normaliser, dropout
        self.combine = nn.Linear(2 * d_model, d_model, bias=False)

    def forward(self, q: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Queries `(..., D)` in `layout` and a memory `(..., D)` in `memory_layout` to `(..., D)` in `layout`."""
        projected, keys = self.score.project(q.unsqueeze(-2), memory.unsqueeze(-2))
        context = attention(
            *(projected, keys, memory.unsqueeze(-2), layout, memory_layout),
            score=self.score,
            normalise=self.normalise,
            dropout=self.dropout if self.training else 0.0,
        )
        return self._combined(context.squeeze(-2), q)

    def keys_values(self, memory: Tensor, layout: Layout) -> KeysValues:
        """What `step` attends to, computed once."""
        _, keys = self.score.project(memory[:0].unsqueeze(-2), memory.unsqueeze(-2))
        return KeysValues.of_memory(keys, memory.unsqueeze(-2), layout)

    def step(self, q_B1D: Tensor, memory: KeysValues) -> Tensor:
        """As `forward`, for one query a document: `(B, 1, D)`."""
        projected_B11D, _ = self.score.project(q_B1D.unsqueeze(-2), q_B1D[:0].unsqueeze(-2))
        context_B11D = memory.answer(projected_B11D, self.score, self.normalise)
        return self._combined(context_B11D.squeeze(1), q_B1D)

    def _combined(self, context: Tensor, q: Tensor) -> Tensor:
        return self.combine(torch.cat((context, q), dim=-1)).tanh()


class StatePooling(nn.Module):
    """One vector a document: an attention over its states, whose query is the state that has read all of it.

    The query is no learned vector, so that what is looked for can depend on the text: as where a decoder with attention
    begins (Luong et al., 2015, section 3.1). A document without tokens becomes zeros.
    """

    def __init__(self, attention: StateAttention, *, bidirectional: bool) -> None:
        super().__init__()
        self.attention, self.bidirectional = attention, bidirectional

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """States `(..., D)` to documents `(B, D)`."""
        q_B1D = last_states(x, layout, bidirectional=self.bidirectional)[:, None]
        one = Padded(torch.ones(q_B1D.shape[:2], dtype=torch.bool, device=x.device))
        return self.attention(q_B1D, one, x, layout).squeeze(1)


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The state of a decoder after `position` tokens: those of all layers, and what is attended to."""

    position: int
    hidden: Hidden
    memory: KeysValues

    def take(self, rows: Tensor) -> "RecurrentState":
        """The state of documents `rows`, which may repeat, drop and reorder."""
        hidden = tuple(state_SBD.index_select(1, rows) for state_SBD in self.hidden)
        return RecurrentState(self.position, hidden, self.memory.take(rows))


class RecurrentDecoder(nn.Module):
    """Recurrent layers over the target, each state of which then attends to the memory: Luong et al. (2015), section 3.

    The path is h_t -> a_t -> c_t -> tanh(W [c_t; h_t]), without input feeding, so all targets are read in one go.
    The first states are tanh(W_s h) of the memory's last, as in Bahdanau et al. (2015), appendix A.2.2.
    """

    def __init__(self, recurrent: Recurrent, *, attention: StateAttention, bidirectional_memory: bool) -> None:
        super().__init__()
        assert not recurrent.bidirectional, "a token must not see those that it has to predict"
        self.recurrent, self.attention, self.bidirectional_memory = recurrent, attention, bidirectional_memory
        d_model = recurrent.d_model
        self.bridge = nn.Linear(d_model, recurrent.n_states * recurrent.n_layers * d_model, bias=False)

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Tokens `(..., D)` and a memory `(..., D)` to tokens `(..., D)`, all positions at once."""
        states = self.recurrent(x, layout, self.first(memory, memory_layout))
        return self.attention(states, layout, memory, memory_layout)

    def first(self, memory: Tensor, memory_layout: Layout) -> Hidden:
        """The states before the first token, in the type of the memory: autocast must not round them."""
        last_BD = last_states(memory, memory_layout, bidirectional=self.bidirectional_memory)
        states = self.bridge(last_BD).tanh().to(memory.dtype)
        states = states.unflatten(-1, (-1, self.recurrent.n_layers, last_BD.size(1)))
        return tuple(state_BSD.transpose(0, 1).contiguous() for state_BSD in states.unbind(1))

    def start(self, memory: Tensor, memory_layout: Layout) -> RecurrentState:
        """The state before the first token."""
        keys_values = self.attention.keys_values(memory, memory_layout)
        return RecurrentState(0, self.first(memory, memory_layout), keys_values)

    def step(self, x_B1D: Tensor, here: Padded, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The next position alone, the same as in `forward`: `(B, 1, D)`."""
        states_B1D, hidden = self.recurrent.step(x_B1D, state.hidden)
        return self.attention.step(states_B1D, state.memory), RecurrentState(state.position + 1, hidden, state.memory)


def last_states(x: Tensor, layout: Layout, *, bidirectional: bool) -> Tensor:
    """The state that has read a whole document, `(B, D)`, of states `(..., D)`: zeros where it has no token.

    It is the last one; in the half that reads from the end, the first.
    """
    x_BLD = F.pad(layout.grid(x), (0, 0, 0, int(layout.longest == 0)))
    last_B = (layout.lengths_B - 1).clamp(min=0)
    x_BD = x_BLD[torch.arange(last_B.size(0), device=x.device), last_B]  # len() would be a constant in a graph
    if bidirectional:
        half = x.size(-1) // 2
        x_BD = torch.cat((x_BD[:, :half], x_BLD[:, 0, half:]), dim=1)
    return x_BD.masked_fill(layout.lengths_B[:, None] == 0, 0.0)


def reads_both_ways(model: Any) -> bool:
    """Its setting `model.bidirectional`, which this plugin adds."""
    return model.bidirectional


def recurrent_encoder(*, model: ModelConfig, bidirectional: bool | None = None) -> Recurrent:
    return Recurrent(
        kind=model.encoder,
        d_model=model.d_model,
        n_layers=model.n_layers,
        bidirectional=reads_both_ways(model) if bidirectional is None else bidirectional,
        bias=model.bias,
        dropout=model.dropout_at("residual"),
    )


def state_attention(model: ModelConfig) -> StateAttention:
    """The one attention of a recurrent model: one head as wide as a state."""
    return StateAttention(
        d_model=model.d_model,
        score=make_score(
            model.score, n_heads=1, n_kv_heads=1, d_k=model.d_model, scale=model.scale, options=model.options("score")
        ),
        normaliser=make_block("normaliser", model.normaliser, model.options("normaliser")),
        dropout=model.dropout_attention,
    )


def recurrent_decoder(model: ModelConfig) -> RecurrentDecoder:
    return RecurrentDecoder(
        recurrent_encoder(model=model, bidirectional=False),
        attention=state_attention(model),
        bidirectional_memory=reads_both_ways(model),
    )


def state_pooling(model: ModelConfig) -> StatePooling:
    return StatePooling(state_attention(model), bidirectional=reads_both_ways(model))


def describe_recurrent(model: ModelConfig) -> tuple[str, str]:
    """What such a model is, and its shape, for the card of a model."""
    ways = "both ways" if reads_both_ways(model) else "one way"
    return "recurrent", f"{model.n_layers} {model.encoder.upper()} layers read {ways}, d_model={model.d_model}"


def flops(model: ModelConfig, *, pooled: bool) -> int:
    """Operations of one forward pass for one token: see `flops_per_token`."""
    n_flops = flops_of_cells(model, bidirectional=reads_both_ways(model))
    if pooled and model.pooling == "attention":
        n_flops += flops_of_keys(model) + flops_of_match(model)
    return n_flops


def flops_of_answer(model: ModelConfig, source: float, target: float) -> float:
    """Operations of one forward pass over two texts, without those of the head: see `flops_per_answer`."""
    of_source = flops_of_cells(model, bidirectional=reads_both_ways(model)) + flops_of_keys(model)
    maps_query = model.facts("score").get("maps_query", False)
    of_attention = 2 * (maps_query + 2) * model.d_model**2 + source * flops_of_match(model)
    of_target = flops_of_cells(model, bidirectional=False) + of_attention
    return source * of_source + target * of_target


def flops_of_cells(model: ModelConfig, *, bidirectional: bool) -> int:
    """Of all recurrent layers, for one token."""
    n_gates = 4 if model.encoder == "lstm" else 3
    width = model.d_model // (1 + bidirectional)
    return 2 * model.n_layers * n_gates * model.d_model * (model.d_model + width)


def flops_of_keys(model: ModelConfig) -> int:
    """Of the key of one state, which scores that are sums project."""
    return 2 * model.facts("score").get("is_sum", False) * model.d_model**2


def flops_of_match(model: ModelConfig) -> int:
    """Of one query with one state: the score, and the weighted sum."""
    return 2 * (2 + model.facts("score").get("is_sum", False)) * model.d_model
