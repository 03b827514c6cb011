"""Searches and comparisons: tune, ablate and curve train one run for each of several settings, seeds or shares."""

from pathlib import Path

from manyheads.plugin import FINISHED, TRAINING, Part, Plugin, Verb

VERBS = (
    Verb(
        "ablate",
        config="manyheads.plugins.sweep.config:AblateConfig",
        run="manyheads.plugins.sweep.ablate:ablate",
        help="compare settings at an equal budget, over seeds and data, with a paired test",
        groups={group: name for group, name in TRAINING.items() if group not in ("task", "logger")} | {"model": "tiny"},
        examples=(
            "manyheads ablate experiment=ablate_scores",
            "manyheads ablate vary=model.score values=[scaled_dot,cosine,additive] equal=flops sets=[demo]",
            "manyheads ablate model.n_heads=4,8 model.d_k=16,32 data.path=reviews.csv output=heads.tex",
        ),
        barred=FINISHED
        | dict.fromkeys(("ddp", "fsdp"), "several devices, but ablate compares runs of one device")
        | {"dates": "a task of texts for texts, but ablate compares classifiers"},
        unread={
            **dict.fromkeys(("data.folds", "data.fold"), "validation rows are the same in all runs"),
            "data.target": "classifiers are compared",
            "hardware.devices": "runs of one device are compared, one after another",
            "hardware.nodes": "runs of one machine are compared, one after another",
        },
        prefix={"experiment": "ablate_"},
        shared="manyheads.plugins.sweep.config:share_table",
        takes_several="manyheads.plugins.sweep.axes:values_tried",
    ),
    Verb(
        "tune",
        config="manyheads.plugins.sweep.config:TuneConfig",
        run="manyheads.plugins.sweep.tune:tune_settings",
        record="manyheads.plugins.sweep.tune:tune_record",
        help="try settings, a process each, and rank them by validation",
        groups=TRAINING,
        examples=(
            "manyheads tune optim.lr=3e-4,1e-3,3e-3 model.dropout=0,0.1 data.path=reviews.csv",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.n_layers=1..4 trials=20 seeds=3 output=outputs/search",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.dropout=0..0.3 method=tpe prune=median jobs=2 minutes=5",
        ),
        barred=FINISHED,
        unread={"hardware.nodes": "all runs are of this machine", "data.fold": "each of data.folds has its turn"},
        no_multirun="runs one training after another itself",
        shared="manyheads.plugins.sweep.config:share_search",
        takes_several="manyheads.plugins.sweep.axes:values_tried",
    ),
    Verb(
        "curve",
        config="manyheads.plugins.sweep.config:CurveConfig",
        run="manyheads.plugins.sweep.curve:curve",
        help="figures by the number of training rows, and what more of them would bring",
        groups={group: name for group, name in TRAINING.items() if group != "task"},
        examples=(
            "manyheads curve data.path=reviews.csv",
            "manyheads curve data.path=reviews.csv shares=[0.1,0.2,0.5,1] seeds=3 output=outputs/curve",
        ),
        barred=FINISHED | {"dates": "texts for texts, which have no classes"},
        unread={"data.target": "classifiers are trained", "hardware.nodes": "all runs are of this machine"}
        | dict.fromkeys(("data.folds", "data.fold", "data.train_share"), "train rows vary by shares alone"),
        no_multirun="runs one training after another itself",
    ),
)
OF_ABLATE = {"keys": ("vary", "equal", "measured")}
OF_TUNE = {"keys": ("name", "columns", "rows"), "file": "search.json"}
OF_CURVE = {"keys": ("models", "shares", "rows_judged"), "file": "curve.json"}
RECORDS = (
    Part("record", "ablate", "manyheads.plugins.sweep.tables:result_tables", facts=OF_ABLATE),
    Part("record", "tune", "manyheads.plugins.sweep.ranking:search_tables", facts=OF_TUNE),
    Part("record", "curve", "manyheads.plugins.sweep.curve_report:curve_tables", facts=OF_CURVE),
)
PLUGIN = Plugin("sweep", verbs=VERBS, parts=RECORDS, presets=Path(__file__).parent / "conf")
