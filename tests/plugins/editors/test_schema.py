"""Every preset and every composed configuration fits the schema that is printed; what they refuse does not."""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, choices, preset_file, settings_of
from manyheads.config.conversion import to_plain
from manyheads.plugins.editors.schema import schema_of_group, schema_of_verb
from tests.registry import missing_plugins, needed


class Yaml12(yaml.SafeLoader):
    """As editors read it: 3e-4 is a number, not a text."""


FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
Yaml12.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
PRESETS = sorted({(group, name) for verb in VERBS for group in VERBS[verb].groups for name in choices(verb, group)})
ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "conf" / "schema").glob("*.json"))


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_composed_fits(verb):
    schema = schema_of_verb(verb)
    Draft202012Validator.check_schema(schema)
    known = settings_of(verb)
    values = to_plain(compose(verb, needed(verb)))

    def read(values, where=""):
        """Without what the verb never reads."""
        found = {}
        for name, value in values.items():
            if f"{where}{name}" in known:
                found[name] = value
            elif isinstance(value, dict):
                found[name] = read(value, f"{where}{name}.")
        return {name: value for name, value in found.items() if value != {} or f"{where}{name}" in known}

    Draft202012Validator(schema).validate(read(values))


@pytest.mark.parametrize(("group", "name"), PRESETS)
def test_every_preset_fits_the_schema_that_it_names(group, name):
    file = preset_file(group, name)
    assert file is not None
    lines = file.read_text(encoding="utf-8").splitlines()
    (line,) = [one for one in lines if one.startswith("# yaml-language-server: $schema=")]
    schema = (file.parent / line.partition("=")[2]).resolve()
    verb = next((one for one in VERBS if name.startswith(VERBS[one].prefix.get(group, " "))), "train")
    assert schema == ROOT / "conf" / "schema" / (f"{verb if '# @package _global_' in lines else group}.json")
    values = yaml.load(file.read_text(encoding="utf-8"), Yaml12) or {}
    Draft202012Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(values)


@pytest.mark.parametrize(
    ("values", "at"),
    [
        ({"n_heads": "four"}, ["n_heads"]),
        ({"n_heads": 0}, ["n_heads"]),
        ({"dropout": 1.0}, ["dropout"]),
        ({"score": "inner"}, ["score"]),
        ({"n_head": 4}, []),
        ({"windows": [-1]}, []),
    ],
)
def test_what_a_setting_refuses_the_schema_refuses(values, at):
    errors = list(Draft202012Validator(schema_of_group("model")).iter_errors(values))
    assert errors
    assert list(errors[0].absolute_path)[: len(at)] == at


@pytest.mark.skipif(bool(missing_plugins()), reason="a plugin whose settings they hold was deleted")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_files_in_the_repository_are_what_is_printed(file, tmp_path):
    """Editors read these: make one anew by `manyheads schema of=NAME output=conf/schema/NAME.json`."""
    assert main(["schema", f"of={file.stem}", f"output={tmp_path / 'out.json'}"]) == 0
    assert file.read_text(encoding="utf-8") == (tmp_path / "out.json").read_text(encoding="utf-8")


def test_an_unknown_name_is_one_sentence(capsys):
    assert main(["schema", "of=modell"]) == 2
    assert "of=modell is neither a verb nor a group of presets: choose" in capsys.readouterr().err


def test_it_is_printed(capsys):
    assert main(["schema", "of=optim"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["lr"]["exclusiveMinimum"] == 0


def test_it_is_printed_once_for_programs(capsys):
    assert main(["schema", "of=optim", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["properties"]["lr"]["exclusiveMinimum"] == 0
    assert said.err == ""


def test_what_is_no_schema_is_not_overwritten(tmp_path, capsys):
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n")
    for output, said in ((file, "holds something else"), (tmp_path / "no" / "x.json", "which does not exist")):
        assert main(["schema", "of=model", f"output={output}"]) == 2
        assert said in capsys.readouterr().err
    assert file.read_text() == "text,label\n"
    for _ in range(2):
        assert main(["schema", "of=model", f"output={tmp_path / 'x.json'}"]) == 0
