"""The verbs of the command line: the settings of each, the groups of presets it reads, and what it calls."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads.config import (
    AblateConfig,
    AuditConfig,
    CalibrateConfig,
    CompareConfig,
    CurveConfig,
    EvaluateConfig,
    ExplainConfig,
    ExportConfig,
    LookConfig,
    PredictConfig,
    ProbeConfig,
    PushConfig,
    ReportConfig,
    RunConfig,
    RunsConfig,
    ServeConfig,
    TuneConfig,
)
from manyheads.config.facts import Setting, settings

Asking = CalibrateConfig | CompareConfig | EvaluateConfig | ProbeConfig | PredictConfig | LookConfig | ServeConfig
Config = (
    RunConfig
    | Asking
    | ExportConfig
    | PushConfig
    | ReportConfig
    | RunsConfig
    | AuditConfig
    | AblateConfig
    | CurveConfig
    | ExplainConfig
    | TuneConfig
)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb.

    `groups` are the folders of conf/ it reads, with the preset read unless another is typed;
    `barred` are presets of those folders that make no sense here, `unread` settings of its schema that it never
    reads, each with the reason; `prefix` begins the names of its own presets in a group, which no other verb reads;
    `entry` is "module:function", imported only when the settings are valid.
    """

    config: type[Config]
    entry: str
    help: str
    groups: dict[str, str | None]
    examples: tuple[str, ...]
    barred: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    prefix: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Setting]:
        """Its settings, by dotted name."""
        unread = {*self.unread, *self.groups}
        return {name: one for name, one in settings(self.config).items() if name not in unread}


TRAINING: dict[str, str | None] = {
    "task": "classify",
    "data": "demo",
    "model": "tiny",
    "optim": "scratch",
    "hardware": "auto",
    "logger": "csv",
    "experiment": None,
}  # the groups of whatever trains
FINISHED = {"run": "the data of a finished run, which only evaluate reads"}
OF_TRAINING = {"fsdp": "a way to hold weights in training", "slurm": "a job of training"}
OF_RUN: dict[str, str | None] = {"data": "run", "hardware": "auto"}  # the groups of whatever judges
LONG = ("data.long", "data.stride", "data.windows")
ONE_DEVICE = {"hardware.devices": "one device is used", "hardware.timeout": "no other process is waited for"}
UNREAD_IN_JUDGING = (
    {"data.max_length": "texts are cut as the model was trained to", "data.cache": "nothing is cached"}
    | dict.fromkeys(LONG, "texts are read as the model was trained to")
    | dict.fromkeys(("data.validation_share", "data.test_share", "data.split_seed"), "no split is carved out")
    | dict.fromkeys(("data.folds", "data.fold", "data.group", "data.train_share"), "rows are judged as they are")
)
UNREAD_IN_PRETRAINING = [name for name, one in settings(RunConfig).items() if not one.facts.is_read_in("pretrain")]

