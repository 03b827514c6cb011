"""What a classifier attends to: the verb `look`, and the view `heads` that other plugins show of a text.

Exact maps of its heads and what each token adds, on a page of one text; figures of the heads over a split.
"""

from pathlib import Path

from manyheads.plugin import ONE_DEVICE, Part, Plugin, Verb

LOOK = Verb(
    "look",
    config="manyheads.plugins.interpret.config:LookConfig",
    run="manyheads.plugins.interpret.look:look",
    help="see what a trained model attends to",
    groups={"hardware": "auto"},
    examples=(
        'manyheads look run=outputs/eight-heads text="the best film of the year"',
        "manyheads look run=outputs/eight-heads split=validation rows=500",
    ),
    barred=dict.fromkeys(("ddp", "fsdp"), "several devices, but look uses one"),
    unread=ONE_DEVICE,
)
HEADS = Part(
    "view",
    "heads",
    "manyheads.plugins.interpret.pages:heads_page",
    options={"layers": "", "heads": "", "attribution": False},
    facts={
        "help": {
            "layers": "counted from 1, such as 2 or 1,3-4; empty: all",
            "heads": "counted from 1, such as 2 or 1,3-4; empty: all",
            "attribution": "also what each token adds (integrated gradients)",
        },
        "labels": {"layers": "Layers", "heads": "Heads", "attribution": "what each token adds"},
        "why_not": "manyheads.plugins.interpret.pages:why_no_heads",
        "digests": "manyheads.plugins.interpret.shown:digests",
    },
)
PLUGIN = Plugin("interpret", verbs=(LOOK,), parts=(HEADS,), presets=Path(__file__).parent / "conf")
