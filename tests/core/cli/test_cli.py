"""The command line as a program: verbs, exit codes, sweeps, completion."""

import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from manyheads import __version__
from manyheads.cli import main as cli
from manyheads.cli.main import verb_help
from manyheads.cli.verbs import VERBS, schema_of
from tests.conftest import forget_plugins
from tests.registry import SWEEPS

ROOT = Path(__file__).parents[3]


def shell(*words, program=("-m", "manyheads"), **more):
    return subprocess.run([sys.executable, *program, *words], capture_output=True, text=True, **more)


LACKING = [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}]


@pytest.mark.parametrize("more", [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in LACKING)], ids=str)
def test_what_standard_output_cannot_write_is_escaped(more, model_folder, python, tmp_path, monkeypatch):
    """Here an output of ASCII; in processes of their own what an environment makes of it."""

    def said_by(*words):
        if "PYTHONIOENCODING" in more:
            return python.run("-m", "manyheads", *words, env=os.environ | more)
        if more:  # a locale is read where Python starts
            return shell(*words, env=os.environ | more)
        written = {name: io.TextIOWrapper(io.BytesIO(), "ascii") for name in ("stdout", "stderr")}
        with monkeypatch.context() as patch:
            for name, file in written.items():
                patch.setattr(sys, name, file)
            code = cli.main([*words])
        said = [file.buffer.getvalue().decode() for file in written.values() if not file.flush()]
        return subprocess.CompletedProcess(words, code, *said)

    file = tmp_path / "rows.csv"
    file.write_text("text\nschön ≈ naïve √\n", "utf-8")
    said = said_by("train", "--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert "\\u221a" in said.stdout
    for words in (["predict", "--help"], ["--help"]):
        said = said_by(*words)
        assert (said.returncode, said.stderr) == (0, "")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "own.yaml").write_text("text: schön √\n", "utf-8")
    said = said_by("train", "--cfg", "job", "--config-dir", str(tmp_path), "data=own")
    assert (said.returncode, said.stderr) == (0, "")
    assert yaml.safe_load(said.stdout)["data"]["text"] == "schön √"
    said = said_by("predict", f"run={model_folder}", f"input={file}", "hardware=cpu")
    assert said.returncode == 0, said.stderr
    assert said.stdout.isascii()
    assert json.loads(said.stdout)["text"] == "schön ≈ naïve √"


@pytest.fixture
def calls(monkeypatch):
    """What the verbs were called with, in place of the verbs."""
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append((verb, config)))
    return seen


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("train", []),
        ("train", ["debug=fast"]),
        ("evaluate", ["run=x"]),
        ("predict", ["run=x", "text=hello, world"]),
        pytest.param("look", ["run=x", "text=hello, world"], marks=pytest.mark.verb("look")),
        pytest.param("serve", ["run=x", "port=0"], marks=pytest.mark.verb("serve")),
        pytest.param("export", ["run=x", "output=y"], marks=pytest.mark.verb("export")),
    ],
)
def test_a_verb_is_called_with_its_settings(verb, words, calls):
    assert cli.main([verb, *words]) == 0
    ((called, config),) = calls
    assert called == verb
    assert type(config) is schema_of(verb)


def test_version_and_no_words(capsys):
    for words in (["--version"], ["train", "--version"], ["train", "model=tiny", "--version"]):
        assert cli.main(words) == 0
        assert capsys.readouterr().out == f"manyheads {__version__}\n"
    assert cli.main([]) == 2
    assert "usage" in capsys.readouterr().err


HEAVY = {"hydra", "omegaconf", "torch", "lightning", "numpy", "torchmetrics", "sklearn", "scipy", "datasets", "pyarrow"}
HEAVY |= {"matplotlib", "pandas", "tensorboard", "wandb", "transformers", "tokenizers", "safetensors", "rich"}
LIGHT = [  # a command line, its exit code, and what of the heavy packages it may import
    (["--help"], 0, set()),
    (["train", "--help"], 0, set()),
    (["train", "model.n_haeds=4"], 2, set()),
    (["train", "data.path=nowhere.csv"], 2, set()),
    (["predict", "run=nowhere", "text=good"], 2, set()),  # of a run that is there: test_classifier.py
    (["runs", "folder=."], 0, set()),
    (["report", "run=nowhere"], 2, set()),
]


@pytest.mark.parametrize(("words", "code", "may"), LIGHT, ids=[" ".join(words) for words, _, _ in LIGHT])
def test_a_command_imports_only_what_it_needs(words, code, may, model_folder, tmp_path):
    watch = "import sys; from manyheads.cli.main import main; code = main(sys.argv[1:])\n"
    watch += "print(code, *sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    words = [word.replace("RUN", str(model_folder)) for word in words]
    said = shell("-c", watch, *words, program=(), cwd=tmp_path).stderr.splitlines()[-1].split()
    assert int(said[0]) == code
    assert HEAVY & set(said[1:]) <= may


@pytest.mark.parametrize("verb", VERBS)
def test_scripts_do_the_same(verb, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{verb}.py", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "scripts" / f"{verb}.py"), run_name="__main__")
    assert (stop.value.code, capsys.readouterr().out) == (0, f"{verb_help(verb)}\n")


def test_a_script_ends_with_the_exit_code_of_its_verb(tmp_path):
    assert shell("seed=x", program=(str(ROOT / "scripts" / "train.py"),), cwd=tmp_path).returncode == 2


def test_cfg_job_prints_yaml_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "model=mini", "data.path=a b,c.csv", "--cfg", "job"]) == 0
    said = capsys.readouterr().out
    assert "n_layers: 4\n" in said
    assert f"path: {tmp_path}/a b,c.csv\n" in said, "as a run has it, from anywhere"
    assert "source: files\n" in said
    assert list(tmp_path.iterdir()) == []


