"""A finished model as a folder: model.safetensors, config.json, tokenizer.json, labels.json and README.md; with a
linear model also linear.safetensors; and, where a text has any number of labels, thresholds.json.

Of all dependencies torch, safetensors and tokenizers are enough to open it. The tensors are checked against config.json
before anything is allocated.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

import manyheads.plugin as plugin
from manyheads.config import Accelerator, DataConfig, InferenceHardware, Long, ModelConfig, Precision
from manyheads.config.plugins import use
from manyheads.config.sentences import one_of
from manyheads.data.tokenizer import copy_tokenizer, load_tokenizer, tokenizer_sizes
from manyheads.errors import UserError
from manyheads.inference.card import write_card
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.format import (
    GRAPH,
    WEIGHTS,
    ModelFolder,
    Settings,
    check_size,
    open_folder,
    readable,
    write_settings,
)
from manyheads.inference.graph import GraphNetwork
from manyheads.inference.precision import DTYPES, choose_device, inference_dtype, set_threads
from manyheads.inference.predictor import Predictor
from manyheads.linear.blend import Tuned
from manyheads.linear.model import FILE as LINEAR
from manyheads.linear.model import tensors_in, write_linear
from manyheads.nn import Classifier
from manyheads.nn.classifier import OwnNetwork
from manyheads.nn.cost import count_parameters
from manyheads.runs.files import replace_folder, write_json

AnyPredictor = Predictor[Any]
PredictorT = TypeVar("PredictorT", bound=AnyPredictor)


def save(
    folder: Path,
    network: Any,
    *,
    task: str = "classify",
    model: ModelConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    pairs: bool = False,
    labels: Sequence[str] = (),
    kept: dict[str, Any] | None = None,
    multi: bool = False,
    tuned: Tuned | None = None,
    figures: dict[str, str] | None = None,
    finish: Callable[[Path], object] | None = None,
) -> None:
    """Write the folder, whole or not at all; what was there before is replaced. The same model gives the same bytes:
    the files hold no date, path or id.

    Args:
        kept: what plugins keep with a classifier, by name.
        multi: rows have any number of labels.
        tuned: of a classifier, its thresholds and its linear model.
        figures: what is known of the model before it is judged, for its card.
        finish: writes further files of a task into the folder.
    """
    tuned = tuned or Tuned()
    blend = tuned.blend
    settings = Settings.of(
        task,
        model,
        data,
        vocab_size=network.words.num_embeddings,
        n_classes=len(labels),
        pairs=pairs,
        multi=multi or tuned.thresholds is not None,
        linear=tuned.share,
        terms=blend.linear.terms if blend else None,
        temperature=blend.temperature if blend else 1.0,
        network=type(network.module).__qualname__ if isinstance(network, OwnNetwork) else "",
        kept=kept or {},
    )
    known: dict[str, Any] = {"labels": labels, "thresholds": tuned.thresholds, "figures": figures}
    card = write_card(settings, n_parameters=count_parameters(network), tokenizer=tokenizer, **known)
    thresholds = {"both": tuned.thresholds, **tuned.member_thresholds} if tuned.member_thresholds else tuned.thresholds
    with replace_folder(folder) as part:
        tensors = {name: value.detach().float().cpu().clone() for name, value in network.state_dict().items()}
        save_file(tensors, part / WEIGHTS)
        (part / "config.json").write_text(write_settings(settings), encoding="utf-8")
        write_json(part / "labels.json", list(labels), indent=0)
        (part / "tokenizer.json").write_text(copy_tokenizer(tokenizer).to_str(pretty=True), encoding="utf-8")
        (part / "README.md").write_text(card, encoding="utf-8")
        if tuned.thresholds is not None:
            write_json(part / "thresholds.json", thresholds, indent=0)
        if blend is not None:
            write_linear(part / LINEAR, blend.linear)
        if finish is not None:
            finish(part)


@overload
def load(folder: str | Path | ModelFolder, *, network: nn.Module | None = ...) -> AnyPredictor: ...
@overload
def load(folder: str | Path | ModelFolder, kind: type[PredictorT]) -> PredictorT: ...
def load(
    folder: str | Path | ModelFolder, kind: type[AnyPredictor] | None = None, *, network: nn.Module | None = None
) -> AnyPredictor:
    """Open a run folder or its model/ folder, wherever it was moved, in eval mode on the CPU, in fp32: to be judged. A
    UserError where it is no run, holds a model of another `kind` than is needed, or a file in it is missing, broken or
    does not fit. `network` is the module that it was trained with, where it is one of a user's own."""
    opened = folder
    if not isinstance(opened, ModelFolder):
        opened = open_folder(opened, kind.task if kind else None, graph=kind is None)
    path, settings = opened
    with readable(path):
        tokenizer = read_tokenizer(path / "tokenizer.json", settings)
        if (path / WEIGHTS).is_file():
            read = read_network(path / WEIGHTS, settings, network)
        else:
            read = read_graph(path, settings)
        return plugin.resolve(plugin.task(settings.task).predictor).opened(opened, read, tokenizer)


