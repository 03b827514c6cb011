"""A classifier as a web server: the verb `serve`, which has a page, too, and shows on it the views of other plugins.

One process speaks HTTP (server.py, gate.py, app.py) and queues requests (pool.py); others hold the model (worker.py).
"""

from pathlib import Path

from manyheads.plugin import Plugin, Verb

SERVE = Verb(
    "serve",
    config="manyheads.plugins.serving.config:ServeConfig",
    run="manyheads.plugins.serving.serve:serve",
    help="answer texts over HTTP, with a page to try the model",
    groups={"hardware": "auto"},
    examples=(
        "manyheads serve run=outputs/reviews",
        "manyheads serve run=outputs/reviews port=8080 workers=2 hardware.threads=1 exact=false",
    ),
    barred=dict.fromkeys(("ddp", "fsdp"), "several devices, but each worker of serve uses one"),
    unread={"hardware.devices": "each worker has one device"},
    task="classify",
    why_task="a classifier is served",
    no_multirun="runs until it is ended",
    record="manyheads.plugins.serving.serve:refuse_record",
)
PLUGIN = Plugin("serving", verbs=(SERVE,), presets=Path(__file__).parent / "conf")