def test_info_and_completion(bare, tmp_path, monkeypatch, capsys):
    train = ["-m", "manyheads", "train", "--info"]
    assert "model: mini\n" in bare.run(*train, "defaults-tree", "model=mini", cwd=tmp_path).stdout
    words = ["trainer.val_check_interval=0.5", "optim.class_weights={no: 2}", "data.rows=1e3"]
    assert "  val_check_interval: 0.5\n" in bare.run(*train, "config", *words, cwd=tmp_path).stdout
    for line, completed in [
        ("manyheads ev", "evaluate"),
        ("manyheads train hardware=c", "hardware=cpu"),
        ("manyheads train model.n_l", "model.n_layers="),
    ]:
        monkeypatch.setenv("COMP_LINE", line)
        assert cli.main(["-sc", "query=bash"]) == 0
        assert capsys.readouterr().out.split() == [completed]


OWN_SECTION = """
from manyheads.api import Plugin, Section
from manyheads.config.facts import section, setting

@section("diary.")
class Diary:
    page: int = setting(3, "which page")

PLUGIN = Plugin("my_parts", sections=[Section("diary", Diary, "a diary")])
"""


def test_settings_of_own_parts_are_completed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_parts.py").write_text(OWN_SECTION)
    for word, completed in (("plugins=[./my_parts.py]", ["diary.page="]), ("plugins=[./none.py]", []), ("", [])):
        monkeypatch.setenv("COMP_LINE", f"manyheads train {word} diary.p")
        assert cli.main(["-sc", "query=bash"]) == 0
        assert capsys.readouterr().out.split() == completed
        forget_plugins()


@pytest.mark.parametrize("words", ["--shell-completion install=bash", "train --cfg job", "train --info config"])
def test_the_reader_of_what_hydra_says_goes_away(words):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "manyheads", *words.split()]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", [[], ["install=cmd"], ["install=bash", "query=bash"]])
def test_completion_is_for_one_shell(words, capsys):
    assert cli.main(["--shell-completion", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"--shell-completion {' '.join(words)}".rstrip() + ": give one of install=bash, install=fish"
    )
    assert said.count("\n") == 1


@pytest.mark.parametrize("flag", ["--config-dir=~/mine", "--config-dir={home}/mine", "--config-dir ~/mine"])
def test_own_presets(flag, calls, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "wide.yaml").write_text("d_ff: 4096\n")
    assert cli.main(["train", "model=wide", *flag.format(home=tmp_path).split()]) == 0
    assert calls[0][1].model.d_ff == 4096


@pytest.mark.parametrize("flag", [pytest.param("-m", marks=SWEEPS), "--info"])
def test_a_run_to_go_on_with_takes_no_such_flag(flag, tmp_path, capsys):
    (tmp_path / "config.yaml").touch()
    assert cli.main(["train", *flag.split(), f"resume={tmp_path}"]) == 2
    short = flag.split()[0]
    assert capsys.readouterr().err == (
        f"resume={tmp_path} does not go with {short}, as its settings are those of the config.yaml in it: read them "
        f"there, or remove {short}\n"
    )


PIPES = [  # what is printed before the reader leaves, and the exit code
    ("print('x' * 10**6)", 141),
    ("print('x')", 141),  # stays in the buffer until our own flush
    ("print('x'); raise BrokenPipeError", 141),
    ("from manyheads.terminal import console; console().print('x' * 10**6)", 141),  # rich exits by itself
    ("from manyheads.errors import UserError; raise UserError('data.path=x is wrong: mend it')", 2),
]


@pytest.mark.parametrize(("body", "code"), PIPES, ids=[body for body, _ in PIPES])
def test_a_reader_that_leaves_ends_quietly(body, code, tmp_path):
    lines = ["import sys", "from manyheads.cli import main as cli"]
    lines += ["def verb(name, config):", f"    {body}", "cli.call = verb", "raise SystemExit(cli.main(['train']))"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], stdout=writing, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    os.close(writing)
    assert done.returncode == code
    assert done.stderr == ("" if code == 141 else "data.path=x is wrong: mend it\n")


def test_help_to_head_is_no_error():
    line = f"{sys.executable} -m manyheads train --help | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


UNKIND = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:  # as C++ of torch, which aborts, or a library that goes on without what it could not import
    raise ImportError("cannot load module more than once per process") from None
"""


@pytest.mark.parametrize("when", ["composing", "importing", "captured"])
def test_ctrl_c_while_something_heavy_is_imported(when, tmp_path):
    (tmp_path / "unkind.py").write_text(UNKIND)
    name = "manyheads.cli.compose.compose" if when == "composing" else "manyheads.training_run.train"
    module, _, function = name.rpartition(".")
    body = f"import sys, {module} as one\nfrom manyheads.cli import main as cli\nsys.path.insert(0, '')\n"
    body += (
        f"def heavy(*words, **more):\n    import unkind\none.{function} = heavy\nraise SystemExit(cli.main(['train']))"
    )
    if when == "captured":  # as while an export is traced
        captured = "import contextlib, io\n    with contextlib.redirect_stderr(io.StringIO()): import unkind"
        body = body.replace("import unkind", captured)
    done = shell(program=("-c", body), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "stopped by Ctrl-C\n")


def test_ctrl_c_in_the_shell(tmp_path):
    body = "import os, signal\nfrom manyheads.cli import main as cli\n"
    body += "cli.call = lambda verb, config: os.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(cli.main(['train']))"
    done = shell(program=("-c", body), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "stopped by Ctrl-C\n")
