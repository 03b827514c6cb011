"""What to label next (active learning): the verb `next` chooses, of texts without labels, those from which a trained
classifier would learn the most, and writes them into a file with a column for their labels.
"""

from pathlib import Path

from manyheads.plugin import OF_RUN, OF_TRAINING, ONE_DEVICE, UNREAD_IN_JUDGING, Plugin, Verb

NEXT = Verb(
    "next",
    config="manyheads.plugins.active.config:NextConfig",
    run="manyheads.plugins.active.next:choose_next",
    help="choose which texts to label next, for a trained classifier to learn the most from",
    groups=OF_RUN,
    examples=(
        "manyheads next run=outputs/reviews data.path=unlabelled.csv n=100 output=next.csv",
        "manyheads next run=outputs/reviews data.path=unlabelled.csv by=uncertainty output=next.csv",
    ),
    barred=OF_TRAINING | {"ddp": "several devices, but next uses one"},
    unread=UNREAD_IN_JUDGING
    | ONE_DEVICE
    | dict.fromkeys(("data.label", "data.target", "data.merge_labels"), "texts are chosen by what the model answers")
    | dict.fromkeys(("data.votes", "data.label_columns"), "texts are chosen by what the model answers")
    | dict.fromkeys(("data.validation_split", "data.test_split"), "the rows of one split are chosen from")
    | {"data.rows": "its own setting is sample", "data.streaming": "texts are read several times"},
)
PLUGIN = Plugin("active", verbs=[NEXT], presets=Path(__file__).parent / "conf")
