"""The sentence for each mistake that ends a command.

A `UserError` is one; so are an `OSError` that names a file, a full disk, whoever writes to it, a lack of memory, and a
`ValueError` of a user's own plugin. What Hydra, OmegaConf and PyYAML say of presets is put into a sentence here, too.
Everything else is a bug, and keeps its traceback.
"""

import errno
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb

from manyheads.config.conversion import unknown_sentence
from manyheads.config.facts import settings
from manyheads.config.plugins import plugin_of
from manyheads.config.sentences import first_line, one_of
from manyheads.errors import UserError
from manyheads.terminal import one_line

FULL = (errno.ENOSPC, errno.EDQUOT)
SAFETENSORS_FULL = r"\(os error (28|122)\)"  # the same two, in its words
# In the words of torch's allocators, of oneDNN, and of what loads a library.
LACKS_MEMORY = "can't allocate memory|CUDA out of memory|could not create a primitive$|failed to map segment"


def user_sentence(error: BaseException) -> str | None:
    """The sentence for a user's mistake, or None for a bug."""
    if getattr(error, "errno", None) in FULL or re.search(SAFETENSORS_FULL, str(error)):
        return "the disk is full: free some of it, or write to another one"
    lacks_memory = isinstance(error, RuntimeError | ImportError | OSError) and re.search(LACKS_MEMORY, str(error))
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or lacks_memory:
        return "memory ran out: use fewer rows or smaller batches, or allow more memory (ulimit -v, or that of the job)"
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(_file_sentence(error))
    trace = error.__traceback__
    if not isinstance(error, ValueError) or trace is None:
        return None
    while trace.tb_next is not None:  # to the function that raised it, or called the built-in one that did
        trace = trace.tb_next
    owner = plugin_of(trace.tb_frame.f_globals.get("__name__", ""))
    if isinstance(error, UserError):
        return one_line(f"plugin {owner}: {error}" if owner else str(error))
    place = f"line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename}"
    return one_line(f"plugin {owner}: {error} ({place})") if owner else None


def place_in_plugin(error: BaseException) -> str:
    """The innermost line of a user's plugin that an error passed through; empty: there is none."""
    place = ""
    for frame, line in walk_tb(error.__traceback__):
        if owner := plugin_of(frame.f_globals.get("__name__", "")):
            place = f"plugin {owner}, line {line} of {frame.f_code.co_filename}"
    return place


def paths_as_typed(sentence: str) -> str:
    """The sentence with paths in the current folder as one would type them here; settings hold them absolute."""
    with suppress(OSError):  # the current folder has been deleted
        return re.sub(rf"(?<![^\s='\"\[(,]){re.escape(os.getcwd())}/(?=[^\s/])", "", sentence)
    return sentence


def _file_sentence(error: OSError) -> str:
    path = Path(os.fsdecode(error.filename))
    if path.name.startswith(".") and path.suffix == ".part":  # what is written there is renamed when it is complete
        path = path.parent
    if isinstance(error, FileNotFoundError):
        reason = "does not exist"
    elif isinstance(error, PermissionError):
        reason = "may not be read or written: change its permissions, or name another place"
    else:
        reason = f"cannot be used: {os.strerror(error.errno or 0)}"
    return f"{path} {reason}"


def composition_sentence(error: BaseException, chosen: Sequence[str], schema: type) -> str:
    """A mistake in a preset file, from what Hydra, OmegaConf or PyYAML said while composing it."""
    said = str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [type(error).__name__]
    file = re.match(r"In '([^']+)'", said)  # where Hydra begins so
    if mark := getattr(error, "problem_mark", None):  # of PyYAML
        where = f"{mark.name} line {mark.line + 1}"
    else:
        where = f"preset {file[1] if file else ' '.join(chosen)}"
    key = re.search(r"full_key: (\S+)", said)
    unknown_key = key[1] if key and "Key '" in said else ""
    if file and _lacks_header(file[1], unknown_key, said, schema):
        return (
            f"{where} lacks the first line `# @package _global_`, without which what it sets counts as settings of "
            f"{file[1].partition('/')[0]}: add that line"
        )
    if unknown_key:
        return f"{where}: {unknown_sentence(unknown_key, None, schema).replace('=null ', ' ', 1)}"
    if options := getattr(error, "options", None):
        return f"{where}: {lines[0].partition(': ')[2]}: choose {one_of(list(options))}"
    if missing := getattr(error, "missing_cfg_file", None):
        return f"{where}: its defaults name {missing}, which is no preset: name one that there is, or remove it"
    reason = getattr(error, "problem", None) or lines[0]
    if file and len(lines) > 1:
        reason = lines[1]
    subject = key[1] if key else "it"
    return f"{where}: {subject} cannot be used ({reason}): fix the file"


def _lacks_header(preset: str, key: str, said: str, schema: type) -> bool:
    """Whether a preset such as experiment/x sets a run, or another section, from within its own group: `key` is then
    within the group, where no section has its name, or has the name of a section or a setting of its own. An override
    of another group's preset is placed there, too."""
    group = preset.partition("/")[0]
    if not key:
        return f"@{group}." in said
    first, _, within = key.partition(".")
    known = settings(schema)
    sections = {name.partition(".")[0] for name in known}
    if first != group:
        return False
    if group not in sections:
        return True
    return key not in known and (within in known or within.partition(".")[0] in sections)


def hydra_sentence(error: BaseException, words: Sequence[str]) -> str:
    """A mistake in one of the few settings of Hydra's own that may be typed."""
    options = getattr(error, "options", None)
    remedy = f"choose {one_of(sorted(options))}" if options else "remove it"
    reason = re.sub(r"^In '[^']*': ", "", first_line(error))
    return f"{' '.join(words)} cannot be used ({reason}): {remedy}"
