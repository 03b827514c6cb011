"""What is refused, and the sentence for each mistake.

Which exceptions are a user's mistake, and the sentence for each.

A mistake is shown as one sentence; everything else is a bug and keeps its traceback. The rule:

- a `ValueError` or `OSError` is a mistake if a `raise` statement in a module of manyheads raised it: our own
  code speaks to the user so. The same error from inside torch, Lightning or a built-in called by us is a bug;
- an `OSError` that names a file is a mistake if manyheads touched the file, directly or through the standard
  library: no such file, no permission;
- a full disk is never a bug, whoever writes to it.

Settings that were typed but would change nothing: said, not swallowed.

Secrets have no place among settings, which are written into the folder of the run.
"""

import errno
import opcode
import os
import re
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, TracebackType
from typing import Any

from manyheads.cli.verbs import OF_ANSWERS, Config
from manyheads.config import DataConfig, EvaluateConfig, Long, RunConfig, Source, Task, TuneConfig
from manyheads.config.fields import one_of, settings, show, unknown_sentence
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
    return f"{where}: {key[1] if key else 'it'} cannot be used ({reason}): fix the file"


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


OF_THE_HUB = ("data.hub_config", "data.revision")
OF_CLASSES = (
    "linear",
    *("data.label", "data.text_pair", "optim.class_weights"),
    *("model.pooling", "model.pooler", "model.pair", "model.segments"),
    "model.matches",
)
OF_TARGETS = ("data.target",)
UNREAD = {Task.classify: OF_TARGETS, Task.seq2seq: OF_CLASSES, Task.pretrain: OF_ANSWERS}
OF_TRANSFORMERS = tuple(
    f"model.{name}"
    for name in ("n_heads", "d_k", "d_v", "d_ff", "activation", "norm", "norm_eps", "norm_bias", "placement")
)


def refuse_idle(config: Config, typed: Mapping[str, Any]) -> None:
    """Refuse a typed setting that nothing would read: of data, where `evaluate` reads the run's own; of the other
    task; of layers that a recurrent encoder has not; of a job of SLURM, where none is written; of the hub, where no
    dataset of it is read.

    Raises:
        ValueError: names the first such setting.
    """
    if isinstance(config, EvaluateConfig) and config.data.source is Source.run and not config.data.path:
        for name, value in typed.items():
            if name.startswith("data.") and name != "data.source":
                raise ValueError(
                    f"{name}={show(value)} does nothing here, where evaluate reads the run's own data as training "
                    "read it: name other data by data.path=, data.hub= or data=<preset>, or remove it"
                )
    if isinstance(config, RunConfig):
        for name in UNREAD[config.task]:
            if name in typed:
                raise ValueError(f"{name}={show(typed[name])} does nothing with task={config.task.name}: remove it")
        for name in OF_TRANSFORMERS if config.model.is_recurrent else ():
            if name in typed:
                encoder = f"model.encoder={config.model.encoder.name}"
                raise ValueError(f"{name}={show(typed[name])} does nothing with {encoder}: remove it")
    _refuse_without_hiding(config, typed)
    _refuse_without_windows(config, typed)
    _refuse_without_teacher(config, typed)
    _refuse_without_script(config, typed)
    for name in OF_THE_HUB:
        if typed.get(name):
            _refuse_without_hub(f"{name}={show(typed[name])}", config)


def _refuse_without_hiding(config: Config, typed: Mapping[str, Any]) -> None:
    """What is hidden, where nothing is."""
    if isinstance(config, RunConfig) and config.task is not Task.pretrain and not config.pretrain.before:
        for name in typed:
            if name.startswith("pretrain.") and name != "pretrain.before":
                raise ValueError(
                    f"{name}={show(typed[name])} does nothing with task={config.task.name}: use manyheads pretrain, or "
                    "experiment=self_pretrain"
                )


def _refuse_without_windows(config: Config, typed: Mapping[str, Any]) -> None:
    """How windows lie, where texts are not read in windows."""
    data = getattr(config, "data", None)
    for name in ("data.stride", "data.windows"):
        if name in typed and isinstance(data, DataConfig) and data.long is not Long.windows:
            raise ValueError(
                f"{name}={show(typed[name])} does nothing with data.long={data.long.name}: add data.long=windows, or "
                "remove it"
            )


def _refuse_without_teacher(config: Config, typed: Mapping[str, Any]) -> None:
    """How much of a teacher is learned, where there is none."""
    for name in ("optim.teacher_weight", "optim.teacher_temperature"):
        if name in typed and isinstance(config, RunConfig | TuneConfig) and not config.teacher:
            raise ValueError(f"{name}={show(typed[name])} does nothing without teacher=<run>: add that, or remove it")


def _refuse_without_script(config: Config, typed: Mapping[str, Any]) -> None:
    """What a job of SLURM is told, where none is written."""
    for name in typed if isinstance(config, RunConfig) and not config.slurm.script else ():
        if name.startswith("slurm.") and name != "slurm.script":
            raise ValueError(f"{name}={show(typed[name])} does nothing without hardware=slurm: add that, or remove it")


def _refuse_without_hub(setting: str, config: Any) -> None:
    """A setting of the hub where local files or the demo are read."""
    if config.data.path:
        raise ValueError(
            f"{setting} does nothing with data.path={config.data.path}, which is read instead of the Hugging Face "
            "hub: remove one of them"
        )
    if config.data.source is not Source.hub:
        raise ValueError(
            f"{setting} does nothing here, where data={config.data.source.name} is read: name a dataset of the "
            "Hugging Face hub by data.hub=, or remove it"
        )


IN_ADDRESS = re.compile(r"//[^/\s@]+@")  # https://user:password@host
NAMED = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
SHORTEST = 8  # letters of a secret
QUESTION = "text"  # of predict and look: it is answered, and may speak of any address
REMEDY = "settings are written into the folder of the run: leave it to the environment"


def refuse_secrets(values: Any, name: str = "") -> None:
    """Refuse a text that holds what a variable such as $HF_TOKEN holds, or an address with a name or password in it.

    Raises:
        ValueError: names the setting, never its value.
    """
    known = {word: value for word, value in os.environ.items() if NAMED.search(word) and len(value) >= SHORTEST}
    _refuse(values, name, known)


def _refuse(values: Any, name: str, known: dict[str, str]) -> None:
    if isinstance(values, Mapping):
        for key, value in values.items():
            _refuse(value, f"{name}.{key}" if name else str(key), known)
    elif isinstance(values, list):
        for value in values:
            _refuse(value, name, known)
    elif isinstance(values, str):
        if name != QUESTION and IN_ADDRESS.search(values):
            raise ValueError(f"{name} holds an address with a name or a password in it, and {REMEDY}")
        for word, secret in known.items():
            if secret in values:
                raise ValueError(f"{name} holds what ${word} holds, and {REMEDY}")
