"""Who may import whom, and what no file may contain: the plan of the house, read from the syntax trees."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import manyheads.plugin as plugin

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "manyheads"
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = (  # a room imports itself and what stands above it, not even inside a function anything below
    ("errors",),
    ("plugins",),  # the table of them; what is in its folders may import all of core
    ("hooks",),
    ("plugin",),
    ("config",),
    ("layout", "runs", "distributed", "terminal"),
    ("nn", "data"),
    ("linear", "transformers"),
    ("inference",),
    ("cli",),  # verbs are called by their names: cli/verbs.py
    ("evaluation",),
    ("training",),
    ("training_run",),
    ("builtin", "api"),  # names of code, and what plugins of users import
)
TOGETHER = {"runs", "distributed", "terminal"}  # of one layer, and may import each other
LIGHT = set(sys.stdlib_module_names)
PACKAGES = {  # what importing a room may bring in beside the standard library, whatever the way to it
    "config": {"yaml"},
    "runs": {"yaml"},
    "distributed": {"yaml", "torch"},
    "nn": {"torch"},
    "data": {"torch", "tokenizers", "safetensors", "lightning", "filelock", "numpy", "pyarrow"},
    "linear": {"torch", "tokenizers", "safetensors", "numpy"},
    "inference": {"torch", "tokenizers", "safetensors"},
    "inference/records.py": {"numpy", "pyarrow"},  # imported where a table is answered
    "hub": {"torch", "tokenizers", "safetensors", "transformers", "yaml", "numpy", "jinja2"},
    "evaluation": {"torch", "tokenizers", "safetensors", "numpy", "matplotlib", "yaml", "jinja2", "markupsafe"},
    "interpret": {"torch", "tokenizers", "safetensors", "numpy", "matplotlib", "yaml", "jinja2", "markupsafe"},
}
MOST_LAZY = 36  # imports of ours within functions, which only become fewer
FIRST = (  # imported before a mistake in settings or data is told: the standard library alone
    *("cli/main.py", "cli/verbs.py", "cli/errors.py", "cli/validation.py", "training_run.py"),
    *(
        "distributed/launch.py",
        "distributed/ranks.py",
        "distributed/machine.py",
        "distributed/heartbeat.py",
        "runs/folder.py",
    ),
    *("runs/summary.py", "runs/finished.py", "runs/listing.py", "runs/report.py"),
    *("data/sources.py", "data/rows.py", "data/opening.py", "inference/origin.py"),
    *(
        f"{code.partition(':')[0].removeprefix('manyheads.').replace('.', '/')}.py"
        for code in (
            *(one.run for one in plugin.verbs().values()),
            *(one.make for one in plugin.parts("source").values() if one.name != "hub"),  # which reads Arrow
        )
    ),
)


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each file of the package."""
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


@cache
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


def files_of(name: str) -> list[str]:
    """The files of ours that importing a dotted name runs."""
    parts = name.split(".")[1:]
    ours = ("/".join(parts) + ".py", "/".join(parts[:-1]) + ".py", "/".join([*parts[:-1], "__init__.py"]))
    return [one for one in (*ours, "/".join([*parts, "__init__.py"])) if one in trees()]


def reached(file: str) -> set[str]:
    """Packages that importing a file of ours brings in, ours followed."""
    found, seen, todo = set(), {file}, [file]
    while todo:
        for name in imports(trees()[todo.pop()], at_import=True):
            if not within(name, "manyheads"):
                found.add(name.split(".")[0])
                continue
            todo += [one for one in files_of(name) if one not in seen]
            seen |= {*todo}
    return found - LIGHT


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def plugin_of(file: str) -> str:
    """The plugin of the package that a file is of; empty where it is of core."""
    room, _, rest = file.partition("/")
    return rest.partition("/")[0] if room == "plugins" and "/" in rest else ""


def layer_of(room: str) -> int:
    (layer,) = [at for at, rooms in enumerate(LAYERS) if room in rooms]
    return layer


def test_data_flows_one_way():
    against, rooms = [], [room for layer in LAYERS for room in layer]
    for file in trees().keys() - {"__init__.py", "__main__.py"}:
        if plugin_of(file):
            continue
        room = room_of(file)
        for name in imports(trees()[file]):
            if not within(name, "manyheads") or name == "manyheads.__version__":
                continue
            other = name.split(".")[1]
            assert other in rooms, f"{file} imports {name}"
            peers = {room, other} <= TOGETHER
            if other != room and not peers and layer_of(other) >= layer_of(room):
                against.append(f"{file} imports {name}")
    assert not against, "\n".join(sorted(against))


def named(file: str) -> set[str]:
    """The modules of the package that a file imports, also within functions, or names in a text as "module:name"."""
    texts = [node.value for node in ast.walk(trees()[file]) if isinstance(node, ast.Constant)]
    modules = [one for one in texts if isinstance(one, str) and re.fullmatch(r"manyheads(\.\w+)+(:\w+)?", one)]
    found = {*imports(trees()[file]), *(one.replace(":", ".") for one in modules)}
    return {one for name in found if within(name, "manyheads") for one in files_of(name)} - {file}


