"""What `manyheads --help` and `manyheads VERB --help` print, from the table of verbs and the fields of settings."""

from enum import EnumType
from typing import get_args, get_origin

from manyheads import __version__
from manyheads.cli.verbs import VERBS, choices
from manyheads.config.facts import Setting
from manyheads.config.fields import KIND_WORDS, show, unwrap

FLAGS = """\
flags
  -m, --multirun            run once for each of several values: model.n_heads=2,4 (one device)
  --cfg job                 print the composed settings, run nothing
  --info                    print where the settings come from (also: --info defaults-tree)
  --config-dir FOLDER       your own presets, for example FOLDER/model/wide.yaml
  --shell-completion install=bash     (or zsh, fish) print the script that completes words
  --help, --version"""


def top_help() -> str:
    """What `manyheads --help` prints."""
    verbs = "\n".join(f"  {name:<10}{verb.help}" for name, verb in VERBS.items())
    return (
        f"manyheads {__version__}: train, judge and ship Transformer text classifiers from configuration\n\n"
        f"usage: manyheads VERB key=value ...\n\nverbs\n{verbs}\n\n"
        f"`manyheads VERB --help` lists every setting of a verb.\n\n{FLAGS}\n\n"
        "exit codes: 0 done, 1 a bug (with a traceback), 2 a mistake in what was asked (one sentence),\n"
        "  69 another process of the run is dead, stuck or gone, 75 to be started again, 124 trainer.max_time is up,\n"
        "  130 Ctrl-C, 137 a process was killed, 138 SIGUSR1, 141 the reader of our output went away, 143 SIGTERM"
    )


def verb_help(name: str) -> str:
    """What `manyheads VERB --help` prints: presets, then every setting with default, meaning and limits."""
    verb = VERBS[name]
    groups = "\n".join(_group(name, group, default) for group, default in verb.groups.items())
    lines = "\n".join(_setting(one) for one in verb.settings().values())
    examples = "\n".join(f"  {example}" for example in verb.examples)
    return (
        f"manyheads {name}: {verb.help}\n\nusage: manyheads {name} key=value ...\n\n{examples}\n\n"
        f"presets (the one in [] is the default)\n{groups}\n\nsettings, with their defaults\n{lines}\n\n{FLAGS}"
    )


def _group(verb: str, group: str, default: str | None) -> str:
    names = [f"[{one}]" if one == default else one for one in choices(verb, group)]
    return f"  {group + '=':<13}{' '.join(names)}"


def _setting(one: Setting) -> str:
    if isinstance(one.default, dict) and one.default:
        return "\n".join(
            [
                _line(f"{one.name}.{key}={show(value)}", "a flag of Lightning's Trainer")
                for key, value in one.default.items()
            ]
            + [_line(f"{one.name}.FLAG=VALUE", one.facts.help)]
        )
    inner, optional = unwrap(one.kind)
    inner = get_args(inner)[0] if get_origin(inner) is list else inner
    limits = one.facts.limits()
    if isinstance(inner, EnumType):
        limits = [", ".join(inner.__members__)]
    elif not limits and inner in KIND_WORDS and inner is not str:
        limits = [KIND_WORDS[inner]]
    words = " or ".join([" and ".join(limits)] * bool(limits) + ["null"] * optional)
    return _line(f"{one.name}={show(one.default)}", one.facts.help + (f" ({words})" if words else ""))


def _line(left: str, right: str) -> str:
    return f"  {left:<34} {right}"
