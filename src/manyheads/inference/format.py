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
    Pooler,
    Terms,
)
from manyheads.config.conversion import from_plain, plain_settings, to_plain
from manyheads.config.data import MOST_WINDOWS
from manyheads.config.facts import check_ranges, require, setting
from manyheads.config.facts import settings as all_settings
from manyheads.config.model import MOST_TABLE
from manyheads.config.plugins import changed_since, recorded, require_given
from manyheads.config.sentences import format_list, format_value, list_names
from manyheads.data.formats.fields import joined_columns
from manyheads.errors import UserError
from manyheads.inference.download import download, is_hub_name
from manyheads.runs.files import read_json
from manyheads.runs.summary import CALIBRATION

WEIGHTS, GRAPH, PROGRAM = "model.safetensors", "model.onnx", "model.pt2"
FILES = ("config.json", "labels.json", "tokenizer.json", WEIGHTS)
CARD = "README.md"
MORE = ("thresholds.json", "linear.safetensors", CALIBRATION, GRAPH)  # of some; the last in place of the weights
REMEDY = "name the folder that training wrote, or its model/ folder"
COLUMNS = ("text", "text_pair", "label", "target")  # settings of data that name one
VOTES = ("votes", "label_columns")  # settings of data that take the place of a label
FORMAT = 1
log = logging.getLogger("manyheads")
OPTIONAL = {  # keys that older folders do not have
    *("task", "long", "stride", "windows", "multi", "linear", "terms", "temperature", "reads_marks", "network"),
    *("plugins", "kept"),
}


@dataclass(kw_only=True, slots=True)
class ColumnNames:
    """Names of the columns the model was trained on.

    With `preset` they are those of a hub dataset: a local file is read by its columns `text`, `text_pair`, `label` and
    `target` instead, if it has them.
    """

    text: Any = setting("text", "column of the text, or those that are joined", several=True)
    text_pair: str = setting("text_pair", "column of the second text")
    label: str = setting("label", "column of the label")
    target: str = setting("target", "column of the target text")
    votes: str = setting("", "column of votes in place of a label")
    label_columns: list[str] = setting(list, "columns of votes in place of a label, one a class")
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
    network: str = setting("", "its maker's own module, or of a graph plugins, which answers; empty: what model says")
    plugins: list[str] = setting(list, "plugins it was made with: name, version and digest of each")
    kept: dict[str, Any] = setting(dict, "what plugins keep with it, by name")
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
            self.pairs or not self.model.reads_apart,
            f"model.pair={self.model.pair.name} compares two texts, but pairs is false: it must be true",
        )
        require(
            self.long is not Long.windows or not self.pairs,
            "long=windows reads single texts, but pairs is true: it must be false",
        )

    @classmethod
    def of(cls, task: str, model: ModelConfig, data: DataConfig, **learned: Any) -> "Settings":
        """Of a model trained with these settings; `learned` are facts that the data fixed."""
        columns = ColumnNames(
            text=joined_columns(data) or data.text,
            text_pair=data.text_pair,
            label=data.label,
            target=data.target,
            votes=data.votes,
            label_columns=data.label_columns,
            preset=data.source == "hub",
            merge_labels=data.merge_labels,
        )
        of_long_texts: dict[str, Any] = {}
        if plugin.task(task).has_classes:  # other tasks cut long texts
            of_long_texts = {"long": data.long, "stride": data.stride, "windows": data.windows}
        return cls(
            task=task,
            model=model,
            columns=columns,
            plugins=recorded(),
            max_length=data.max_length,
            **of_long_texts,
            **learned,
        )

    @property
    def fields(self) -> list[str]:
        """The columns that its texts are joined from; empty: they are of one column."""
        return self.columns.text if isinstance(self.columns.text, list) else []

    @property
    def cutting(self) -> Cutting:
        """What becomes of long texts."""
        return Cutting(self.long, self.stride, self.windows)


