"""Plugins of users: what is imported and what never is, what a run and a model record, and what is refused without."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import manyheads.plugin as plugin
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, schema_of
from manyheads.config import plugins as in_plugins
from manyheads.config.facts import section, setting
from manyheads.config.plugins import recorded, require_given, take_plugins, use
from manyheads.errors import UserError
from manyheads.evaluation.statistics import bootstrap
from manyheads.plugin import Flag, Part, Plugin, Section, Verb, register
from manyheads.runs.config_file import read_run, save_run

MINE = """
from manyheads.api import Part, Plugin, Verb, section, setting

@section()
class Greeting:
    to: str = setting("you", "who is greeted")

def greet(config):
    print(f"hello {config.to}")

def recall(labels, probabilities_nC):
    given = probabilities_nC.argmax(1) if labels.ndim == 1 else probabilities_nC > 0.5
    return float((given == labels).mean())

PLUGIN = Plugin("mine", version="2", verbs=[Verb("greet", Greeting, greet, "say hello")],
                parts=[Part("figure", "recall", recall)])
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv(in_plugins.VARIABLE, raising=False)
    modules = {*sys.modules}
    yield
    for name in plugin.given():
        plugin.unregister(name)
    in_plugins._sources.clear()
    os.environ.pop(in_plugins.VARIABLE, None)
    for name in {*sys.modules} - modules:
        del sys.modules[name]


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine_parts.py"
    file.write_text(MINE)
    return file


def test_a_file_adds_a_verb_with_help_and_settings(mine, capsys, tmp_path):
    (tmp_path / "presets").mkdir()
    assert main(["greet"]) == 2
    assert "greet is not a verb" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "greet" not in capsys.readouterr().out
    assert main(["greet", "plugins=[./mine_parts.py]", "to=all of you"]) == 0
    assert capsys.readouterr().out == "hello all of you\n"
    assert main(["greet", "plugins=[./mine_parts.py]", "to"]) == 2
    assert main(["greet", "--help"]) == 0
    assert "who is greeted" in capsys.readouterr().out
    assert VERBS["greet"].name == "greet"


def test_a_run_records_its_plugins_and_is_refused_without_them(mine, tmp_path):
    run = compose("train", ["plugins=[./mine_parts.py]"])
    (record,) = run.plugins
    name, version, digest = record.split()
    assert (name, version) == ("mine", "2")
    assert in_plugins._digest(mine).startswith(digest)
    save_run(run, tmp_path / "config.yaml")
    assert read_run(tmp_path) == run
    plugin.unregister("mine")
    with pytest.raises(ValueError, match=r"config.yaml: the run in it was made with the plugin mine 2, which was not"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match=r"plugins=\[mine\]"):
        compose("train", [f"resume={tmp_path}"])
    assert compose("train", [f"resume={tmp_path}"], plugins=["./mine_parts.py"]).plugins == [record]


def test_another_source_is_seen(mine):
    use(["./mine_parts.py"])
    (before,) = recorded()
    assert in_plugins.changed_since([before]) == []
    mine.write_text(f"{MINE}\n# changed\n")
    use(["./mine_parts.py"])
    assert recorded() != [before]
    assert in_plugins.changed_since([before]) == [f"the plugin {recorded()[0]} has changed since ({before})"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("./json.py", MINE, "plugins=./json.py has the name of a module that is installed: rename the file"),
        ("./torch.py", MINE, "plugins=./torch.py has the name of a module that is installed: rename the file"),
        ("./nothing_here.py", None, "plugins=./nothing_here.py: there is no such file"),
        ("./empty_parts.py", "", "plugins=./empty_parts.py has no PLUGIN: it must hold"),
        ("not_installed", None, "plugins=not_installed is not an installed module: install it, or name a file"),
        ("no.such.package", None, "plugins=no.such.package is not an installed module"),
        ("here_parts", "", "plugins=here_parts is not an installed module: write plugins=[./here_parts.py] for the"),
        ("../up/../x y.py", None, "is not a name of a module"),
        ("a-b", None, "plugins=a-b is not a name of a module"),
    ],
)
def test_what_is_no_plugin_is_refused(name, content, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name if name.endswith(".py") else f"{name}.py").write_text(content)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        use([name])
    assert recorded() == []


def test_a_file_hides_no_module_that_is_imported_later(mine):
    (mine.parent / "colorsys.py").write_text("raise RuntimeError('not this one')")
    use(["./mine_parts.py"])
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)


