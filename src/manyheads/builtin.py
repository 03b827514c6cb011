"""What core itself adds to the registry: its verbs, its task `classify`, its blocks, sources and objectives.

All code is named as "module:name" and imported on first use. What plugins add is in plugins/.
"""

from typing import Any

from manyheads.evaluation.figures import FIGURES
from manyheads.plugin import (
    FINISHED,
    OF_RUN,
    OF_TRAINING,
    TRAINING,
    UNREAD_IN_EVALUATE,
    Part,
    Plugin,
    Task,
    Verb,
)

CLASSIFY = Task(
    answers="classes",
    model="is a classifier",
    column="label",
    figures=(),  # those that are registered
    required=(),
    hub=("text-classification", "Text classification"),
    assemble="manyheads.nn.assemble:assemble",
    objective="manyheads.training.objectives:classify",
    predictor="manyheads.inference.classifier:TextClassifier",
    evaluate="manyheads.evaluation.classification:evaluate_classifier",
    check="manyheads.config.run:check_classes",
    unread=("data.target",),
    is_weights=True,
)
VERBS = (
    Verb(
        "train",
        "manyheads.config.run:RunConfig",
        "manyheads.training_run:train",
        "train a model, judge it, and leave a run folder",
        TRAINING | {"debug": None},
        (
            "manyheads train",
            "manyheads train data.path=reviews.csv data.text=review data.label=stars",
            "manyheads train data.path=reviews.csv data.folds=5 data.group=author",
            "manyheads train model.n_heads=8 model.d_k=16 optim.lr=5e-4 output=outputs/eight-heads",
        ),
        FINISHED,
        record="manyheads.cli.for_programs:train_record",
    ),
    Verb(
        "evaluate",
        "manyheads.config.inference:EvaluateConfig",
        "manyheads.evaluation.evaluate:evaluate",
        "judge a trained model on its own or other data",
        OF_RUN,
        ("manyheads evaluate run=outputs/eight-heads", "manyheads evaluate run=outputs/eight-heads data.path=new.csv"),
        OF_TRAINING,
        UNREAD_IN_EVALUATE,
    ),
    Verb(
        "predict",
        "manyheads.config.inference:PredictConfig",
        "manyheads.inference.predict:predict",
        "answer texts with a trained model",
        {"hardware": "auto"},
        (
            'manyheads predict run=outputs/eight-heads text="the best film of the year"',
            "manyheads predict run=outputs/eight-heads input=texts.txt output=labels.jsonl",
        ),
        OF_TRAINING,
        record="manyheads.cli.for_programs:predict_record",
    ),
    Verb(
        "runs",
        "manyheads.config.inference:RunsConfig",
        "manyheads.runs.listing:runs",
        "list the runs of a folder, or compare the settings and figures of some",
        {},
        (
            "manyheads runs",
            "manyheads runs 'where=[data=reviews, accuracy>0.8]' sort=-accuracy",
            "manyheads runs compare outputs/a outputs/b",
        ),
    ),
    Verb(
        "report",
        "manyheads.config.inference:ReportConfig",
        "manyheads.runs.report:report",
        "the figures of a finished run, as Markdown, JSON or the page",
        {},
        (
            "manyheads report run=outputs/reviews",
            "manyheads report run=outputs/reviews format=json output=reviews.json",
        ),
    ),
)


def block(kind: str, name: str, make: str, **facts: Any) -> Part:
    """A part of the network, in nn/ or torch, without options."""
    return Part(kind, name, f"manyheads.nn.{make}" if not make.startswith("torch") else make, {}, facts)


BLOCKS = (  # docs/extending.md has the facts of each kind
    block("encoder", "transformer", "assemble:transformer", has_heads=True),
    block("score", "scaled_dot", "attention:ScaledDot"),
    block("score", "dot", "attention:Dot"),
    block("score", "cosine", "scores:Cosine"),
    block("score", "additive", "scores:Additive", maps_query=True, maps_key="kv_heads", is_sum=True),
    block("score", "general", "scores:General", maps_query=True),
    block("score", "concat", "scores:Concat", maps_query=True, maps_key="n_heads", is_sum=True),
    block("score", "distance", "scores:Distance"),
    block("normaliser", "softmax", "attention:softmax"),
    block("normaliser", "sigmoid", "attention:sigmoid"),
    block("normaliser", "sparsemax", "sparse:sparsemax"),
    block("normaliser", "entmax15", "sparse:entmax15"),
    block("activation", "relu", "torch.nn.functional:relu"),
    block("activation", "gelu", "torch.nn.functional:gelu"),
    block("activation", "geglu", "torch.nn.functional:gelu", gated=True),
    block("activation", "swiglu", "torch.nn.functional:silu", gated=True),
    block("positions", "none", "torch.nn:Identity", enters="nothing", unbounded=True),
    block("positions", "sinusoidal", "embeddings:SinusoidalPositions"),
    block("positions", "learned", "embeddings:LearnedPositions"),
    block("positions", "rotary", "embeddings:Rotary", enters="queries", turns_pairs=True),
    block("positions", "alibi", "embeddings:Alibi", enters="scores", unbounded=True),
    block("norm", "layer", "transformer:layer_norm"),
    block("norm", "rms", "transformer:rms_norm"),
    block("pooling", "mean", "classifier:mean"),
    block("pooling", "first", "classifier:first", reads_first=True),
    block("pooling", "max", "classifier:maximum"),
    block("pooling", "attention", "classifier:AttentionPooling", flops=4),
)

# Choices of `data.source`: from the settings `data` to splits by name. The fact `task` names the task of the rows,
# unless it is classify.
SOURCES = (
    Part("source", "demo", "manyheads.data.formats.demo:demo", facts={"task": "classify"}),  # its rows have classes
    Part("source", "files", "manyheads.data.opening:refuse_lost_rows"),  # data.path names them
    Part("source", "hub", "manyheads.data.formats.hub:open_hub"),
    Part("source", "run", "manyheads.data.opening:refuse_lost_rows"),  # those of a finished run, which evaluate reads
    Part("source", "memory", "manyheads.data.opening:refuse_lost_rows"),  # rows that were given in Python
)

RUN = Part(
    "weights",
    "run",
    "manyheads.training.weights:read_run_weights",
    facts={"find": "manyheads.inference.origin:find_run"},
)
OBJECTIVES = (  # choices of `optim.objective`: from logits and labels to the loss of each row
    Part("objective", "cross_entropy", "manyheads.training.objectives:label_losses"),
)

RECORDS = (  # what tables are made of, and the file that needs nothing but text
    Part("record", "reliability", "manyheads.runs.report:reliability_tables", facts={"keys": ("reliability",)}),
    Part("writer", ".md", "manyheads.runs.report:markdown_tables", facts={"several": True}),
)

PLUGIN = Plugin(
    "core",
    verbs=VERBS,
    parts=(Part("task", "classify", CLASSIFY), *BLOCKS, *FIGURES, *SOURCES, *OBJECTIVES, *RECORDS, RUN),
)
