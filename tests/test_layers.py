"""Who may import whom, and what no file may contain: the house plan, read from the syntax trees."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "manyheads"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {str(file.relative_to(PACKAGE)): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
FORBIDDEN = {  # room or file: what it never imports, not even inside a function
    "config/": ("manyheads.nn", "manyheads.data", "manyheads.fit", "manyheads.judge", "manyheads.ship"),
    "nn/": ("lightning", "datasets", "manyheads.data", "manyheads.fit", "manyheads.judge", "manyheads.ship"),
    "layout.py": ("manyheads",),
    "data/": (
        "manyheads.nn",
        "manyheads.fit",
        "manyheads.judge",
        "manyheads.ship",
        "manyheads.look",
        "manyheads.ablate",
        "manyheads.explain",
    ),
    "fit/": ("manyheads.judge", "manyheads.ship", "manyheads.look", "manyheads.ablate", "manyheads.explain"),
    "family/": ("lightning", "datasets", "transformers", "manyheads.fit", "manyheads.judge", "manyheads.look"),
    "ship/": ("lightning", "numpy", "datasets", "sklearn", "manyheads.fit", "manyheads.judge"),
    "judge/": ("lightning", "manyheads.look", "manyheads.ablate", "manyheads.explain"),
    "ablate/": ("manyheads.judge", "manyheads.ship", "manyheads.look", "manyheads.explain"),
    "tune/": (  # it starts processes, and trains nothing itself
        *("torch", "lightning", "manyheads.nn", "manyheads.ship", "manyheads.look", "manyheads.ablate"),
        "manyheads.explain",
    ),
    "look/": ("lightning", "manyheads.fit", "manyheads.ablate", "manyheads.explain"),
}
PURE_DATA = ("sources", "audit", "demo", "rows")  # standard library alone when imported


def imports(tree: ast.AST, *, at_import: bool = False) -> set[str]:
    """Dotted names a file imports; `at_import`: only what runs when it is imported."""
    found = set()
    for node in _run_at_import(tree) if at_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _run_at_import(tree):
    for node in ast.iter_child_nodes(tree):
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not typing_only and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _run_at_import(node)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("file", TREES)
def test_layers(file):
    for place, barred in FORBIDDEN.items():
        if file.startswith(place):
            bad = {name for name in imports(TREES[file]) for package in barred if within(name, package)}
            assert not bad, f"{file} imports {bad}"


@pytest.mark.parametrize("file", TREES)
def test_only_the_door_knows_hydra(file):
    hydra = {name for name in imports(TREES[file]) if within(name, "hydra") or within(name, "omegaconf")}
    assert not hydra or file == "compose.py"


@pytest.mark.parametrize(
    "file",
    [name for name in TREES if name.startswith("config/")]
    + ["runfolder.py", "cli.py", "ranks.py", "launch.py", "launched.py", "supervise.py", "distributed/heartbeat.py"],
)
def test_standard_library_alone(file):
    for name in imports(TREES[file], at_import=True):
        assert name.split(".")[0] in sys.stdlib_module_names or within(name, "manyheads"), f"{file} imports {name}"


def reached(file: str) -> set[str]:
    """Packages that importing a file of ours brings in, ours followed."""
    found, seen, todo = set(), {file}, [file]
    while todo:
        for name in imports(TREES[todo.pop()], at_import=True):
            if not within(name, "manyheads"):
                found.add(name.split(".")[0])
                continue
            parts = name.split(".")[1:]
            ours = ("/".join(parts) + ".py", "/".join(parts[:-1]) + ".py", "/".join([*parts[:-1], "__init__.py"]))
            todo += [one for one in ours if one in TREES and one not in seen]
            seen |= {*todo}
    return found


@pytest.mark.parametrize(
    "file",
    [f"data/{name}.py" for name in PURE_DATA if f"data/{name}.py" in TREES]
    + ["cli.py", "launch.py", "launched.py", "sweep/ablate.py", "huggingface/shapes.py"],
)
def test_data_mistakes_and_the_door_need_no_heavy_import(file):
    assert reached(file) <= set(sys.stdlib_module_names)


def test_scripts_hide_no_module_of_python_and_stay_short():
    for script in (ROOT / "scripts").glob("*.py"):
        assert script.stem not in sys.stdlib_module_names
        assert len(script.read_text().splitlines()) <= 40


@pytest.mark.parametrize("file", TREES)
def test_files_and_functions_stay_short(file):
    assert len((PACKAGE / file).read_text().splitlines()) <= 400
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == "assemble":  # the architecture diagram stays in one piece
                continue
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            assert (node.end_lineno or 0) - first.lineno < 60, f"{file}: {node.name}"
        names = {"utils", "helpers", "common", "base", "manager", "registry"}
        assert not names & set(Path(file).with_suffix("").parts)
