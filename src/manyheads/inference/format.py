"""The folder of a finished model, and what of it can be read without torch: config.json, labels, thresholds.

Every file is read as a stranger's: nothing runs, nothing large is allocated before the sizes agree, and whatever is
wrong is one sentence.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import manyheads.plugin as plugin
from manyheads.config import (
    Cutting,
    DataConfig,
    Long,
    MergeLabels,
    ModelConfig,
    PairKind,
    Pooler,
    Terms,
)
from manyheads.config.conversion import from_plain, plain_settings, to_plain
from manyheads.config.data import MOST_WINDOWS
from manyheads.config.facts import check_ranges, require, setting
from manyheads.config.facts import settings as all_settings
from manyheads.config.model import MOST_TABLE
from manyheads.config.plugins import changed_since, recorded, require_given
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.inference.download import download, is_hub_name
from manyheads.runs.files import read_json
from manyheads.runs.summary import CALIBRATION

WEIGHTS, GRAPH, PROGRAM = "model.safetensors", "model.onnx", "model.pt2"
FILES = ("config.json", "labels.json", "tokenizer.json", WEIGHTS)
CARD = "README.md"
MORE = ("thresholds.json", "linear.safetensors", CALIBRATION, GRAPH)  # of some; the last in place of the weights
REMEDY = "name the folder that training wrote, or its model/ folder"
TYPED = {  # what the cards of a model say, by whether its tokenizer takes marks in texts as text
    True: "A mark such as [SEP] or </s> that is typed in a text is text.",
    False: "A mark such as [SEP] or </s> that is typed in a text is that mark, as it was in training.",
}
COLUMNS = ("text", "text_pair", "label", "target")  # settings of data that name one
FORMAT = 1
log = logging.getLogger("manyheads")
LATER = {
    "task",
    "long",
    "stride",
    "windows",
    "multi",
    "linear",
    "terms",
    "temperature",
    "reads_marks",
    "network",
    "plugins",
}
"""Keys older folders have not."""


@dataclass(kw_only=True, slots=True)
class ColumnNames:
    """Names of the columns the model was trained on.

    With `preset` they are a hub dataset's: in a local file `text`, `text_pair`, `label` and `target` win where they
    exist.
    """

    text: str = setting("text", "column of the text")
    text_pair: str = setting("text_pair", "column of the second text")
    label: str = setting("label", "column of the label")
    target: str = setting("target", "column of the target text")
    preset: bool = setting(False, "the names are those of a hub dataset")
    merge_labels: MergeLabels = setting(MergeLabels.none, "which of its classes were one")


@dataclass(kw_only=True, slots=True)
class Settings:
    """What config.json says: the architecture, and the facts learned from the data that fix its shapes.

    Widths need no upper limit: whatever they say must agree with the tensors before anything is allocated.
    """

    task: str = setting("classify", "what a text is answered with", part="task")
    format: int = setting(FORMAT, "version of the folder's layout", ge=FORMAT, le=FORMAT)
    vocab_size: int = setting(0, "rows of the embedding", ge=1)
    n_classes: int = setting(0, "classes; none of a model that answers by texts", ge=0)
    max_length: int = setting(512, "tokens a text is cut to", ge=4, le=2**20)
    long: Long = setting(Long.cut, "what becomes of longer texts")
    stride: int = setting(0, "most tokens between the starts of two windows; 0: as many as one holds", ge=0)
    windows: int = setting(MOST_WINDOWS, "most windows of a text", ge=1, le=4096)
    pairs: bool = setting(False, "a row is a pair of texts")
    multi: bool = setting(False, "a text has any number of the classes, each given from its threshold on")
    linear: float = setting(0.0, "share of a linear model in each answer", ge=0.0, le=1.0)
    terms: Terms | None = setting(None, "what the linear model counts in a text; null: there is no such model")
    temperature: float = setting(1.0, "what the network's logits are divided by with a linear model", ge=0.01, le=100.0)
    reads_marks: bool = setting(False, "[SEP] and other marks that are typed in a text are marks, not text")
    network: str = setting("", "class of a module of its maker's own, which answers; empty: what model says")
    plugins: list[str] = setting(list, "plugins it was made with: name, version and digest of each")
    columns: ColumnNames = setting(ColumnNames, "the columns it was trained on")
    model: ModelConfig = setting(ModelConfig, "the architecture")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(
            (self.n_classes > 0) == plugin.task(self.task).has_classes,
            f"n_classes={self.n_classes} does not fit task={self.task}: only a classifier has classes",
        )
        without = f"but task={self.task} has no classes: it must be"
        require(not self.multi or self.n_classes > 0, f"multi is true, {without} false")
        require(not self.linear or self.n_classes > 0, f"linear={self.linear}, {without} 0")
        require(not self.terms or self.n_classes > 0, f"terms={format_value(self.terms)}, {without} null")
        require(
            not self.linear or self.terms is not None,
            f"linear={self.linear} without terms, as an early version wrote it, whose linear model counted words in "
            "another way: train the model again, or put 0 there to ask its network alone",
        )
        require(
            self.pairs or self.model.pair is PairKind.joint,
            f"model.pair={self.model.pair.name} compares two texts, but pairs is false: it must be true",
        )
        require(
            self.long is not Long.windows or not self.pairs,
            "long=windows reads single texts, but pairs is true: it must be false",
        )

    @classmethod
    def of(cls, task: str, model: ModelConfig, data: DataConfig, **learned: Any) -> "Settings":
        """Of a model trained with these settings; `learned` are facts that the data fixed. Only a classifier has ways
        with long texts."""
        lengths = ("max_length", "long", "stride", "windows") if task == "classify" else ("max_length",)
        of_data = {name: getattr(data, name) for name in lengths}
        names = (*COLUMNS, "merge_labels")
        columns = ColumnNames(**{name: getattr(data, name) for name in names}, preset=data.source == "hub")
        return cls(task=task, model=model, columns=columns, plugins=recorded(), **of_data, **learned)

    @property
    def cutting(self) -> Cutting:
        """What becomes of long texts."""
        return Cutting(self.long, self.stride, self.windows)


def write_settings(settings: Settings) -> str:
    """The text of config.json: every setting by name, enums by member name."""
    plain = to_plain(settings)
    for name in ("network", "plugins"):
        if not plain[name]:
            del plain[name]
    return json.dumps(plain, indent=2) + "\n"


def read_settings(path: Path) -> Settings:
    """Check config.json key by key; settings of the model, and keys that came later, keep their defaults if absent.

    Raises:
        UserError: names the file, the key, its value and what it must be.
    """
    content = read_json(path)
    names = [one.name for one in fields(Settings) if one.name not in LATER]
    missing = [name for name in names if not isinstance(content, dict) or name not in content]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}: it is not the config.json of a manyheads model")
    require_given(content.get("plugins"), f"{path}: the model")
    try:
        settings = from_plain(Settings, {"reads_marks": True, **content})  # as they were before there was the key
        for note in changed_since(settings.plugins):
            log.warning("%s: %s", path, note)
        return settings
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def read_labels(path: Path, settings: Settings) -> list[str]:
    """The class names of labels.json; index is class id. A UserError unless they are texts that can be written, one
    for each class."""
    labels = read_json(path)
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UserError(f"{path} must be a list of class names")
    if any("\ud800" <= letter <= "\udfff" for label in labels for letter in label):
        raise UserError(f"{path} has a class name with half of a surrogate pair, which is no letter: write it whole")
    if len(labels) != settings.n_classes:
        raise UserError(f"{path} names {len(labels)} classes, but config.json has {settings.n_classes}")
    for label, times in Counter(labels).most_common(1):
        if times > 1:
            raise UserError(f"{path} names the class {label!r} {times} times")
    return labels


def read_thresholds(path: Path, settings: Settings) -> dict[str, list[float]]:
    """The numbers of thresholds.json, index is class id: a plain list is of `both`; where a linear model answers, too,
    there are also those of each member asked by itself. A UserError unless all are lists of probabilities, one for
    each class."""
    found = read_json(path)
    lists = found if isinstance(found, dict) else {"both": found}
    if set(lists) != ({"both", "network", "linear"} if settings.terms else {"both"}):
        what = "hold a list for each of both, network and linear" if settings.terms else "be a list of numbers"
        raise UserError(f"{path} must {what}")
    n = settings.n_classes
    for numbers in lists.values():
        if not isinstance(numbers, list) or not all(type(one) in (int, float) and 0 <= one <= 1 for one in numbers):
            raise UserError(f"{path} must be a list of numbers between 0 and 1")
        if len(numbers) != n:
            raise UserError(f"{path} holds {len(numbers)} numbers, but config.json has {n} classes")
    return {name: [float(one) for one in numbers] for name, numbers in lists.items()}


def check_size(path: Path, n_held: int, settings: Settings) -> None:
    """Raise UserError unless the file `path` of `n_held` numbers accounts for the model of `settings`, or if tables of
    positions, which are not in the file, would be too large. The largest matrices are counted; what is not (keys,
    values, gates, biases, norms) is no larger than they are."""
    model = settings.model

    def least_of(layer: int) -> int:
        if not model.has_heads:
            count = model.facts("encoder").get("flops")  # two for each number that is multiplied
            return plugin.resolve(count)(model, pooled=False) // (2 * model.n_layers) if count else 0
        widths = model.n_heads * (model.d_k * model.project + model.d_v * model.project_output) + 2 * model.d_ff
        has_maps = plugin.find("score", model.score_of(layer)).facts.get("maps_query", False)
        return model.d_model * widths + model.n_heads * model.d_k**2 * has_maps

    of_layers = sum(map(least_of, range(model.n_layers + model.n_cross_layers)))
    n_rows = settings.n_classes + (0 if model.pooler is Pooler.none else model.d_model)
    of_words = model.width_of_words * settings.vocab_size
    n_least = of_words + model.d_model * n_rows + of_layers
    if n_least > n_held:
        raise UserError(f"{path} holds {n_held:,} numbers, but the model of config.json has at least {n_least:,}")
    n_table = settings.max_length * max(model.d_model, 2 * model.d_k * model.n_layers)
    if n_table > MOST_TABLE:
        raise UserError(
            f"{path.with_name('config.json')} has max_length={settings.max_length}, which asks for tables of positions "
            f"with {n_table:,} numbers: no model of manyheads needs that many"
        )


def find_model(folder: Path, *, graph: bool = False) -> Path:
    """The folder of the model: `folder` itself, or model/ in a run folder; with `graph` also one that was exported by
    `format=onnx`. A UserError where a file is missing."""
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise UserError(f"run={folder} is not a run folder: {what}; {REMEDY}")
    found = next((place for place in (folder, folder / "model") if (place / "config.json").is_file()), None)
    if found is None:
        began = (folder / "config.yaml").is_file()
        what = (
            "its training has not written model/, and run.log in it says how far it came"
            if began
            else "there is no model/config.json in it"
        )
        raise UserError(f"run={folder} is not a run folder{' to use' if began else ''}: {what}; {REMEDY}")
    missing = [name for name in FILES if not (found / name).is_file()]
    if missing == [WEIGHTS] and (found / GRAPH).is_file():
        if graph:
            return found
        raise UserError(
            f"run={folder} holds a graph for onnxruntime, which predict, evaluate, compare, serve and manyheads.load "
            "alone can open: name the run that it was exported from"
        )
    if missing == [WEIGHTS] and (found / PROGRAM).is_file():
        raise UserError(
            f"run={folder} holds a program of torch.export, which its own predict.py runs: use that, or name the run "
            "that it was exported from"
        )
    if missing:
        raise UserError(f"run={folder} is not a run folder: {found} has no {' and no '.join(missing)}; {REMEDY}")
    return found


def enclosing_run(model: Path) -> Path | None:
    """The run folder around model/, which says what data it was trained on; None where model/ is by itself."""
    return model.parent if model.name == "model" and (model.parent / "config.yaml").is_file() else None


def home_of(run: str, model: Path) -> Path:
    """Where what is made of a model goes unless `output` says: its run folder, or its own where it has none. A
    UserError where it is the hub's, as nothing is written to the copy in the cache."""
    if is_hub_name(run):
        raise UserError(
            f"run={run} is a model of the Hugging Face hub, to whose copy nothing is written: name a folder by output="
        )
    return enclosing_run(model) or model


