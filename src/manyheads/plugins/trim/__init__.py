"""tokenizer.trim=train: of the tokenizer of trained weights, and of their table of words, a run keeps what it needs.

A section that adds two settings to `tokenizer`, and three hooks: it refuses runs that have nothing to trim, makes the
smaller tokenizer, and counts the labels that change by it.
"""

from manyheads.plugin import Plugin, Section

SETTINGS = Section(
    "",  # its settings become those of the section that they widen: tokenizer.trim
    config="manyheads.plugins.trim.config:TrimConfig",
    help="which entries of a tokenizer are kept",
    into=("tokenizer",),
    unread="manyheads.plugins.trim.config:why_reserve_unread",
    refuse="manyheads.plugins.trim.config:refuse_nothing_to_trim",
    tokenizer="manyheads.plugins.trim.trimming:trim",
    measure="manyheads.plugins.trim.changes:changed_labels",
)
PLUGIN = Plugin("trim", sections=[SETTINGS])