def write_settings(settings: Settings) -> str:
    """The text of config.json: every setting by name, enums by member name."""
    plain = to_plain(settings)
    for section, name in (
        (plain, "network"),
        (plain, "plugins"),
        (plain, "kept"),
        *((plain["columns"], name) for name in VOTES),
    ):
        if not section[name]:
            del section[name]
    return json.dumps(plain, indent=2) + "\n"


def read_settings(path: Path) -> Settings:
    """Check config.json key by key; settings of the model, and keys that older folders do not have, keep their defaults
    if absent.

    Raises:
        UserError: names the file, the key, its value and what it must be.
    """
    content = read_json(path)
    missing = [one.name for one in fields(Settings) if one.name not in OPTIONAL]
    if isinstance(content, dict):
        missing = [name for name in missing if name not in content]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}: it is not the config.json of a manyheads model")
    require_given(content.get("plugins"), f"{path}: the model")
    try:
        settings = from_plain(Settings, {"reads_marks": True, **content})  # as all models did before the key existed
        for note in changed_since(settings.plugins):
            log.warning("%s: %s", path, note)
        return settings
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def read_labels(path: Path, settings: Settings) -> list[str]:
    """The class names of labels.json; index is class id.

    Raises:
        UserError: they are not texts that can be written, one for each class.
    """
    labels = read_json(path)
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UserError(f"{path} must be a list of class names")
    try:
        "".join(labels).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{path} has a class name with half of a surrogate pair, which is no letter: write it whole"
        ) from error
    if len(labels) != settings.n_classes:
        raise UserError(f"{path} names {len(labels)} classes, but config.json has {settings.n_classes}")
    for label, times in Counter(labels).most_common(1):
        if times > 1:
            raise UserError(f"{path} names the class {label!r} {times} times")
    return labels


def read_thresholds(path: Path, settings: Settings) -> dict[str, list[float]]:
    """The thresholds of thresholds.json by who answers; index is class id. A model with a linear model has lists for
    `both`, and for `network` and `linear` alone; another has one list, which is returned as that of `both`.

    Raises:
        UserError: they are not lists of probabilities, one for each class.
    """
    lists, n = read_json(path), settings.n_classes
    if not isinstance(lists, dict):
        lists = {"both": lists}
    if settings.terms and set(lists) != {"both", "network", "linear"}:
        raise UserError(f"{path} must hold a list for each of both, network and linear")
    if not settings.terms and set(lists) != {"both"}:
        raise UserError(f"{path} must be a list of numbers")
    for numbers in lists.values():
        if not isinstance(numbers, list) or not all(type(one) in (int, float) and 0 <= one <= 1 for one in numbers):
            raise UserError(f"{path} must be a list of numbers between 0 and 1")
        if len(numbers) != n:
            raise UserError(f"{path} holds {len(numbers)} numbers, but config.json has {n} classes")
    return {name: [float(one) for one in numbers] for name, numbers in lists.items()}


def check_size(path: Path, n_held: int, settings: Settings) -> None:
    """Raise UserError unless the file `path` of `n_held` numbers can hold the model of `settings`, or if its tables of
    positions, which are not in the file, would be too large. The largest matrices are counted; what is not counted
    (keys, values, gates, biases, norms) is no larger than they are."""
    model = settings.model
    n_least = model.width_of_words * settings.vocab_size + model.d_model * settings.n_classes
    if model.pooler is not Pooler.none:
        n_least += model.d_model**2
    for layer in range(model.n_layers + model.n_cross_layers):
        n_least += _least_of_layer(model, layer)
    if n_least > n_held:
        raise UserError(f"{path} holds {n_held:,} numbers, but the model of config.json has at least {n_least:,}")
    n_table = model.table_numbers(settings.max_length)
    if n_table > MOST_TABLE:
        raise UserError(
            f"{path.with_name('config.json')} has max_length={settings.max_length}, which asks for tables of positions "
            f"with {n_table:,} numbers: no model of manyheads needs that many"
        )