def load_to_answer(
    folder: str | Path,
    precision: str = "auto",
    *,
    plugins: Sequence[str] = (),
    network: nn.Module | None = None,
) -> AnyPredictor:
    """`manyheads.load`: open a run folder or its model/ folder, wherever it was moved, on the CPU, ready to answer.

    Args:
        folder: or the name of a model of the Hugging Face hub, `name/model` or `name/model@revision`.
        precision: fp32, bf16, or auto: bf16 for a classifier where the processor multiplies in it, else fp32.
        plugins: those that the model was made with: installed modules, or files such as `./my_parts.py`.
        network: the module that it was trained with by `train(run, network=...)`, whose weights are put into it.

    Raises:
        UserError: see `load`, or `precision` is none of these.
    """
    names = [one.name for one in (Precision.auto, Precision.fp32, Precision.bf16)]
    if precision not in names:
        raise UserError(f"precision={precision} is not a choice: choose {one_of(names)}")
    use(plugins)
    predictor, cpu = load(folder, network=network), torch.device("cpu")
    return predictor.on(cpu, _type(predictor, Precision[precision], cpu))


def place(predictor: PredictorT, hardware: InferenceHardware, *, fast: bool = False) -> PredictorT:
    """The model on one device, in the precision that is typed; else in fp32, to be judged or looked at, or `fast`, to
    answer, in the quickest. Sets the threads of this process. Raises as `choose_device` does."""
    set_threads(hardware)
    device = choose_device(hardware)
    if hardware.accelerator is Accelerator.gpu:
        _refuse_graph(predictor, "hardware.accelerator=gpu")
    return predictor.on(device, _type(predictor, hardware.precision, device, fast=fast))


def _type(
    predictor: AnyPredictor, precision: Precision, device: torch.device, *, fast: bool = True
) -> torch.dtype | None:
    if precision is not Precision.auto and precision is not Precision.fp32:
        _refuse_graph(predictor, f"hardware.precision={precision.name}")
    if isinstance(predictor.network, GraphNetwork):
        return None
    predictor.model.check_precision(precision.name)
    is_own = isinstance(predictor.network, OwnNetwork)
    if not fast or is_own or not isinstance(predictor, TextClassifier):  # one other token changes all after it
        return DTYPES[Precision.fp32 if precision is Precision.auto else precision]
    return inference_dtype(precision, predictor.model, device)


def _refuse_graph(predictor: AnyPredictor, setting: str) -> None:
    if isinstance(network := predictor.network, GraphNetwork):
        raise UserError(
            f"{setting} does nothing, as {network.path} is computed on the CPU, as it was exported: remove it"
        )


def read_tokenizer(path: Path, settings: Settings) -> Tokenizer:
    """The tokenizer, once it has shown that every id it can give has a row in the embedding."""
    try:
        tokenizer = load_tokenizer(path, reads_marks=settings.reads_marks)
        sizes = tokenizer_sizes(tokenizer, pairs=settings.pairs)
    except ValueError as error:
        raise UserError(
            f"{path} is not a whole tokenizer that puts marks such as [CLS] and [SEP] around any text"
        ) from error
    if sizes.n_ids > settings.vocab_size:
        raise UserError(
            f"{path} has {sizes.n_ids} entries, but the embedding has {settings.vocab_size} rows: "
            "it is not the tokenizer this model was trained with"
        )
    if settings.pairs and sizes.n_segments > 2:
        raise UserError(f"{path} marks texts by segment {sizes.n_segments - 1}, but a pair has segments 0 and 1")
    return tokenizer


def read_graph(folder: Path, settings: Settings) -> Classifier:
    """The network of an exported folder, which answers as a `Classifier` does and has nothing else of it. Raises what
    `GraphNetwork` raises, and UserError for a model of which no graph is written."""
    if settings.task != "classify" or settings.cutting.long is not Long.cut:
        raise UserError(f"{folder / GRAPH} classifies texts cut at their end, but config.json says otherwise")
    both = settings.terms is not None
    return cast(Classifier, GraphNetwork(folder / GRAPH, settings.n_classes, pairs=settings.pairs, both=both))


def read_network(path: Path, settings: Settings, own: nn.Module | None = None) -> Any:
    """The network of `settings`, or a user's `own`, with the tensors of `path`, in eval mode; torch's generator is left
    as it was. A UserError where these are missing, too many, of another shape or type, or not finite; or the module
    that the model was trained with is not given."""
    held = tensors_in(path)
    if settings.network and own is None:
        raise UserError(
            f"{path} holds the weights of {settings.network}, a module of its maker's own: open it in Python by "
            "manyheads.load(folder, network=...)"
        )
    if own is not None and not settings.network:
        raise UserError(f"network= does nothing for {path}, whose network config.json describes: remove it")
    if own is None:
        check_size(path, sum(torch.Size(shape).numel() for _, shape in held.values()), settings)
    sizes = {"vocab_size": settings.vocab_size, "max_length": settings.max_length, "n_classes": settings.n_classes}
    with torch.random.fork_rng(devices=[]):
        assembled = plugin.resolve(plugin.task(settings.task).assemble)
        if own is not None:
            network = OwnNetwork(own, settings.vocab_size)
        else:
            network = assembled(settings.model, **sizes, n_segments=2 if settings.pairs else 0)
    misfit = f"{path} does not fit config.json"
    wanted = {name: ("F32", list(value.shape)) for name, value in network.state_dict().items()}
    for name in sorted(wanted.keys() ^ held.keys()):
        raise UserError(f"{misfit}: tensor {name!r} is {'missing' if name in wanted else 'not part of the model'}")
    for name, (kind, shape) in wanted.items():
        if held[name] != (kind, shape):
            raise UserError(f"{misfit}: tensor {name} is {held[name][0]} {held[name][1]}, not {kind} {shape}")
    tensors = load_file(path)
    broken = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
    if broken:
        raise UserError(f"{path}: tensor {broken} holds values that are not finite numbers")
    network.load_state_dict(tensors)
    return network.eval()
