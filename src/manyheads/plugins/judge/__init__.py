"""How far a classifier can be trusted: the verbs compare, calibrate and probe, and audit of rows before training; in
evaluate slices and weights of rows, costs of mistakes; in predict and evaluate texts left unanswered, sets of classes,
outliers.
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
        config="manyheads.plugins.judge.config:CompareConfig",
        run="manyheads.plugins.judge.compare:compare_models",
        help="compare trained models, or predictions in files, on the same rows",
        groups=OF_RUN,
        examples=(
            "manyheads compare runs=[outputs/a,outputs/b]",
            "manyheads compare runs=[outputs/a,outputs/a/onnx,theirs.csv] data.path=new.csv",
        ),
        barred=OF_TRAINING | {"ddp": "several devices, but compare uses one"},
        unread=UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    Verb(
        "calibrate",
        config="manyheads.plugins.judge.config:CalibrateConfig",
        run="manyheads.plugins.judge.calibrate:calibrate",
        help="calibrate the probabilities of a trained classifier",
        groups=OF_RUN,
        examples=(
            "manyheads calibrate run=outputs/reviews",
            "manyheads calibrate run=outputs/reviews method=isotonic data.path=labelled.csv",
        ),
        barred=OF_TRAINING | {"ddp": "several devices, but calibrate uses one"},
        unread=UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    Verb(
        "probe",
        config="manyheads.plugins.judge.config:ProbeConfig",
        run="manyheads.plugins.judge.probe:probe",
        help="behavioural tests of a trained classifier: texts changed in small ways, and tests of your own",
        groups=OF_RUN,
        examples=(
            "manyheads probe run=outputs/reviews",
            "manyheads probe run=outputs/reviews tests=tests.yaml data.path=new.csv",
        ),
        barred=OF_TRAINING | {"ddp": "several devices, but probe uses one"},
        unread=UNREAD_IN_JUDGING | ONE_DEVICE,
    ),
    Verb(
        "audit",
        config="manyheads.plugins.judge.config:AuditConfig",
        run="manyheads.plugins.judge.audit:audit",
        help="look at texts and labels before training on them",
        groups={"data": "demo"},
        examples=(
            "manyheads audit data.path=reviews.csv data.text=review data.label=stars",
            "manyheads audit data.path=reviews.csv data.max_length=128 output=outputs/reviews-audit",
        ),
        barred=FINISHED | {"dates": "texts for texts, which have no labels"},
        unread={"data.target": "labels are looked at", "data.cache": "no tokens are cached"}
        | dict.fromkeys(("data.folds", "data.fold"), "its own setting is folds")
        | dict.fromkeys(LONG, "texts are counted as they are"),
        task="classify",
        why_task="the labels of one column are looked at",
    ),
)

SECTIONS = (
    Section(
        "",
        config="manyheads.plugins.judge.sections:AnalysisConfig",
        help="",
        into=("judge",),
        check="manyheads.plugins.judge.sections:check_slice_names",
    ),
    Section("", config="manyheads.plugins.judge.sections:LabelledConfig", help="", into=("judge", "answer")),
    Section(
        "abstain",
        config="manyheads.plugins.judge.sections:AbstainConfig",
        help="texts that are left without an answer",
        into=("judge", "answer"),
    ),
    Section(
        "sets", config="manyheads.plugins.judge.sections:SetsConfig", help="sets of classes", into=("judge", "answer")
    ),
    Section(
        "outliers",
        config="manyheads.plugins.judge.sections:OutliersConfig",
        help="texts unlike those of the training",
        into=("judge", "answer"),
    ),
)
OF_COMPARE = {"keys": ("models", "pairs", "n_rows"), "file": "compare.json"}
PARTS = (
    Part("record", "compare", "manyheads.plugins.judge.comparison:comparison_tables", facts=OF_COMPARE),
    Part("record", "slices", "manyheads.plugins.judge.slices:slice_tables", facts={"keys": ("slices",)}),
    Part("finding", "weights", "manyheads.plugins.judge.annotations:by_weights"),
    Part("finding", "votes", "manyheads.plugins.judge.annotations:by_votes"),
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
