"""A classifier as a graph without a line of ours in it: an ONNX file, or a program of torch.export.

B texts of a batch . L tokens . E terms of all texts of a batch . U terms that the linear model knows . C classes
"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.layout import Padded
from manyheads.linear.blend import blended
from manyheads.linear.model import LinearModel
from manyheads.plugins.hub.config import Format
from manyheads.training.own_parts import own_blocks

OPSET = 23  # the first with attention as one operation: one text of 50 tokens in less time than by its parts


class Graph(nn.Module):
    """The network on padded texts, `inputs` to logits `(B, C)`. With a linear member there are three of them: of both
    together, of the network and of the linear model."""

    def __init__(self, predictor: TextClassifier, *, both: bool) -> None:
        super().__init__()
        self.network = predictor.network.float().cpu().eval()
        self.blend, self.multi = predictor.blend if both else None, predictor.multi
        self.linear = self.blend.linear if self.blend else None  # so that its tensors have names

    def forward(
        self, ids: Tensor, real: Tensor, segments: Tensor | None = None, terms: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        network_BC = self.network(ids, Padded(real), segments).float()
        if self.blend is None or terms is None:
            return (network_BC,)
        linear_BC = traceable_linear_logits(self.blend.linear, terms, ids.size(0))
        both_BC = blended(network_BC, linear_BC, self.blend.share, self.blend.temperature, multi=self.multi)
        return both_BC, network_BC, linear_BC


def traceable_linear_logits(linear: LinearModel, terms_E3: Tensor, n_texts: int) -> Tensor:
    """`LinearModel.forward` by operations that a graph has: a term is found by binary search among all terms."""
    rows_E, terms_E, counts_E = terms_E3.unbind(1)
    n_terms, at_E = len(linear.terms_U), torch.zeros_like(terms_E)
    for power in reversed(range(n_terms.bit_length())):
        probe_E = (at_E + 2**power).clamp(max=n_terms - 1)
        at_E = torch.where(linear.terms_U[probe_E] <= terms_E, probe_E, at_E)
    weight_E = counts_E * linear.rarity_U[at_E] * (linear.terms_U[at_E] == terms_E)
    squares_B = weight_E.new_zeros(n_texts).index_add(0, rows_E, weight_E.square())
    weight_E = weight_E * squares_B.clamp(min=1e-12).rsqrt()[rows_E]
    none_BC = weight_E.new_zeros(n_texts, len(linear.bias_C))
    return none_BC.index_add(0, rows_E, linear.votes_UC[at_E] * weight_E[:, None]) + linear.bias_C


def write_graph(file: Path, predictor: TextClassifier, kind: Format, *, both: bool) -> list[str]:
    """Write the classifier in fp32, with any number of texts, tokens and terms; returns the names of its inputs.

    Args:
        both: with its linear member.

    Raises:
        UserError: a block of a user's cannot be traced.
    """
    n_ids = predictor.network.embeddings.words.num_embeddings
    inputs = {"ids": torch.randint(0, n_ids, (3, 4), generator=torch.Generator().manual_seed(0))}
    inputs["real"] = torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    if predictor.pairs:
        inputs["segments"] = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]])
    if both:
        inputs["terms"] = torch.tensor([[0, 5, 1], [1, 7, 2], [2, 5, 1], [2, 9, 1], [2, 3, 1]])
    free: dict[str, dict[int, Any]] = {}  # the axes of each input that may have any size
    for name in inputs:
        free[name] = {0: torch.export.Dim.DYNAMIC}
        if name != "terms":
            free[name][1] = torch.export.Dim.DYNAMIC
    with torch.no_grad(), quietly(), naming_own_blocks(predictor, kind):
        program = torch.export.export(Graph(predictor, both=both), (), inputs, dynamic_shapes=free)
        if kind is Format.torch:
            for module in program.graph_module.modules():
                if isinstance(module, torch.fx.GraphModule):
                    for node in module.graph.nodes:
                        node.meta.pop("stack_trace", None)  # lines of code, with the paths of this machine
            torch.export.save(program, file)
        else:
            names = ["logits", "network_logits", "linear_logits"] if both else ["logits"]
            written = torch.onnx.export(
                program, dynamo=True, verbose=False, opset_version=OPSET, input_names=[*inputs], output_names=names
            )
            assert written is not None
            for node in written.model.graph.all_nodes():
                node.metadata_props.clear()  # which hold the lines of code that a node comes from
            written.save(file)
    return [*inputs]


@contextmanager
def naming_own_blocks(predictor: TextClassifier, kind: Format) -> Iterator[None]:
    """Where a block of a user's cannot be traced, exporters raise errors of many classes: name the blocks instead."""
    try:
        yield
    except Exception as error:
        own = own_blocks(predictor.model)
        if not own:
            raise
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        what = str(cause).strip().partition("\n")[0][:120]
        raise UserError(
            f"format={kind.name} cannot trace a model with {own}: export it as format=transformers, or change the "
            f"block, such as x.size(0) in place of len(x) ({type(cause).__name__}: {what})"
        ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Silence exporters and transformers: they draw bars, and warn of versions and passes that no user can change."""
    logger = logging.getLogger("torch.onnx")
    before, logger.disabled = logger.disabled, True
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        logger.disabled = before


def quantise(file: Path) -> None:
    """Turn the matrices of the network into 8-bit integers; the linear model stays as it is.

    They are of -64 to 64: processors with AVX2 but without VNNI add two products of such a number and one of 0 to 255
    in 16 bits, where larger ones are cut off. Answers would then differ from those of the machine that exported them.
    """
    from onnx import load
    from onnxruntime.quantization import QuantType, quantize_dynamic

    of_linear = []
    for node in load(file).graph.node:
        if any(name.startswith("linear.") for name in node.input):
            of_linear.append(node.name)
    rounded = file.with_name("int8.onnx")
    with quietly():
        quantize_dynamic(
            file,
            rounded,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],  # else it takes attention for its own, older operation
            nodes_to_exclude=of_linear,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )
    rounded.replace(file)
