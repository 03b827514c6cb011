"""Recurrent encoders: model.encoder=gru or lstm, read both ways or one, with an attention over their states."""

from pathlib import Path

from manyheads.plugin import Part, Plugin, Section

RECURRENT = {
    "poolings": {"attention": "manyheads.plugins.language.recurrent:state_pooling"},
    "describe": "manyheads.plugins.language.recurrent:describe",
    "flops": "manyheads.plugins.language.recurrent:flops",
    "flops_of_answer": "manyheads.plugins.language.recurrent:flops_of_answer",
    "decoder": "manyheads.plugins.language.recurrent:decoder",
}
ENCODERS = tuple(
    Part("encoder", name, "manyheads.plugins.language.recurrent:encoder", {}, RECURRENT) for name in ("gru", "lstm")
)
DIRECTION = Section(
    "",
    "manyheads.plugins.language.recurrence:RecurrenceConfig",
    "how a recurrent encoder reads",
    into=("model",),
    check="manyheads.plugins.language.recurrence:check",
)
PLUGIN = Plugin("language", sections=(DIRECTION,), parts=ENCODERS, presets=Path(__file__).parent / "conf")
