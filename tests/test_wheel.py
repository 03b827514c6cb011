"""The built wheel carries the presets and every room, and works from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, built from a copy of the sources and unpacked."""
    scratch = tmp_path_factory.mktemp("wheel")
    source = scratch / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for folder in ("src", "conf"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file):
                target = source / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"  # as pip does
    subprocess.run([sys.executable, "-c", build, str(scratch)], cwd=source, check=True, capture_output=True)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / "installed")
    return scratch / "installed"


def test_every_module_and_preset_is_inside(installed):
    modules = {file.relative_to(ROOT / "src") for file in (ROOT / "src" / "manyheads").rglob("*.py")}
    presets = {Path("manyheads") / file.relative_to(ROOT) for file in (ROOT / "conf").rglob("*.yaml")}
    inside = {file.relative_to(installed) for file in installed.rglob("*") if file.is_file()}
    others = {
        file.relative_to(ROOT / "src")
        for file in (ROOT / "src" / "manyheads").rglob("*")
        if file.suffix in (".yaml", ".j2", ".js", ".css", ".html", ".json")
    }
    assert len(others) >= 3  # without any plugin
    assert modules | presets | others | {Path("manyheads/py.typed")} <= inside


def test_it_runs_from_a_scratch_folder(installed, bare, tmp_path):
    script = "import manyheads; from manyheads.cli.main import main; print(manyheads.__file__)\n"
    script += "main(['train', 'model=mini', '--cfg', 'job']), main(['train', '--help'])"
    done = bare.run("-c", script, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(installed)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(installed))
    assert "n_layers: 4\n" in done.stdout
    assert "tiny" in done.stdout.partition("usage: ")[2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_trains_from_a_scratch_folder_and_says_nothing_that_is_not_ours(installed, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(installed), "MANYHEADS_CACHE": str(tmp_path / "cache")}
    words = ["-m", "manyheads", "train", "debug=fast", "output=run"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert "linear model" in done.stdout
    data, note, model, chosen, epoch = done.stderr.splitlines()
    assert (data.partition(":")[0], model.partition(":")[0]) == ("data", "model")
    assert note == "data.rows=64: 64 of 4,000 training rows are used"
    assert chosen.startswith("chosen automatically: best epoch by accuracy, ")
    assert epoch.startswith("epoch 1, step 4: loss ")
