"""What others know: teacher= answers the texts of data.unlabelled, or is a file of answers, and train learns from both.

Two sections of settings, and a hook that gives the training further rows, each with a probability for every class.
"""

from manyheads.plugin import Plugin, Section

TEACHER = Section(
    "",
    config="manyheads.plugins.transfer.config:TeacherConfig",
    help="who answers texts without labels",
    check="manyheads.plugins.transfer.config:check_teacher",
    rows="manyheads.plugins.transfer.teacher:taught_rows",
)
TEXTS = Section(
    "",
    config="manyheads.plugins.transfer.config:UnlabelledConfig",
    help="texts without labels",
    into=("data",),
)
PLUGIN = Plugin("transfer", sections=(TEACHER, TEXTS))
