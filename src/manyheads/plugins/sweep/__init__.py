"""Searches and comparisons: tune, ablate and curve train one run for each of several settings, seeds or shares."""

from pathlib import Path

from manyheads.plugin import FINISHED, TRAINING, Plugin, Verb

VERBS = (
    Verb(
        "ablate",
        "manyheads.plugins.sweep.config:AblateConfig",
        "manyheads.plugins.sweep.ablate:ablate",
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
        shared="manyheads.plugins.sweep.config:share_table",
    ),
    Verb(
        "tune",
        "manyheads.plugins.sweep.config:TuneConfig",
        "manyheads.plugins.sweep.tune:tune_settings",
        "try settings, a process each, and rank them by validation",
        TRAINING,
        (
            "manyheads tune optim.lr=3e-4,1e-3,3e-3 model.dropout=0,0.1 data.path=reviews.csv",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.n_layers=1..4 trials=20 seeds=3 output=outputs/search",
            "manyheads tune optim.lr=log:1e-4..1e-2 model.dropout=0..0.3 method=tpe prune=median jobs=2 minutes=5",
        ),
        FINISHED,
        {"hardware.nodes": "all runs are of this machine", "data.fold": "each of data.folds has its turn"},
        no_multirun="runs one training after another itself",
        shared="manyheads.plugins.sweep.config:share_search",
        takes_several="manyheads.plugins.sweep.axes:values_tried",
    ),
    Verb(
        "curve",
        "manyheads.plugins.sweep.config:CurveConfig",
        "manyheads.plugins.sweep.curve:curve",
        "figures by the number of training rows, and what more of them would bring",
        {group: name for group, name in TRAINING.items() if group != "task"},
        (
            "manyheads curve data.path=reviews.csv",
            "manyheads curve data.path=reviews.csv shares=[0.1,0.2,0.5,1] seeds=3 output=outputs/curve",
        ),
        FINISHED | {"dates": "texts for texts, which have no classes"},
        {"data.target": "classifiers are trained", "hardware.nodes": "all runs are of this machine"}
        | dict.fromkeys(("data.folds", "data.fold", "data.train_share"), "train rows vary by shares alone"),
        no_multirun="runs one training after another itself",
    ),
)
PLUGIN = Plugin("sweep", verbs=VERBS, presets=Path(__file__).parent / "conf")
