"""The command line: `manyheads VERB key=value ...`, and the life of a process that a run or a search starts.

Nothing heavy is imported before the settings are valid.

Exit codes: 0 done, 1 a bug (its traceback is shown), 2 a user's mistake (one sentence), 3 `require` is not met,
69 another process of the run is dead, stuck or gone, 75 to be started again, 124 time is up, 130 Ctrl-C, 137 killed,
138 SIGUSR1, 141 output closed, 143 SIGTERM.
"""

import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from typing import Any, NamedTuple

import manyheads.plugin as plugin
from manyheads.cli.errors import paths_as_typed, place_in_plugin, user_sentence
from manyheads.cli.for_programs import FLAG, as_document, found_by, mistake, output_to, take_readers, wants_json_errors
from manyheads.cli.help import top_help, verb_help
from manyheads.cli.verbs import VERBS, Config, require_verb, schema_of
from manyheads.config.conversion import choices_of, from_plain
from manyheads.config.facts import hooks, nearest, nearest_setting, settings
from manyheads.config.plugins import VARIABLE, plugin_words, take_plugins, use_of_parent
from manyheads.config.required import RequirementError
from manyheads.config.sentences import one_of
from manyheads.distributed.machine import Load
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import die_with_parent
from manyheads.errors import RunEnded, UserError
from manyheads.plugin import VERSION
from manyheads.terminal import ends_by_ctrl_c, escape_unwritable

