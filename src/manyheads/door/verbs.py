"""The verbs of the command line: what each is told, which groups of presets it reads, what it calls."""

from dataclasses import dataclass, field

from manyheads.config import (
    AblateConfig,
    EvaluateConfig,
    ExplainConfig,
    ExportConfig,
    LookConfig,
    PredictConfig,
    RunConfig,
    TuneConfig,
)
from manyheads.config.names import Setting, settings

Config = (
    RunConfig | EvaluateConfig | PredictConfig | LookConfig | ExportConfig | AblateConfig | ExplainConfig | TuneConfig
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
        """What it can be told, by dotted name."""
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

OF_ANSWERS = (  # that a text has beside its own words
    *("linear", "teacher", "optim.teacher_weight", "optim.teacher_temperature"),
    *("data.target", "optim.class_weights", "optim.label_smoothing"),
    *("model.pooling", "model.pooler", "model.pair", "model.dropout_classifier"),
)

VERBS = {
    "train": Verb(
        RunConfig,
        "manyheads.train:train",
        "train a model, judge it, and leave a run folder",
        TRAINING | {"debug": None},
        (
            "manyheads train",
            "manyheads train data.path=reviews.csv data.text=review data.label=stars",
            "manyheads train model.n_heads=8 model.d_k=16 optim.lr=5e-4 output=outputs/eight-heads",
            "manyheads train task=seq2seq data.path=phrases.csv",
        ),
        FINISHED,
    ),
    "pretrain": Verb(
        RunConfig,
        "manyheads.train:train",
        "learn from texts without labels, for training to start from",
        TRAINING | {"task": "pretrain", "model": "tiny", "debug": None},
        (
            "manyheads pretrain data.path=reviews.csv budget=10min output=outputs/read",
            "manyheads pretrain data.path=reviews.csv pretrain.also=[more.txt] pretrain.mask_share=0.3",
            "manyheads pretrain data.path=texts.txt budget=20Mtok model=mini",
        ),
        FINISHED | dict.fromkeys(("classify", "seq2seq", "self_pretrain"), "what train does"),
        dict.fromkeys(("data.long", "data.stride", "data.windows"), "all of a long text is read, in pieces")
        | dict.fromkeys(OF_ANSWERS, "the words of a text are all that is told")
        | {"pretrain.before": "nothing follows"},
    ),
    "evaluate": Verb(
        EvaluateConfig,
        "manyheads.judge.evaluate:evaluate",
        "judge a trained model on its own or other data",
        {"data": "run", "hardware": "auto"},
        ("manyheads evaluate run=outputs/eight-heads", "manyheads evaluate run=outputs/eight-heads data.path=new.csv"),
        OF_TRAINING,
        {
            "data.max_length": "texts are cut as the model was trained to",
            "data.long": "texts are read as the model was trained to",
            "data.stride": "texts are read as the model was trained to",
            "data.windows": "texts are read as the model was trained to",
            "data.cache": "nothing is cached",
            "data.validation_share": "no split is carved out",
            "data.test_share": "no split is carved out",
            "data.split_seed": "no split is carved out",
        },
    ),
    "predict": Verb(
        PredictConfig,
        "manyheads.judge.predict:predict",
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
        "manyheads.look.look:look",
        "see what a trained model attends to",
        {"hardware": "auto"},
        (
            'manyheads look run=outputs/eight-heads text="the best film of the year"',
            "manyheads look run=outputs/eight-heads split=validation rows=500",
        ),
        {
            "ddp": "several devices, but look uses one",
            "fsdp": "several devices, but look uses one",
            "slurm": "a job of training",
        },
        {"hardware.devices": "one device is used", "hardware.timeout": "no other process is waited for"},
    ),
    "export": Verb(
        ExportConfig,
        "manyheads.family.write:export",
        "write a trained model of BERT's family for transformers",
        {},
        ("manyheads export run=outputs/reviews", "manyheads export run=outputs/reviews output=reviews-bert"),
    ),
    "ablate": Verb(
        AblateConfig,
        "manyheads.ablate.ablate:ablate",
        "compare settings at an equal budget, over seeds and data, with a paired test",
        {group: name for group, name in TRAINING.items() if group not in ("task", "logger")} | {"model": "tiny"},
        (
            "manyheads ablate experiment=ablate_scores",
            "manyheads ablate vary=model.score values=[scaled_dot,cosine,additive] equal=flops sets=[demo]",
            "manyheads ablate vary=[model.n_heads,model.d_k] values=[[4,32],[8,16]] data.path=reviews.csv",
        ),
        FINISHED
        | {
            "ddp": "several devices, but ablate compares runs of one device",
            "fsdp": "several devices, but ablate compares runs of one device",
            "slurm": "a job of one training",
            "dates": "a task of texts for texts, but ablate compares classifiers",
        },
        {
            "data.target": "classes are told apart",
            "optim.teacher_weight": "no run is a teacher",
            "optim.teacher_temperature": "no run is a teacher",
            "hardware.devices": "runs of one device are compared, one after another",
            "hardware.nodes": "runs of one machine are compared, one after another",
        },
        prefix={"experiment": "ablate_"},
    ),
    "tune": Verb(
        TuneConfig,
        "manyheads.tune.tune:tune",
        "try settings, a process each, and rank them by validation",
        TRAINING,
        (
            "manyheads tune optim.lr=3e-4,1e-3,3e-3 model.dropout=0,0.1 data.path=reviews.csv",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.n_layers=1..4 trials=20 seeds=3 output=outputs/search",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.dropout=0..0.3 method=tpe prune=median jobs=2 minutes=5",
        ),
        FINISHED | {"slurm": "a job of one training"},
        {"hardware.nodes": "all runs are of this machine"},
    ),
    "explain": Verb(
        ExplainConfig,
        "manyheads.explain.explain:explain",
        "measure what is said of attention, with pictures",
        {},
        ("manyheads explain", "manyheads explain only=length longest=8192", "manyheads explain only=relations seed=1"),
    ),
}
