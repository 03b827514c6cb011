"""The package without some of its plugins: help, the tests that are left, and one small run.

In a copy the folders of these plugins, their tests and their lines in the table are deleted; small_runs.py uses it,
every night the tests, too. Each plugin is deleted in three of seven copies, and no two plugins in the same three: for
each plugin X and each other one Y there is a copy without X but with Y. Core and its tests are in all.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.plugins import PLUGINS

ROOT = Path(__file__).parents[2]
ROWS = "text,label\n" + "".join(
    f"{'good' if at % 2 else 'bad'} film {at},{'pos' if at % 2 else 'neg'}\n" for at in range(80)
)
THREE = [(0, 1, 2), (0, 1, 3), (0, 1, 4), (0, 1, 5), (0, 2, 4)]  # turned by 0 to 6: all 35 ways to choose 3 of 7
DELETED_IN = {name: {(first + at) % 7 for first in THREE[at // 7]} for at, name in enumerate(PLUGINS)}
COPIES = [[name for name in PLUGINS if copy in DELETED_IN[name]] for copy in range(7)]


def test_each_plugin_is_deleted_where_each_other_is_not():
    pairs = {(gone, there) for names in COPIES for gone in names for there in PLUGINS if there not in names}
    assert pairs == {(gone, there) for gone in PLUGINS for there in PLUGINS if gone != there}


def without(names: list[str], copy: Path, *more: str) -> Path:
    """A copy of the package, its presets and `more` folders without these plugins."""
    for folder in ("src", "conf", *more):  # with what Python has compiled, which takes long
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("*.egg-info"))
    table = copy / "src" / "manyheads" / "plugins" / "__init__.py"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    for name in names:
        (at,) = [at for at, line in enumerate(lines) if line.strip().startswith(f'"{name}":')]
        del lines[at]
        shutil.rmtree(table.parent / name)
        shutil.rmtree(copy / "tests" / "plugins" / name, ignore_errors=True)
    table.write_text("".join(lines), encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    modules = tuple(f'"manyheads.plugins.{name}"' for name in names)
    kept = [line for line in project if not line.strip().startswith(modules)]
    (copy / "pyproject.toml").write_text("".join(kept), encoding="utf-8")
    (copy / "rows.csv").write_text(ROWS, encoding="utf-8")
    return copy


def used(copies: dict[str, Path], bare, home: Path) -> dict[str, tuple[int, str]]:
    """By name the exit code of a copy, and what it has said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = bare.run(Path(__file__).with_name("small_runs.py"), *copies.values(), env=environment, cwd=home)
    assert done.returncode == 0, done.stderr
    ended = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    return {name: (int(ended[str(copy)]), (copy / "said").read_text()) for name, copy in copies.items()}


def test_core_works_without_any(bare, tmp_path):
    ((code, said),) = used({"all": without([*PLUGINS], tmp_path / "all")}, bare, tmp_path).values()
    assert code == 0, said


def test_the_rest_works_without_some(bare, tmp_path):
    copies = {" ".join(names): without(names, tmp_path / str(at)) for at, names in enumerate(COPIES)}
    ended = used(copies, bare, tmp_path)
    assert {names: said for names, (code, said) in ended.items() if code} == {}


def test_no_test_of_core_or_of_another_plugin_needs_one():
    """By the imports of each file, also within functions: what is left can be collected."""
    needed = []
    for file in (ROOT / "tests").rglob("*.py"):
        parts = file.relative_to(ROOT / "tests").parts
        own = parts[1] if parts[0] == "plugins" and len(parts) > 2 else ""
        text = file.read_text(encoding="utf-8")
        if "manyheads.plugins" not in text and "tests.plugins" not in text:
            continue  # reading takes no time, parsing does
        for node in ast.walk(ast.parse(text)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                of = name.split(".")
                is_plugin = of[:2] in (["manyheads", "plugins"], ["tests", "plugins"]) and len(of) > 2
                if is_plugin and of[2] in PLUGINS and of[2] != own:
                    needed.append(f"{file.relative_to(ROOT)} imports {name}")
    assert not needed, "\n".join(needed)


@pytest.mark.slow
@pytest.mark.parametrize("names", COPIES, ids=range(7))
def test_the_whole_suite_passes_without(names, tmp_path):
    copy = without(names, tmp_path / "copy", "tests")
    for file in ROOT.iterdir():  # of the docs and scripts, which are read
        if not (copy / file.name).exists() and file.name not in (".git", "build"):
            (copy / file.name).symlink_to(file)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile"]
    environment = os.environ | {"PYTHONPATH": f"{copy / 'src'}:{copy}"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