def _least_of_layer(model: ModelConfig, layer: int) -> int:
    """Numbers that a layer has at least."""
    if not model.has_heads:
        count = model.facts("encoder").get("flops")
        if not count:
            return 0
        return plugin.resolve(count)(model, pooled=False) // (2 * model.n_layers)  # a product and a sum for each number
    widths = model.n_heads * (model.d_k * model.project + model.d_v * model.project_output) + 2 * model.d_ff
    n_least = model.d_model * widths
    if plugin.find("score", model.score_of(layer)).facts.get("maps_query", False):
        n_least += model.n_heads * model.d_k**2
    return n_least


def find_model(folder: Path, *, graph: bool = False) -> Path:
    """The folder of the model: `folder` itself, or model/ in a run folder.

    Args:
        graph: it may be one that was exported by `format=onnx`.

    Raises:
        UserError: a file is missing.
    """
    refused = f"run={folder} is not a run folder"
    if folder.is_file():
        raise UserError(f"{refused}: it is a file; {REMEDY}")
    if not folder.is_dir():
        raise UserError(f"{refused}: there is no such folder; {REMEDY}")
    if (folder / "config.json").is_file():
        found = folder
    elif (folder / "model" / "config.json").is_file():
        found = folder / "model"
    elif (folder / "config.yaml").is_file():
        raise UserError(
            f"{refused} to use: its training has not written model/, and run.log in it says how far it came; {REMEDY}"
        )
    else:
        raise UserError(f"{refused}: there is no model/config.json in it; {REMEDY}")
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
        raise UserError(f"{refused}: {found} has no {' and no '.join(missing)}; {REMEDY}")
    return found


def enclosing_run(model: Path) -> Path | None:
    """The run folder around model/, which says what data it was trained on; None if model/ is by itself."""
    if model.name == "model" and (model.parent / "config.yaml").is_file():
        return model.parent
    return None


def learnt_in(model: Path) -> Path | None:
    """The run folder around a model, or around one in model/, such as that of one of several columns; else None."""
    return enclosing_run(model) or enclosing_run(model.parent)


def home_of(run: str, model: Path) -> Path:
    """Where verbs write the results for a model if `output` is not set: its run folder, or its own if it has none.

    Raises:
        UserError: it is a model of the hub; nothing is written to the copy in the cache.
    """
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
    """Find the model, as `find_model` does, and read its config.json.

    Args:
        folder: or the name of a model of the hub.
        needed: the task that it must have; None: any.

    Raises:
        UserError: there is none, it is of another task, or a file cannot be read.
    """
    if isinstance(folder, str) and is_hub_name(folder):
        folder = download(folder, "run")
    path = find_model(Path(folder), graph=graph)
    with readable(path):
        settings = read_settings(path / "config.json")
    if needed is not None and needed != settings.task:
        wanted = "a classifier" if needed == "classify" else f"a model of task={needed}"
        raise UserError(
            f"run={path} {plugin.task(settings.task).model}, but {wanted} is needed here: {name_inner(path, 'another')}"
        )
    return ModelFolder(path, settings)


def name_inner(model: Path, otherwise: str) -> str:
    """The remedy where a model is of another task than is needed: the first of those in its folder, if it holds any."""
    inner = sorted(model.glob("*/config.json"))
    return f"name one of those, such as run={inner[0].parent}" if inner else f"name {otherwise}"


def check_text_columns(typed: str | list[str], settings: Settings) -> None:
    """Raise UserError if several columns of the text are typed, and not as many as the model reads."""
    if isinstance(typed, list) and len(typed) != len(settings.fields):
        fields = settings.fields
        reads = f"the {len(fields)} columns {list_names(fields)}" if fields else "one column"
        raise UserError(
            f"data.text={format_list(typed)} names {len(typed)} columns, but the model of run reads {reads}: name as "
            "many, in this order"
        )


def refuse_other_task(config: Any, settings: Settings) -> None:
    """Raise UserError if a setting was typed that models of this task do not read."""
    plain = plain_settings(config)
    for name, one in all_settings(type(config)).items():
        is_unread = one.facts.tasks is not None and not one.is_read_in(settings.task)
        if is_unread and plain[name] != to_plain(one.default):
            raise UserError(
                f"{name}={format_value(plain[name])} does nothing here, as the model of run answers by "
                f"{plugin.task(settings.task).answers}: remove it"
            )
