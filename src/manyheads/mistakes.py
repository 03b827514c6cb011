"""Which exceptions are a user's mistake, and the sentence for each.

A mistake is shown as one sentence; everything else is a bug and keeps its traceback. The rule:

- a `ValueError` or `OSError` is a mistake if a `raise` statement in a module of manyheads raised it: our own
  code speaks to the user so. The same error from inside torch, Lightning or a built-in called by us is a bug;
- an `OSError` that names a file is a mistake if manyheads touched the file, directly or through the standard
  library: no such file, no permission, disk full.
"""

import opcode
import os
import sys
from collections.abc import Sequence
from types import CodeType, TracebackType

_RAISE = opcode.opmap["RAISE_VARARGS"]


def user_sentence(error: BaseException) -> str | None:
    """The sentence for a user's mistake, or None for a bug."""
    frames = list(_frames(error.__traceback__))
    if not frames or not isinstance(error, ValueError | OSError):
        return None
    module, code, instruction = frames[-1]
    if _is_ours(module) and code.co_code[instruction] == _RAISE:
        return _file_sentence(error) if isinstance(error, OSError) and error.filename else str(error)
    if isinstance(error, OSError) and error.filename is not None:
        while frames and frames[-1][0].partition(".")[0] in sys.stdlib_module_names:
            frames.pop()
        if frames and _is_ours(frames[-1][0]):
            return _file_sentence(error)
    return None


def composition_sentence(error: BaseException, chosen: Sequence[str]) -> str:
    """A mistake in a preset file, which Hydra or OmegaConf found while composing."""
    cause = error.__cause__ or error
    key = getattr(cause, "full_key", None) or getattr(error, "full_key", None)
    what = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line.strip() for line in str(cause).splitlines() if line.strip()]
    where = (
        what[0].partition(":")[0]
        if what and what[0].startswith("In '")
        else f"presets {', '.join(chosen) or 'of conf/'}"
    )
    reason = next(
        (line for line in said if not line.startswith(("In '", "full_key", "object_type", "reference_type"))), ""
    )
    reason = reason or (what[0] if what else type(error).__name__)
    return f"{where}: {key or 'a preset'} is wrong ({reason}): mend the preset file"


def _frames(traceback: TracebackType | None) -> "list[tuple[str, CodeType, int]]":
    frames = []
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        frames.append((name, traceback.tb_frame.f_code, traceback.tb_lasti))
        traceback = traceback.tb_next
    return frames


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "manyheads" or module == "__main__"


def _file_sentence(error: OSError) -> str:
    reason = {FileNotFoundError: "does not exist", PermissionError: "may not be read or written"}.get(type(error))
    return f"{os.fspath(error.filename)} {reason or f'cannot be used: {os.strerror(error.errno or 0)}'}"
