"""The exception that is a user's mistake. Standard library only."""


class UserError(ValueError):
    """A mistake in what a person typed, wrote or gave, said in one sentence: setting, value, rule, remedy.

    The command line prints that sentence and ends with `exit_code`. Whatever else is raised is a bug, and keeps its
    traceback. Plugins raise it, too: `from manyheads.api import UserError`.
    """

    exit_code = 2