def test_core_knows_no_plugin_and_a_plugin_no_other():
    known = [
        f"{file} names {other}"
        for file in trees()
        for other in named(file)
        if plugin_of(other) and plugin_of(other) != plugin_of(file) and file != "plugins/__init__.py"
    ]
    assert not known, "\n".join(known)


def test_listing_plugins_imports_nothing_of_them():
    for file in trees():
        if plugin_of(file) and file.count("/") == 2 and file.endswith("/__init__.py"):
            names = {name.rpartition(".")[0] for name in imports(trees()[file])}
            assert names <= {"manyheads.plugin"} | LIGHT, file


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of files that reach each other: Tarjan (1972), "Depth-First Search and Linear Graph Algorithms"."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in graph[file]:
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            found.append(stack[at:])
            del stack[at:]

    for file in graph:
        if file not in index:
            visit(file)
    return [sorted(group) for group in found if len(group) > 1]


def test_no_circle_of_imports_not_even_through_functions():
    graph = {
        file: {one for name in imports(tree) if within(name, "manyheads") for one in files_of(name)}
        - {file, "__init__.py"}
        for file, tree in trees().items()
    }
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles(graph) == []


def test_imports_name_modules():
    """`from manyheads import x` asks the package itself, which knows all that it offers."""
    asking = [
        file
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "manyheads"
    ]
    assert not asking, asking


def test_imports_within_functions_only_become_fewer():
    """But for the border of torch: verbs import it once their settings are valid."""
    every = sum(_is_ours(node) for tree in trees().values() for node in ast.walk(tree))
    outside = sum(_is_ours(node) for tree in trees().values() for node in _outside_functions(tree))
    assert every - outside <= MOST_LAZY, every - outside


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _outside_functions(node)


def _is_ours(node: ast.AST) -> bool:
    names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(within(name, "manyheads") for name in names)


def test_no_module_imports_itself_in_a_circle():
    graph = {
        file: {one for name in imports(tree, at_import=True) if within(name, "manyheads") for one in files_of(name)}
        - {file, "__init__.py"}
        for file, tree in trees().items()
    }
    graph = {file: {one for one in into if not one.endswith("__init__.py")} for file, into in graph.items()}
    while leaves := [file for file, into in graph.items() if not into & graph.keys()]:
        for leaf in leaves:
            del graph[leaf]
    assert not graph, f"a circle of imports among {sorted(graph)}"


def test_a_room_brings_in_no_more_than_it_says():
    found = []
    for file in trees():
        allowed = PACKAGES.get(file) or PACKAGES.get(plugin_of(file) or room_of(file))
        if allowed is not None and not reached(file) <= allowed:
            found.append(f"{file} brings in {sorted(reached(file) - allowed)}")
    assert not found, "\n".join(found)


def test_two_files_alone_know_hydra():
    knowing = {
        file
        for file, tree in trees().items()
        for name in imports(tree)
        if within(name, "hydra") or within(name, "omegaconf")
    }
    assert knowing == {"cli/hydra.py", "cli/grammar.py"}


def test_mistakes_are_told_before_anything_heavy_is_imported():
    heavy = [f"{file} brings in {sorted(reached(file) - {'yaml'})}" for file in FIRST if not reached(file) <= {"yaml"}]
    assert not heavy, "\n".join(heavy)


def test_settings_need_the_standard_library_alone():
    assert reached("config/__init__.py") == set()
    assert reached("cli/main.py") == set()


def test_scripts_hide_no_module_of_python_and_stay_short():
    for script in (ROOT / "scripts").glob("*.py"):
        assert script.stem not in sys.stdlib_module_names
        assert len(script.read_text().splitlines()) <= 40


def test_the_house_stays_small():
    rooms = {file.rpartition("/")[0] for file in trees() if "/" in file and not file.startswith("plugins/")}
    loose = [file for file in trees() if "/" not in file]
    assert len(rooms) <= 16
    assert len(loose) <= 11
    for room in {*rooms, *(f"plugins/{plugin_of(file)}" for file in trees() if plugin_of(file))} - {"plugins"}:
        assert len([file for file in trees() if file.rpartition("/")[0] == room]) <= 20, room


def test_the_main_road_is_short():
    """docs/reading.md lists its files in the order in which they are read."""
    listed = re.findall(r"(?m)^\d+\. `(.+?)`", (ROOT / "docs" / "reading.md").read_text(encoding="utf-8"))
    assert len(listed) > 20
    assert sum(len((ROOT / "src" / "manyheads" / file).read_text("utf-8").splitlines()) for file in listed) <= 8000


def test_no_file_is_a_drawer():
    drawers = {"utils", "helpers", "common", "base", "manager"}
    found = [file for file in trees() if drawers & {*Path(file).with_suffix("").parts}]
    assert not found, "\n".join(found)


def test_what_a_user_reads_is_raised_as_a_user_error():
    """A ValueError would be taken for a bug, and shown with its traceback: see `manyheads.errors`."""
    found = [
        f"{file} line {node.lineno}"
        for file in trees()
        for node in ast.walk(trees()[file])
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id == "ValueError"
    ]
    assert not found, "raise UserError instead: " + ", ".join(sorted(found))
