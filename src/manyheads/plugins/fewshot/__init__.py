"""Few rows: optim.contrast fine-tunes an encoder of sentences before its head is fitted; data.descriptions gives labels
a text.

Two sections of settings: one with hooks that decide by the rows whether to begin so, and act on the weights before the
first step; one with a hook that gives the training further rows.
"""

from manyheads.plugin import Plugin, Section

CONTRAST = Section(
    "",
    config="manyheads.plugins.fewshot.config:ContrastConfig",
    help="fine-tuning by contrast",
    into=("optim",),
    unread="manyheads.plugins.fewshot.config:why_contrast_unread",
    resolve="manyheads.plugins.fewshot.resolve:with_contrast",
    begin="manyheads.plugins.fewshot.contrast:begin",
)
DESCRIPTIONS = Section(
    "",
    config="manyheads.plugins.fewshot.config:DescriptionsConfig",
    help="what labels mean",
    into=("data",),
    rows="manyheads.plugins.fewshot.descriptions:described_rows",
)
PLUGIN = Plugin("fewshot", sections=(CONTRAST, DESCRIPTIONS))