VERBS = {
    "train": Verb(
        RunConfig,
        "manyheads.training_run:train",
        "train a model, judge it, and leave a run folder",
        TRAINING | {"debug": None},
        (
            "manyheads train",
            "manyheads train data.path=reviews.csv data.text=review data.label=stars",
            "manyheads train data.path=reviews.csv data.folds=5 data.group=author",
            "manyheads train model.n_heads=8 model.d_k=16 optim.lr=5e-4 output=outputs/eight-heads",
            "manyheads train task=seq2seq data.path=phrases.csv",
        ),
        FINISHED,
    ),
    "pretrain": Verb(
        RunConfig,
        "manyheads.training_run:train",
        "learn from texts without labels, for training to start from",
        TRAINING | {"task": "pretrain", "model": "tiny", "debug": None},
        (
            "manyheads pretrain data.path=reviews.csv budget=10min output=outputs/read",
            "manyheads pretrain data.path=reviews.csv pretrain.also=[more.txt] pretrain.mask_share=0.3",
            "manyheads pretrain data.path=texts.txt budget=20Mtok model=mini",
        ),
        FINISHED | dict.fromkeys(("classify", "seq2seq"), "what train does"),
        dict.fromkeys(LONG, "all of a long text is read, in pieces")
        | dict.fromkeys(UNREAD_IN_PRETRAINING, "only hidden words are predicted"),
    ),
    "evaluate": Verb(
        EvaluateConfig,
        "manyheads.evaluation.evaluate:evaluate",
        "judge a trained model on its own or other data",
        OF_RUN,
        ("manyheads evaluate run=outputs/eight-heads", "manyheads evaluate run=outputs/eight-heads data.path=new.csv"),
        OF_TRAINING,
        UNREAD_IN_JUDGING,
    ),
    "compare": Verb(
        CompareConfig,
        "manyheads.evaluation.compare:compare",
        "compare trained models, or anybody's predictions, on the same rows",
        OF_RUN,
        (
            "manyheads compare runs=[outputs/a,outputs/b]",
            "manyheads compare runs=[outputs/a,outputs/a/onnx,theirs.csv] data.path=new.csv",
        ),
        OF_TRAINING | {"ddp": "several devices, but compare uses one"},
        UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    "calibrate": Verb(
        CalibrateConfig,
        "manyheads.evaluation.calibrate:calibrate",
        "fit how far the probabilities of a trained classifier may be believed",
        OF_RUN,
        (
            "manyheads calibrate run=outputs/reviews",
            "manyheads calibrate run=outputs/reviews method=isotonic data.path=labelled.csv",
        ),
        OF_TRAINING | {"ddp": "several devices, but calibrate uses one"},
        UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    "probe": Verb(
        ProbeConfig,
        "manyheads.evaluation.probe:probe",
        "try how a trained classifier behaves: texts changed in small ways, and tests of your own",
        OF_RUN,
        (
            "manyheads probe run=outputs/reviews",
            "manyheads probe run=outputs/reviews tests=tests.yaml data.path=new.csv",
        ),
        OF_TRAINING | {"ddp": "several devices, but probe uses one"},
        UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    "predict": Verb(
        PredictConfig,
        "manyheads.inference.predict:predict",
        "answer texts with a trained model",
        {"hardware": "auto"},
        (
            'manyheads predict run=outputs/eight-heads text="the best film of the year"',
            "manyheads predict run=outputs/eight-heads input=texts.txt output=labels.jsonl",
        ),
        OF_TRAINING,
    ),
    "look": Verb(
        LookConfig,
        "manyheads.interpret.look:look",
        "see what a trained model attends to",
        {"hardware": "auto"},
        (
            'manyheads look run=outputs/eight-heads text="the best film of the year"',
            "manyheads look run=outputs/eight-heads split=validation rows=500",
        ),
        dict.fromkeys(("ddp", "fsdp"), "several devices, but look uses one") | {"slurm": "a job of training"},
        ONE_DEVICE,
    ),
    "serve": Verb(
        ServeConfig,
        "manyheads.serving.serve:serve",
        "answer texts over HTTP, with a page to try the model",
        {"hardware": "auto"},
        (
            "manyheads serve run=outputs/reviews",
            "manyheads serve run=outputs/reviews port=8080 workers=2 hardware.threads=1 exact=false",
        ),
        dict.fromkeys(("ddp", "fsdp"), "several devices, but each worker of serve uses one")
        | {"slurm": "a job of training"},
        {"hardware.devices": "each worker has one device"},
    ),
    "runs": Verb(
        RunsConfig,
        "manyheads.runs.report:runs",
        "list the runs of a folder, or compare the settings and figures of some",
        {},
        (
            "manyheads runs",
            "manyheads runs 'where=[data=reviews, accuracy>0.8]' sort=-accuracy",
            "manyheads runs compare outputs/a outputs/b",
        ),
    ),
    "report": Verb(
        ReportConfig,
        "manyheads.runs.report:report",
        "what a finished run is worth, as Markdown, JSON or the page",
        {},
        (
            "manyheads report run=outputs/reviews",
            "manyheads report run=outputs/reviews format=json output=reviews.json",
        ),
    ),
    "export": Verb(
        ExportConfig,
        "manyheads.huggingface.write:export",
        "write a trained model for transformers, sentence-transformers, onnxruntime or torch",
        {},
        (
            "manyheads export run=outputs/reviews",
            "manyheads export run=outputs/reviews format=onnx",
        ),
    ),
    "push": Verb(
        PushConfig,
        "manyheads.huggingface.push:push",
        "upload a trained model to the Hugging Face hub",
        {},
        (
            "manyheads push run=outputs/reviews repo=me/reviews dry=true",
            "manyheads push run=outputs/reviews repo=me/reviews tag=v1",
        ),
    ),
    "audit": Verb(
        AuditConfig,
        "manyheads.evaluation.audit:audit",
        "look at texts and labels before training on them",
        {"data": "demo"},
        (
            "manyheads audit data.path=reviews.csv data.text=review data.label=stars",
            "manyheads audit data.path=reviews.csv data.max_length=128 output=outputs/reviews-audit",
        ),
        FINISHED | {"dates": "texts for texts, which have no labels"},
        {"data.target": "labels are looked at", "data.cache": "no tokens are cached"}
        | dict.fromkeys(("data.folds", "data.fold"), "its own setting is folds")
        | dict.fromkeys(LONG, "texts are counted as they are"),
    ),
    "ablate": Verb(
        AblateConfig,
        "manyheads.sweep.ablate:ablate",
        "compare settings at an equal budget, over seeds and data, with a paired test",
        {group: name for group, name in TRAINING.items() if group not in ("task", "logger")} | {"model": "tiny"},
        (
            "manyheads ablate experiment=ablate_scores",
            "manyheads ablate vary=model.score values=[scaled_dot,cosine,additive] equal=flops sets=[demo]",
            "manyheads ablate vary=[model.n_heads,model.d_k] values=[[4,32],[8,16]] data.path=reviews.csv",
        ),
        FINISHED
        | dict.fromkeys(("ddp", "fsdp"), "several devices, but ablate compares runs of one device")
        | {"dates": "a task of texts for texts, but ablate compares classifiers"},
        {
            **dict.fromkeys(("data.folds", "data.fold"), "validation rows are the same in all runs"),
            "data.target": "classifiers are compared",
            "hardware.devices": "runs of one device are compared, one after another",
            "hardware.nodes": "runs of one machine are compared, one after another",
        },
        prefix={"experiment": "ablate_"},
    ),
    "tune": Verb(
        TuneConfig,
        "manyheads.sweep.tune:tune",
        "try settings, a process each, and rank them by validation",
        TRAINING,
        (
            "manyheads tune optim.lr=3e-4,1e-3,3e-3 model.dropout=0,0.1 data.path=reviews.csv",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.n_layers=1..4 trials=20 seeds=3 output=outputs/search",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.dropout=0..0.3 method=tpe prune=median jobs=2 minutes=5",
        ),
        FINISHED,
        {"hardware.nodes": "all runs are of this machine", "data.fold": "each of data.folds has its turn"},
    ),
    "curve": Verb(
        CurveConfig,
        "manyheads.sweep.curve:curve",
        "figures by the number of training rows, and what more of them would bring",
        {group: name for group, name in TRAINING.items() if group != "task"},
        (
            "manyheads curve data.path=reviews.csv",
            "manyheads curve data.path=reviews.csv shares=[0.1,0.2,0.5,1] seeds=3 output=outputs/curve",
        ),
        FINISHED | {"dates": "texts for texts, which have no classes", "slurm": "jobs of other verbs"},
        {"data.target": "classifiers are trained", "hardware.nodes": "all runs are of this machine"}
        | dict.fromkeys(("data.folds", "data.fold", "data.train_share"), "train rows vary by shares alone"),
    ),
    "explain": Verb(
        ExplainConfig,
        "manyheads.explain.explain:explain",
        "measure what is said of attention, with pictures",
        {},
        ("manyheads explain", "manyheads explain only=length longest=8192", "manyheads explain only=relations seed=1"),
    ),
}


EXAMPLE = "name one that holds presets, such as mine/model/wide.yaml"


def conf_folder() -> Path:
    """The folder of presets: beside the package's modules when installed, else the repository's."""
    inside = Path(__file__).resolve().parents[1] / "conf"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "conf"


def presets_folder(config_dir: str) -> Path:
    """The user's own folder of presets.

    Raises:
        ValueError: it is no folder, or a preset in it chooses others by an interpolation, which Hydra would look up: in
            the environment, for one.
    """
    folder = Path(os.path.expanduser(config_dir)).resolve()
    if not folder.is_dir():
        raise ValueError(f"--config-dir {config_dir} is not a folder: {EXAMPLE}")
    groups = {group for verb in VERBS.values() for group in verb.groups} | {"hydra"}  # the last is refused in them
    if not any(file for group in groups for file in (folder / group).rglob("*.yaml")):
        is_run = (folder / "config.yaml").is_file()
        above = folder.name in groups and any(folder.glob("*.yaml"))
        what = "is a run and holds no presets: to train it once more write again=" if is_run else "holds no presets: "
        remedy = config_dir if is_run else f"name the folder above it, {folder.parent}" if above else EXAMPLE
        raise ValueError(f"--config-dir {config_dir} {what}{remedy}")
    for file in sorted(folder.rglob("*.yaml")):
        if "${" in str(_content(file).get("defaults")):
            raise ValueError(
                f"{file}: its defaults hold an interpolation, but a preset names others plainly: write a name"
            )
    return folder


def own_settings(group: str, name: str, more: str | Path | None = None) -> dict[str, Any]:
    """What the file of a preset itself sets, by dotted name, without what it builds on."""
    folders = [conf_folder(), *([Path(os.path.expanduser(more))] if more else [])]
    file = next((file for folder in folders if (file := folder / group / f"{name}.yaml").is_file()), None)
    found: dict[str, Any] = {}
    for section, value in (_content(file) if file else {}).items():
        found |= (
            {f"{section}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {section: value}
        )
    return found


def _content(file: Path) -> dict[str, Any]:
    """What a preset says; nothing where the file is none, which is said when it is composed."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def choices(verb: str, group: str, more: str | Path | None = None) -> list[str]:
    """Names of the presets of one group that the verb may read, sorted.

    Args:
        more: the user's own folder of presets (`--config-dir`), searched too.
    """
    folders = [conf_folder() / group] + ([Path(os.path.expanduser(more), group)] if more else [])
    names = {file.stem for folder in folders for file in folder.glob("*.yaml")}
    return sorted(name for name in names - set(VERBS[verb].barred) if reads(verb, group, name))


def reads(verb: str, group: str, name: str) -> bool:
    """Whether the preset, by its prefix, is the verb's own, or that of no verb where the verb has no prefix."""
    own = VERBS[verb].prefix.get(group)
    prefixes = tuple(other.prefix[group] for other in VERBS.values() if group in other.prefix)
    return name.startswith(own) if own else not name.startswith(prefixes)
