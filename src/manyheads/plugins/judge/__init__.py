"""How far a classifier can be trusted: the verbs compare, calibrate and probe, and audit of rows before training; in
evaluate slices of rows and costs of mistakes; in predict and evaluate texts left unanswered, sets of classes, outliers.
"""

from pathlib import Path

from manyheads.plugin import (
    FINISHED,
    LONG,
    OF_RUN,
    OF_TRAINING,
    ONE_DEVICE,
    UNREAD_IN_JUDGING,
    Part,
    Plugin,
    Section,
    Verb,
)

VERBS = (
    Verb(
        "compare",
        "manyheads.plugins.judge.config:CompareConfig",
        "manyheads.plugins.judge.compare:compare_models",
        "compare trained models, or predictions in files, on the same rows",
        OF_RUN,
        (
            "manyheads compare runs=[outputs/a,outputs/b]",
            "manyheads compare runs=[outputs/a,outputs/a/onnx,theirs.csv] data.path=new.csv",
        ),
        OF_TRAINING | {"ddp": "several devices, but compare uses one"},
        UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    Verb(
        "calibrate",
        "manyheads.plugins.judge.config:CalibrateConfig",
        "manyheads.plugins.judge.calibrate:calibrate",
        "calibrate the probabilities of a trained classifier",
        OF_RUN,
        (
            "manyheads calibrate run=outputs/reviews",
            "manyheads calibrate run=outputs/reviews method=isotonic data.path=labelled.csv",
        ),
        OF_TRAINING | {"ddp": "several devices, but calibrate uses one"},
        UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    Verb(
        "probe",
        "manyheads.plugins.judge.config:ProbeConfig",
        "manyheads.plugins.judge.probe:probe",
        "behavioural tests of a trained classifier: texts changed in small ways, and tests of your own",
        OF_RUN,
        (
            "manyheads probe run=outputs/reviews",
            "manyheads probe run=outputs/reviews tests=tests.yaml data.path=new.csv",
        ),
        OF_TRAINING | {"ddp": "several devices, but probe uses one"},
        UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    Verb(
        "audit",
        "manyheads.plugins.judge.config:AuditConfig",
        "manyheads.plugins.judge.audit:audit",
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
)

SECTIONS = (
    Section(
        "",
        "manyheads.plugins.judge.sections:AnalysisConfig",
        "",
        ("judge",),
        check="manyheads.plugins.judge.sections:check_slice_names",
    ),
    Section("", "manyheads.plugins.judge.sections:LabelledConfig", "", ("judge", "answer")),
    Section(
        "abstain",
        "manyheads.plugins.judge.sections:AbstainConfig",
        "texts that are left without an answer",
        ("judge", "answer"),
    ),
    Section("sets", "manyheads.plugins.judge.sections:SetsConfig", "sets of classes", ("judge", "answer")),
    Section(
        "outliers",
        "manyheads.plugins.judge.sections:OutliersConfig",
        "texts unlike those of the training",
        ("judge", "answer"),
    ),
)
PARTS = (
    Part(
        "analysis",
        "slices",
        "manyheads.plugins.judge.slices:slices",
        facts={"check": "manyheads.plugins.judge.checks:wants_slices"},
    ),
    Part(
        "analysis",
        "costs",
        "manyheads.plugins.judge.decisions:costs",
        facts={"check": "manyheads.plugins.judge.checks:wants_costs"},
    ),
    Part(
        "answer_rule",
        "promises",
        "manyheads.plugins.judge.abstain:promise_rule",
        facts={"check": "manyheads.plugins.judge.checks:wants_promises"},
    ),
    Part(
        "answer_rule",
        "outliers",
        "manyheads.plugins.judge.outliers:outlier_rule",
        facts={"check": "manyheads.plugins.judge.checks:wants_outliers"},
    ),
)

PLUGIN = Plugin("judge", verbs=VERBS, sections=SECTIONS, parts=PARTS, presets=Path(__file__).parent / "conf")