@contextmanager
def readable(place: Path) -> Iterator[None]:
    """Say in a UserError which file cannot be read."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or place} cannot be read: {error.strerror or error}") from error


class ModelFolder(NamedTuple):
    """The folder of a finished model and its config.json, which is read once."""

    path: Path
    settings: Settings

    def labels(self) -> list[str]:
        """The class names: see `read_labels`."""
        return read_labels(self.path / "labels.json", self.settings)


def open_folder(folder: str | Path, needed: str | None = None, *, graph: bool = False) -> ModelFolder:
    """Find the model, as `find_model` does, and read its config.json. A UserError where there is none, it is not of
    the task `needed`, or a file cannot be read."""
    is_of_hub = isinstance(folder, str) and is_hub_name(folder)
    path = find_model(download(str(folder), "run") if is_of_hub else Path(folder), graph=graph)
    with readable(path):
        settings = read_settings(path / "config.json")
    if needed not in (None, settings.task):
        wanted = "a classifier" if needed == "classify" else f"a model of task={needed}"
        raise UserError(f"run={path} {plugin.task(settings.task).model}, but {wanted} is needed here: name another")
    return ModelFolder(path, settings)


def refuse_other_task(config: Any, settings: Settings) -> None:
    """Refuse what is set for models of another task than the one of `settings`, which would read nothing of it."""
    plain = plain_settings(config)
    for name, one in all_settings(type(config)).items():
        if not one.is_read_in(settings.task) and plain[name] != to_plain(one.default) and one.facts.tasks is not None:
            raise UserError(
                f"{name}={format_value(plain[name])} does nothing here, as the model of run answers by "
                f"{plugin.task(settings.task).answers}: remove it"
            )
