"""A classifier that `manyheads export format=onnx` has written, in place of a network of torch.

E terms of all texts . B texts of a batch . C classes
"""

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from manyheads.config import Terms
from manyheads.config.sentences import first_line, install_extra
from manyheads.errors import UserError
from manyheads.layout import Packed
from manyheads.linear.model import LinearModel

FATAL = 4  # onnxruntime logs nothing less, as mistakes become errors
# Tokens that a thread gives onnxruntime at a time. Several small calls in parallel answer more texts a second than one
# large call with the threads inside, while one long text is faster with them.
PART = 512


class GraphNetwork(nn.Module):
    """A network that was written as a graph: onnxruntime computes it on the CPU, with as many threads as torch has.

    Args:
        pairs: it reads pairs of texts.
        both: it holds a linear model, too, which `linear` asks.

    Raises:
        UserError: onnxruntime is not there, or cannot read the file `path`, or it does not give `n_classes` logits.
    """

    def __init__(self, path: Path, n_classes: int, *, pairs: bool = False, both: bool = False) -> None:
        super().__init__()
        self.inputs, self.outputs = ["ids", "real"], ["logits"]
        if pairs:
            self.inputs.append("segments")
        if both:
            self.inputs.append("terms")
            self.outputs += ["network_logits", "linear_logits"]
        if not find_spec("onnxruntime"):
            raise UserError(f"{path} cannot be opened without the package onnxruntime: {install_extra('onnx')}")
        self.path, self.n_classes = path, n_classes
        self.sessions = {1: self._open(1)}  # by their threads
        self.on_cpu = nn.Parameter(torch.empty(0), requires_grad=False)  # says where it computes, as weights do

    def _open(self, threads: int) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, FATAL
        try:
            session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its own kinds have no common base
            raise UserError(f"{self.path} is not a graph that onnxruntime can read: {first_line(error)}") from error
        given = {one.name: one.shape[-1:] for one in session.get_outputs()}
        wanted = {name: [self.n_classes] for name in self.outputs}
        if {one.name for one in session.get_inputs()} != {*self.inputs} or given != wanted:
            raise UserError(
                f"{self.path} does not make {' and '.join(self.outputs)} of {self.n_classes} classes out of "
                f"{' and '.join(self.inputs)}: it is not the graph of this model"
            )
        return session

    def to(self, *_: Any, **__: Any) -> Self:
        """It stays on the CPU."""
        return self

    def forward(self, ids_N: Tensor, layout: Packed, segments_N: Tensor | None = None) -> Tensor:
        """Logits `(B, C)`: of a long text by all threads together, of many texts by each of them for `PART` tokens."""
        inputs = {"ids": layout.grid(ids_N), "real": layout.keep_BL}
        if segments_N is not None:
            inputs["segments"] = layout.grid(segments_N)
        output = "network_logits" if "terms" in self.inputs else "logits"
        threads = torch.get_num_threads()
        rows = max(1, PART // max(1, layout.longest))
        if layout.n_documents <= rows:
            is_long = layout.n_documents == 1 and layout.longest > PART // 2
            return self._run(output, inputs, threads if is_long else 1)

        def part(start: int) -> Tensor:
            return self._run(output, {name: one[start : start + rows] for name, one in inputs.items()})

        with ThreadPoolExecutor(threads) as pool:
            return torch.cat(list(pool.map(part, range(0, layout.n_documents, rows))))

    def linear(self, terms_E3: Tensor, n_texts: int) -> Tensor:
        """Logits `(n, C)` of the linear model: of the text, the number and the count of each term."""
        ids = torch.zeros(n_texts, 1, dtype=torch.int64)  # which say how many texts there are, and are not read
        return self._run("linear_logits", {"ids": ids, "real": ids == 0, "terms": terms_E3})

    def _run(self, output: str, inputs: dict[str, Tensor], threads: int = 1) -> Tensor:
        import onnxruntime

        if threads not in self.sessions:
            self.sessions[threads] = self._open(threads)
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        arrays = {name: one.numpy() for name, one in inputs.items()}
        if "terms" in self.inputs and "terms" not in arrays:  # which the network does not read
            arrays["terms"] = torch.empty(0, 3, dtype=torch.int64).numpy()
        try:
            return torch.from_numpy(self.sessions[threads].run([output], arrays, options)[0])
        except Exception as error:
            raise UserError(f"{self.path} cannot be computed by onnxruntime: {first_line(error)}") from error


class GraphLinear(LinearModel):
    """The linear model in a graph, which answers as any other."""

    def __init__(self, graph: GraphNetwork, terms: Terms) -> None:
        none = torch.empty(0)
        super().__init__(none, none, none, torch.empty(graph.n_classes), terms)
        self.graph = graph

    def forward(self, terms_E: Tensor, counts_E: Tensor, bounds: Tensor) -> Tensor:
        """As `LinearModel.forward`."""
        text_E = torch.arange(len(bounds) - 1).repeat_interleave(bounds.diff())
        return self.graph.linear(torch.stack([text_E, terms_E, counts_E.long()], dim=1), len(bounds) - 1)
