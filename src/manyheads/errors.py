"""The exceptions that the command line answers without a traceback. Standard library only."""


class UserError(ValueError):
    """A mistake in what a person typed, wrote or gave, said in one sentence: setting, value, rule, remedy.

    The command line prints that sentence and ends with `exit_code`. Whatever else is raised is a bug, and keeps its
    traceback. Plugins raise it, too: `from manyheads.api import UserError`.
    """

    exit_code = 2


class RunEnded(Exception):  # noqa: N818 - no error
    """A verb ends early, and not by an error: on request, to be started again, or since another process ended.

    What there is to say was said where it was raised. The command line prints nothing and ends with `exit_code`.
    """

    def __init__(self, why: str, exit_code: int) -> None:
        super().__init__(why)
        self.why, self.exit_code = why, exit_code
