"""Which exceptions are a user's mistake, and the sentence for each.

A mistake is shown as one sentence; everything else is a bug and keeps its traceback. The rule:

- a `ValueError` or `OSError` is a mistake if a `raise` statement in a module of manyheads raised it: our own
  code speaks to the user so. The same error from inside torch, Lightning or a built-in called by us is a bug;
- an `OSError` that names a file is a mistake if manyheads touched the file, directly or through the standard
  library: no such file, no permission;
- a full disk is never a bug, whoever writes to it.
"""

import errno
import opcode
import os
import re
import sys
from collections.abc import Sequence
from types import CodeType, TracebackType

from manyheads.config.names import settings
from manyheads.config.plain import one_of, unknown_sentence
from manyheads.terminal import one_line

FULL = (errno.ENOSPC, errno.EDQUOT)
_RAISE = opcode.opmap["RAISE_VARARGS"]


def user_sentence(error: BaseException) -> str | None:
    """The sentence for a user's mistake, or None for a bug."""
    frames = list(_frames(error.__traceback__))
    if getattr(error, "errno", None) in FULL or "(os error 28)" in str(error):  # the second: of safetensors
        return "the disk is full: free some of it, or write to another one"
    if not frames or not isinstance(error, ValueError | OSError):
        return None
    module, code, instruction = frames[-1]
    if _is_ours(module) and code.co_code[instruction] == _RAISE:
        return one_line(_file_sentence(error) if isinstance(error, OSError) and error.filename else str(error))
    if isinstance(error, OSError) and error.filename is not None:
        while frames and frames[-1][0].partition(".")[0] in sys.stdlib_module_names:
            frames.pop()
        if frames and _is_ours(frames[-1][0]):
            return one_line(_file_sentence(error))
    return None


def composition_sentence(error: BaseException, chosen: Sequence[str], schema: type) -> str:
    """A mistake in a preset file, from what Hydra, OmegaConf or PyYAML said while composing it."""
    said = str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [type(error).__name__]
    mark = getattr(error, "problem_mark", None)
    file = re.match(r"In '([^']+)'", said)
    where = f"{mark.name} line {mark.line + 1}" if mark else f"preset {file[1] if file else ' '.join(chosen)}"
    key = re.search(r"full_key: (\S+)", said)
    if key and file and "Key '" in said and _lacks_header(file[1], key[1], schema):
        return (
            f"{where} lacks the first line `# @package _global_`, without which what it sets counts as settings of "
            f"{key[1].partition('.')[0]}: add that line"
        )
    if key and "Key '" in said:
        return f"{where}: {unknown_sentence(key[1], None, schema).replace('=null ', ' ', 1)}"
    if options := getattr(error, "options", None):
        return f"{where}: {lines[0].partition(': ')[2]}: choose {one_of(list(options))}"
    reason = lines[1] if file and len(lines) > 1 else getattr(error, "problem", None) or lines[0]
    return f"{where}: {key[1] if key else 'it'} cannot be used ({reason}): mend the file"


def _lacks_header(preset: str, key: str, schema: type) -> bool:
    """Whether a preset such as experiment/x sets a run, or another section, from within its own group: `key` is then
    the group itself, where no section has its name, or has the name of a setting within."""
    group, _, within = key.partition(".")
    known = settings(schema)
    sections = {name.partition(".")[0] for name in known}
    return preset.startswith(f"{group}/") and (
        group not in sections or (key not in known and within.partition(".")[0] in sections)
    )


def hydra_sentence(error: BaseException, words: Sequence[str]) -> str:
    """A mistake in one of the few settings of Hydra's own that may be typed."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    options = getattr(error, "options", None)
    remedy = f"choose {one_of(sorted(options))}" if options else "remove it"
    reason = re.sub(r"^In '[^']*': ", "", reason).rstrip(".")
    return f"{' '.join(words)} cannot be used ({reason}): {remedy}"


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