def test_data_imports_nothing(mine, tmp_path):
    run = compose("train", [])
    save_run(run, tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    for record in ("mine_parts", "./mine_parts.py", "os", f"{mine}"):
        (tmp_path / "config.yaml").write_text(text.replace("plugins: []", f"plugins: ['{record}']"))
        with pytest.raises(ValueError, match="which was not given"):
            read_run(tmp_path)
        assert "mine_parts" not in sys.modules
    with pytest.raises(ValueError, match="another program"):
        require_given(["../../etc; rm"], "it")


@pytest.mark.parametrize("word", ["plugins=", "plugins=[]", "plugins=[a,,b]"])
def test_words_that_name_nothing(word):
    with pytest.raises(ValueError, match="names no plugin"):
        take_plugins([word])


def test_what_is_taken_already_is_refused():
    with pytest.raises(ValueError, match="verb train of plugin other is that of core: choose another name"):
        register(Plugin("other", verbs=[Verb("train", "", "", "")]))
    with pytest.raises(ValueError, match="plugin core has the name of one that comes with manyheads"):
        register(Plugin("core"))
    register(Plugin("other", parts=[Part("figure", "f", len)], flags=[Flag("-z", "--zeal", "", "")]))
    with pytest.raises(ValueError, match="flag --zeal of plugin third is that of other: choose another name"):
        register(Plugin("third", flags=[Flag("-e", "--zeal", "", "")]))
    with pytest.raises(ValueError, match="figure f of plugin third is that of other: choose another name"):
        register(Plugin("third", parts=[Part("figure", "f", len)]))
    with pytest.raises(ValueError, match="plugin third has figure g twice: rename one of them"):
        register(Plugin("third", parts=[Part("figure", "g", len), Part("figure", "g", sum)]))
    with pytest.raises(ValueError, match="scores s of plugin third is of no kind: choose score, normaliser"):
        register(Plugin("third", parts=[Part("scores", "s", len)]))
    register(Plugin("other", parts=[Part("figure", "f", sum)]))  # a cell of a notebook that is run again
    assert plugin.make("figure", "f") is sum


def test_a_section_widens_a_run_and_its_rules_hold():
    @section("lamp.")
    class Lamp:
        watts: int = setting(40, "brightness", ge=1)

    def check(run):
        if run.lamp.watts > run.model.n_layers * 100:
            raise ValueError(f"lamp.watts={run.lamp.watts} is too bright: use less")

    register(Plugin("lamps", sections=[Section("lamp", Lamp, "light", check=check, facts={"resume": "free"})]))
    run = compose("train", ["lamp.watts=60"])
    assert run.lamp.watts == 60
    assert isinstance(run, schema_of("train"))
    with pytest.raises(ValueError, match=r"lamp.watts=0 is out of range"):
        compose("train", ["lamp.watts=0"])
    with pytest.raises(ValueError, match="too bright"):
        compose("train", ["lamp.watts=600"])
    plugin.unregister("lamps")
    with pytest.raises(ValueError, match=r"lamp.watts=60 is not a setting"):
        compose("train", ["lamp.watts=60"])


def test_a_process_that_is_started_has_what_its_parent_was_given(mine):
    use(["./mine_parts.py"])
    code = "from manyheads.config.plugins import *; use_of_parent(); print(recorded())"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=os.sep, env={**os.environ}, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == str(recorded())
    assert json.loads(os.environ[in_plugins.VARIABLE]) == [str(mine)]


def test_a_word_without_a_value_is_left_to_the_verb(capsys):
    assert take_plugins(["plugins"]) == ["plugins"]
    assert main(["train", "plugins"]) == 2
    assert "plugins has no value: write plugins=VALUE" in capsys.readouterr().err


def test_a_variable_that_was_there_before_imports_nothing(mine, monkeypatch, capsys):
    monkeypatch.setenv(in_plugins.VARIABLE, json.dumps([str(mine)]))
    assert main(["train", "model.n_heads=2", "dry=true", "model.n_layers=0"]) == 2
    assert "mine_parts" not in sys.modules
    assert in_plugins.VARIABLE not in os.environ


def test_the_bootstrap_of_a_share_is_near_its_exact_interval():
    """Of 400 rows of which 300 are right, by the normal approximation .75 ± 1.96 √(.75 · .25 / 400)."""
    right = np.arange(400) % 4 != 0
    found = bootstrap(lambda one: float(one.mean()), right)
    half = 1.96 * (0.75 * 0.25 / 400) ** 0.5
    assert found.value == 0.75
    assert abs(found.low - (0.75 - half)) < 0.006
    assert abs(found.high - (0.75 + half)) < 0.006


def test_words_may_choose_blocks_of_a_plugin_that_a_chosen_preset_names(mine, tmp_path):
    mine.write_text(MINE.replace('Part("figure", "recall", recall)', 'Part("score", "shy", recall)'))
    preset = tmp_path / "conf" / "experiment" / "shy.yaml"
    preset.parent.mkdir(parents=True)
    preset.write_text("# @package _global_\nplugins: [./mine_parts.py]\n")
    words = ["experiment=shy", "model.score=shy"]
    with pytest.raises(UserError, match=r"model\.score=shy is not a choice"):
        compose("train", words[1:], config_dir=str(tmp_path / "conf"))
    assert compose("train", words, config_dir=str(tmp_path / "conf")).model.score == "shy"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = (\n", "mine_parts.py line 1: '(' was never closed"),
        ("x = 1\nimport no_such_module\n", "mine_parts.py line 2: No module named 'no_such_module'"),
        ("x = 1\nraise ValueError('too\\nshort')", r"mine_parts.py line 2: ValueError: too\nshort"),
        (
            "import json\njson.loads('{')",
            "mine_parts.py line 2: json.decoder.JSONDecodeError: Expecting property name ",
        ),
        ("assert False", "mine_parts.py line 1: AssertionError"),
        (
            "from manyheads.errors import UserError\nraise UserError('a=1 is wrong')",
            "mine_parts.py line 2: a=1 is wrong",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_sentence(source, sentence, mine, capsys):
    mine.write_text(source)
    assert main(["train", "plugins=[./mine_parts.py]"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"plugins=./mine_parts.py: {sentence}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "sentence"),
    [("raise ValueError", "ValueError"), ("import no_such_module", "No module named 'no_such_m")],
)
def test_a_module_of_a_package_that_cannot_be_imported_is_one_sentence(source, sentence, tmp_path, monkeypatch, capsys):
    package = tmp_path / "broken_package" / "__init__.py"
    package.parent.mkdir()
    package.write_text(f"x = 1\n{source}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["train", "plugins=[broken_package.parts]"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"plugins=broken_package.parts: {package} line 2: {sentence}")
    assert said.count("\n") == 1


def test_a_file_is_named_as_one_would_type_it_here(mine, monkeypatch):
    use(["./mine_parts.py"])
    assert in_plugins.plugin_words(here=True) == ["plugins=[./mine_parts.py]"]
    assert in_plugins.plugin_words() == [f"plugins=[{mine}]"]
    (mine.parent / "elsewhere").mkdir()
    monkeypatch.chdir(mine.parent / "elsewhere")
    assert in_plugins.plugin_words(here=True) == [f"plugins=[{mine}]"]


def test_the_registry_may_change_while_it_is_read():
    """As by another thread: here by the list that is read."""

    class Changing(list):
        def __iter__(self):
            plugin.unregister("another")
            return super().__iter__()

    hooks = {"verbs": Changing([Verb("greet", "x:y", "x:y", "say hello")]), "sections": Changing()}
    register(Plugin("mine", parts=Changing([Part("score", "mine", "x:y")]), **hooks))
    assert "mine" in plugin.parts("score")
    assert "greet" in plugin.verbs()
    assert plugin.sections()


def test_a_flag_runs_a_verb_in_another_way(capsys, tmp_path):
    """It is called with the words that are no flags, and is listed, guessed and refused as others are."""
    asked = []
    register(Plugin("twice", flags=[Flag("-z", "--zeal", lambda *given: asked.append(given) or 7, "with zeal")]))
    assert main(["train", "--zeal", "model.n_heads=2,4", "--config-dir", str(tmp_path)]) == 7
    assert main(["train", "-z"]) == 7
    assert asked == [("train", ["model.n_heads=2,4"], str(tmp_path)), ("train", [], None)]
    assert main(["train", "--help"]) == 0
    assert "  -z, --zeal                with zeal\n" in capsys.readouterr().out
    for words, sentence in (
        (["-z", "--cfg", "job"], "-z, --cfg and --info each do one thing: give one of them"),
        (["--zea"], "--zea is not a flag: did you mean --zeal?"),
        (["-z=1"], "-z=1 is not a flag"),
    ):
        assert main(["train", *words]) == 2
        assert sentence in capsys.readouterr().err
