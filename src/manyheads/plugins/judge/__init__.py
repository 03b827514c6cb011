"""What a classifier is worth: compared with others on the same rows, calibrated, probed by changed texts; and what is
wrong with rows before anything is trained on them."""

from pathlib import Path

from manyheads.plugin import (
    FINISHED,
    LONG,
    OF_RUN,
    OF_TRAINING,
    ONE_DEVICE,
    UNREAD_IN_JUDGING,
    Plugin,
    Verb,
)

VERBS = (
    Verb(
        "compare",
        "manyheads.plugins.judge.config:CompareConfig",
        "manyheads.plugins.judge.compare:compare",
        "compare trained models, or anybody's predictions, on the same rows",
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
        "fit how far the probabilities of a trained classifier may be believed",
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
        "try how a trained classifier behaves: texts changed in small ways, and tests of your own",
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

PLUGIN = Plugin("judge", verbs=VERBS, presets=Path(__file__).parent / "conf")