MISTAKE = 2  # the exit code of a user's mistake
RANK_DELAY = 3.0  # seconds
COMPLETION = ("-sc", "--shell-completion")
ABBREVIATIONS = {"-c": "--cfg", "-p": "--package", "-cd": "--config-dir", "-i": "--info"}
FLAG_VALUES = {  # of the flags that take one; none are listed where any may be given
    "--cfg": ["job", "hydra", "all"],
    "--info": ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"],
    "--package": [],
    "--config-dir": [],
}
FORBIDDEN_FLAGS = {
    "--experimental-rerun": "would unpickle a file, which can run code: type the settings of its config.yaml instead",
    "--config-path": "would replace the presets: add your own by --config-dir FOLDER",
    "--config-name": "would replace the verb: add your own presets by --config-dir FOLDER",
}
LOAD = Load()  # since the start of the program: how busy other processes are is measured while settings are read
FORBIDDEN_FLAGS |= {"-cp": FORBIDDEN_FLAGS["--config-path"], "-cn": FORBIDDEN_FLAGS["--config-name"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, `sys.argv` unless given, and return its exit code."""
    escape_unwritable()
    os.environ.pop(VARIABLE, None)  # what is imported was typed in this command: no variable that was there says it
    words = list(sys.argv[1:] if arguments is None else arguments)
    say = partial(say_sentence, words=words if wants_json_errors(words) else None)
    try:
        with ends_by_ctrl_c(call):
            code = run_with_exit_code(lambda: _run(words), say)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_left()
    except OSError as error:  # of standard output itself, for instance because the disk is full
        if (sentence := user_sentence(error)) is None:
            raise
        reader_left()
        return say(sentence, MISTAKE)


def run_with_exit_code(work: Callable[[], int], say: Callable[[str, int], int]) -> int:
    """Do the work and return its exit code; `say` is given the sentence of a mistake and the code for it."""
    try:
        return work()
    except KeyboardInterrupt:
        return say("stopped by Ctrl-C", 130)
    except SystemExit as stop:  # Lightning turns Ctrl-C into exit(1)
        if isinstance(stop.__context__, KeyboardInterrupt):
            return say("stopped by Ctrl-C", 130)
        if stop.code == 1 and isinstance(stop.__context__, BrokenPipeError):  # rich, too, turns it into exit(1)
            raise BrokenPipeError from stop
        raise
    except BrokenPipeError:
        raise
    except RunEnded as ended:
        return ended.exit_code
    except Exception as error:
        sentence = user_sentence(error)
        if sentence is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            traceback.print_exc()
            if sentence is not None:
                return code_of(error)
            if place := place_in_plugin(error):
                print(f"the error above comes from {place}", file=sys.stderr)
            return 1
        return say(sentence, code_of(error))


def code_of(error: Exception) -> int:
    """The exit code of what is said in one sentence: 3 where a figure is not as `require` asks."""
    return getattr(error, "exit_code", MISTAKE)


def reader_left() -> int:
    """The reader of our output has gone, as in `| head`, or it cannot be written: the rest goes nowhere, quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def call(verb: str, config: Config) -> Any:
    """Import the function of a verb, which may import torch, and call it on its settings."""
    LOAD.let_threads_sleep()
    return found_by(VERBS[verb], config, as_record=False)


class _Command(NamedTuple):
    """The words after the verb, flags apart from settings."""

    overrides: list[str]
    flags: list[str]
    config_dir: str | None


def _run(words: list[str]) -> int:
    if any(word in COMPLETION for word in words):
        return _complete([word for word in words if word.startswith(("install=", "uninstall=", "query="))])
    if "--version" in words:
        print(f"manyheads {VERSION}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(top_help(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    words, is_read = take_readers(words)
    words = take_plugins(words)
    verb = _verb(words)
    if "--help" in words or "-h" in words:
        print(verb_help(verb))
        return 0
    words, is_read = _own_format(verb, words, is_read)
    asked = _read_flags(verb, words[1:])
    if is_read and asked.flags:
        raise UserError(f"{FLAG} does nothing with {asked.flags[0]}: remove it")
    from manyheads.cli.compose import compose, show_by_hydra, shown  # not at the top: --help needs none of it

    if "--cfg" in asked.flags:
        print(shown(verb, asked.flags, asked.overrides, asked.config_dir), end="")
        return 0
    for flag in plugin.flags():
        if flag.name in asked.flags:
            return plugin.resolve(flag.run)(verb, asked.overrides, asked.config_dir)
    if asked.flags:
        with _written_at_the_end():
            show_by_hydra(verb, asked.flags, asked.overrides, asked.config_dir)
        return 0
    config = compose(verb, asked.overrides, config_dir=asked.config_dir)
    words = [*plugin_words(), *asked.overrides]
    for launch in hooks(config, "launch"):
        if submitted := launch(verb, config, words, asked.config_dir):
            print(as_document(submitted) if is_read else submitted)
            return 0
    if is_read:
        _write_document(verb, config)
    else:
        call(verb, config)
    return 0


def _own_format(verb: str, words: list[str], is_read: bool) -> tuple[list[str], bool]:
    """`format=json` is `--json` where the verb has no setting `format`; where it has one that may be json, that does it
    all."""
    own = settings(schema_of(verb)).get("format")
    if own is None and "format=json" in words:
        return [word for word in words if word != "format=json"], True
    if own is not None and is_read and "json" in choices_of(own):
        return [*(word for word in words if not word.startswith("format=")), "format=json"], False
    return words, is_read


def _write_document(verb: str, config: Config) -> None:
    """Call a verb for a program that reads what it found, also where a figure is not as `require` asks."""
    LOAD.let_threads_sleep()
    missed = None
    with output_to(2):
        try:
            found = found_by(VERBS[verb], config, as_record=True)
        except RequirementError as error:
            found, missed = error.summary, error
    print(as_document(found))
    if missed is not None:
        raise missed


def _verb(words: list[str]) -> str:
    first = words[0]
    for later in words:
        if first not in VERBS and later in VERBS:
            raise UserError(f"{first} comes before the verb: write manyheads {later} {first} ...")
    require_verb(first)
    return first


def _read_flags(verb: str, words: list[str]) -> _Command:
    """Set flags and their values apart from settings, and refuse what does not go together."""
    overrides, flags, config_dir = list[str](), list[str](), None
    plain, abbreviations = _plain_flags()
    rest = iter(words)
    for word in rest:
        name, equals, attached = word.partition("=")
        flag = abbreviations.get(name, name)
        if not word.startswith("-"):
            overrides.append(word)
        elif name in FORBIDDEN_FLAGS:
            raise UserError(f"{name} is refused, as it {FORBIDDEN_FLAGS[name]}")
        elif flag in plain and not equals:
            flags.append(flag)
        elif flag not in FLAG_VALUES:
            raise UserError(_unknown_flag(verb, word))
        else:
            value, known = attached, FLAG_VALUES[flag]
            if not equals:
                value = next(rest, "")
            if flag == "--info" and not equals and (not value or "=" in value):  # a bare one, before a setting or last
                overrides += [value] if value else []
                value = "all"
            if known and value not in known:
                raise UserError(f"{flag} {value or 'has no value'}: choose {one_of(known)}")
            if not value:
                raise UserError(f"{flag} has no value: write {flag} VALUE")
            if flag == "--config-dir":
                config_dir = os.path.expanduser(value)
            else:
                flags += [flag, value]
    doers = [*(one.name for one in plugin.flags()), "--cfg", "--info"]
    doing = [flag for flag in flags if flag in doers]
    each = f"{', '.join(doers[:-1])} and {doers[-1]} each do one thing"
    if len(doing) > 1:
        raise UserError(f"{' '.join(doing)}: {each}: give one of them")
    if flags and not doing:
        raise UserError(f"{' '.join(flags)}: {each}: add --cfg job")
    return _Command(overrides, flags, config_dir)


def _plain_flags() -> tuple[list[str], dict[str, str]]:
    """The flags without a value; and by other names of flags what they are called here."""
    of_plugins = plugin.flags()
    names = [*(one.name for one in of_plugins), "--resolve"]
    return names, {one.long: one.name for one in of_plugins} | ABBREVIATIONS


def _unknown_flag(verb: str, word: str) -> str:
    flag, _, value = word.partition("=")
    plain, abbreviations = _plain_flags()
    flags = [*plain, *FLAG_VALUES, *abbreviations, *COMPLETION, "--help", "--version"]
    if near := nearest(flag, flags, at_least=0.75):
        return f"{word} is not a flag: did you mean {near}?"
    schema = schema_of(verb)
    name = flag.lstrip("-")
    if name not in settings(schema):
        name = nearest_setting(name, schema) or name
    return f"{word} is not a flag: settings are typed without dashes, such as {name}={value or 'VALUE'}"


def _complete(words: list[str]) -> int:
    """Shell completion: the verbs first, then Hydra completes the settings of the one typed."""
    kinds = [f"{what}={shell}" for what in ("install", "uninstall", "query") for shell in ("bash", "fish", "zsh")]
    if len(words) != 1 or words[0] not in kinds:
        raise UserError(f"--shell-completion {' '.join(words)}".rstrip() + f": give one of {one_of(kinds)}")
    from manyheads.cli.compose import show_by_hydra

    program, _, line = os.environ.get("COMP_LINE", "").lstrip().partition(" ")
    *typed, partial = line.split(" ")
    with suppress(UserError):  # which the command itself will report
        typed = take_plugins(typed)
    line = " ".join([*typed, partial])
    verb, space, after = line.lstrip().partition(" ")
    if words[0].startswith("query=") and not (verb in VERBS and space):
        print(" ".join(one for one in VERBS if one.startswith(verb)))
        return 0
    os.environ["COMP_LINE"] = f"{program} {after}"
    with _written_at_the_end():
        show_by_hydra(verb if verb in VERBS else "train", ["-sc", *words], [])
    return 0


@contextmanager
def _written_at_the_end() -> Iterator[None]:
    """Standard output is written once the block has ended: Hydra shows a traceback where its reader goes away."""
    said = io.StringIO()
    with redirect_stdout(said):
        yield
    sys.stdout.write(said.getvalue())


def say_sentence(sentence: str, code: int, *, words: Sequence[str] | None = None) -> int:
    """Print a sentence, or a JSON object that holds it, for which `words` were typed, and return its exit code. Ranks
    other than the first wait: it mostly speaks for all, and its end is theirs."""
    sentence = paths_as_typed(sentence)
    rank = this_process().rank
    if rank:
        time.sleep(RANK_DELAY)
        sentence = f"rank {rank}: {sentence}"
    print(sentence if words is None else as_document(mistake(sentence, code, words)), file=sys.stderr)
    return code


def worker_main() -> None:
    """`python -m manyheads.cli.main VERB CONFIG REPORT [GRACE]`, as `distributed/launch.py` or a search has typed it.

    The settings come in by the pipe CONFIG, which its supervisor holds open and which ends with it, even by `kill -9`;
    a user's mistake goes out by the pipe REPORT. Without its supervisor the process leaves at once, or is asked to end
    and has GRACE seconds to save. One that ends ill leaves at once, too: what is tidied up at its end would wait for
    the others.
    """
    escape_unwritable()
    try:
        code = _worker_main(sys.argv[1:])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BrokenPipeError:
        code = 141
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code:
        import logging  # which takes long to import

        logging.shutdown()
        os._exit(code)


def _worker_main(words: Sequence[str]) -> int:
    verb, source, sink = words[0], int(words[1]), int(words[2])
    for end in (source, sink):
        if end > sys.stderr.fileno():  # what it starts itself has the standard ones, too
            os.set_inheritable(end, False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a run listens, it ends at once and says nothing
    config = b""
    while not config.endswith(b"\n"):
        part = os.read(source, 65536)
        if not part:
            return 1
        config += part
    die_with_parent(source, *map(float, words[3:]))

    def work() -> int:
        use_of_parent()
        call(verb, from_plain(schema_of(verb), json.loads(config)))
        return 0

    def report(sentence: str, code: int) -> int:
        if code == MISTAKE:
            os.write(sink, f"{sentence}\n".encode())
        else:
            print(sentence, file=sys.stderr)
        return code

    return run_with_exit_code(work, report)


if __name__ == "__main__":  # a process that was started; what a user types is `python -m manyheads`
    worker_main()
