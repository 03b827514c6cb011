"""What `manyheads --help` and `manyheads VERB --help` print."""

from typing import get_args, get_origin

import manyheads.plugin as plugin
from manyheads.cli.verbs import VERBS, choices, settings_of
from manyheads.config.conversion import KIND_WORDS, choices_of, split_optional
from manyheads.config.facts import Setting
from manyheads.config.sentences import format_value
from manyheads.plugin import VERSION

FLAGS = """\
  --cfg job                 print the composed settings, run nothing
  --info                    print where the settings come from (also: --info defaults-tree)
  --config-dir FOLDER       your own presets, for example FOLDER/model/wide.yaml
  plugins=[NAME,./FILE.py]  your own parts: modules that are imported before all else
  --json                    print what was found as one JSON document, all else on standard error (also: format=json)
  errors=json               print a mistake as a JSON object: code, message, setting, value, rule, remedy, suggestion
  --shell-completion install=bash     (or zsh, fish) print the script that completes words
  --help, --version"""


def top_help() -> str:
    """What `manyheads --help` prints."""
    verbs = "\n".join(f"  {name:<10}{verb.help}" for name, verb in VERBS.items())
    return (
        f"manyheads {VERSION}: train, judge and ship Transformer text classifiers from configuration\n\n"
        f"usage: manyheads VERB key=value ...\n\nverbs\n{verbs}\n\n"
        f"`manyheads VERB --help` lists every setting of a verb.\n\n{_flags()}\n\n"
        "exit codes: 0 done, 1 a bug (with a traceback), 2 a user's mistake (one sentence),\n"
        "  3 a condition of require is not met, 69 another process of the run died, hangs or left,\n"
        "  75 to be started again, 124 trainer.max_time is up, 130 Ctrl-C, 137 a process was killed, 138 SIGUSR1,\n"
        "  141 the reader of our output went away, 143 SIGTERM"
    )


def verb_help(name: str) -> str:
    """What `manyheads VERB --help` prints: presets, then every setting with default, meaning and limits."""
    verb = VERBS[name]
    groups = list[str]()
    for group, default in verb.groups.items():
        names = [f"[{one}]" if one == default else one for one in choices(name, group)]
        groups.append(f"  {group + '=':<13}{' '.join(names)}")
    presets = "\n".join(groups)
    lines = "\n".join(_setting(one) for one in settings_of(name).values())
    examples = "\n".join(f"  {example}" for example in verb.examples)
    return (
        f"manyheads {name}: {verb.help}\n\nusage: manyheads {name} key=value ...\n\n{examples}\n\n"
        f"presets (the one in [] is the default)\n{presets}\n\nsettings, with their defaults\n{lines}\n\n{_flags()}"
    )


def _flags() -> str:
    of_plugins = [f"  {f'{one.name}, {one.long}':<25} {one.help}" for one in plugin.flags()]
    return "\n".join(["flags", *of_plugins, FLAGS])


def _setting(one: Setting) -> str:
    if isinstance(one.default, dict) and one.default:  # the flags of the Trainer that differ from Lightning's
        lines = [
            _line(f"{one.name}.{key}={format_value(value)}", "a flag of Lightning's Trainer")
            for key, value in one.default.items()
        ]
        return "\n".join([*lines, _line(f"{one.name}.FLAG=VALUE", one.facts.help)])
    kind, is_optional = split_optional(one.kind)
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    values = " and ".join(one.facts.limits())
    if choices := choices_of(one):
        values = ", ".join(choices)
    elif not values and kind is not str:
        values = KIND_WORDS.get(kind, "")
    if is_optional:
        values = f"{values} or null" if values else "null"
    meaning = f"{one.facts.help} ({values})" if values else one.facts.help
    return _line(f"{one.name}={format_value(one.default)}", meaning)


def _line(left: str, right: str) -> str:
    return f"  {left:<34} {right}"
