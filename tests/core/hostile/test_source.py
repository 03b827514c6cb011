"""No file of ours may run what it reads: the syntax trees say so, and each rule is seen to catch what it forbids."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted(file for place in ("src", "scripts", "benchmarks") for file in (ROOT / place).rglob("*.py"))
UNPICKLE = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "pickletools"}
FORBIDDEN = {  # by whole name, wherever it is named
    "eval", "exec", "compile", "__import__", "breakpoint",
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn",
    "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "yaml.UnsafeLoader", "yaml.FullLoader", "yaml.Loader",
    "hydra.utils.instantiate", "hydra.utils.call", "hydra.utils.get_method", "hydra.utils.get_class",
    "hydra.utils.get_object", "runpy.run_path", "runpy.run_module", "torch.hub.load", "torch.jit.load",
    "torch.package.PackageImporter", "pandas.read_pickle",
}  # fmt: skip
METHODS = {  # by their last name
    "load_from_checkpoint", "read_pickle", "all_gather_object", "gather_object", "broadcast_object_list",
    "scatter_object_list", "send_object_list", "recv_object_list", "exec_module", "instantiate",
}  # fmt: skip
TABLES = {"plugin.py": "importlib.import_module(module)"}  # of names that plugins declare, never of data


def breaches(tree: ast.AST, file: str = "") -> list[str]:
    """What in the file might run code that is read from somewhere."""
    names = _full_names(tree)
    found = [f"import {name}" for name in names.values() if name.split(".")[0] in UNPICKLE]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            called = _name(node, names)
            if called in FORBIDDEN or called.split(".")[-1] in METHODS:
                found.append(called)
        if isinstance(node, ast.Call):
            found += _call(node, _name(node.func, names), file)
    return found


def _call(node: ast.Call, called: str, file: str) -> list[str]:
    judged = ("shell", "trust_remote_code", "allow_pickle", "weights_only", "Loader")
    given = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg in judged}
    rules = {
        "shell": given.get("shell", "False") != "False",
        "trust_remote_code": given.get("trust_remote_code", "False") != "False",
        "allow_pickle": given.get("allow_pickle", "False") != "False",
        "weights_only": called == "torch.load" and given.get("weights_only") != "True",
        "Loader": called == "yaml.load" and given.get("Loader") not in ("_PlainLoader", "yaml.SafeLoader"),
        "import_module": called == "importlib.import_module" and TABLES.get(file) != ast.unparse(node),
    }
    return [f"{called}: {rule}" for rule, broken in rules.items() if broken]


def _full_names(tree: ast.AST) -> dict[str, str]:
    """What each name that is imported stands for: `from os import system as x` makes x stand for os.system."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname or one.name.split(".")[0]: one.name if one.asname else one.name.split(".")[0]
                      for one in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom):
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return names


def _name(node: ast.AST, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(["?", *reversed(parts)])
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def test_nothing_runs_code_that_is_read():
    package, found = ROOT / "src" / "manyheads", {}
    for file in FILES:
        name = str(file.relative_to(package)) if file.is_relative_to(package) else str(file.relative_to(ROOT))
        found[name] = breaches(ast.parse(file.read_text(encoding="utf-8")), name)
    assert len(found) > 250  # without any plugin
    assert {name: broken for name, broken in found.items() if broken} == {}


MUTATIONS = [
    *[f"import {name}" for name in sorted(UNPICKLE)],
    *[f"from {name} import loads as x\nx(b'')" for name in ("pickle", "dill", "marshal")],
    "def f():\n    import pickle",
    "eval('1')", "exec('1')", "compile('1', '', 'eval')", "__import__('os')", "run = eval\nrun('1')",
    "import os\nos.system('x')", "import os\nos.popen('x')", "from os import system as go\ngo('x')",
    "import subprocess\nsubprocess.run('x', shell=True)", "import subprocess\nsubprocess.Popen('x', shell=yes)",
    "import torch\ntorch.load('x')", "import torch\ntorch.load('x', weights_only=False)",
    "import torch\ntorch.load('x', weights_only=safe)", "from torch import load\nload('x')",
    "import numpy as np\nnp.load('x', allow_pickle=True)", "import yaml\nyaml.load('x')",
    "import yaml\nyaml.load('x', Loader=yaml.UnsafeLoader)", "import yaml\nyaml.load('x', Loader=yaml.Loader)",
    "from yaml import unsafe_load\nunsafe_load('x')", "import hydra\nhydra.utils.instantiate({})",
    "from hydra.utils import get_method as g\ng('os.system')", "from hydra.utils import instantiate\ninstantiate({})",
    "import importlib\nimportlib.import_module(name)", "from importlib import import_module\nimport_module('x')",
    "from torch import distributed as dist\ndist.all_gather_object([], 1)",
    "import torch.distributed\ntorch.distributed.broadcast_object_list([])",
    "Module.load_from_checkpoint('x')", "self.module.load_from_checkpoint('x', weights_only=True)",
    "import pandas as pd\npd.read_pickle('x')",
    "from datasets import load_dataset\nload_dataset('x', trust_remote_code=True)",
    "import torch\ntorch.hub.load('x', 'y')", "import runpy\nrunpy.run_path('x')",
]  # fmt: skip


@pytest.mark.parametrize("source", MUTATIONS)
def test_each_rule_catches_what_it_forbids(source):
    assert breaches(ast.parse(source))
    honest = (ROOT / "src" / "manyheads" / "runs" / "folder.py").read_text(encoding="utf-8")
    assert breaches(ast.parse(f"{honest}\n{source}\n")), "within an honest file, too"


def test_what_the_table_of_verbs_names_is_ours():
    from manyheads.cli.verbs import VERBS

    assert all(verb.run.startswith("manyheads.") for verb in VERBS.values())
    assert breaches(ast.parse("import importlib\nimportlib.import_module(module)"), "plugin.py") == []


def test_versions_with_known_holes_are_kept_out():
    import tomllib

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    for name, versions in {
        "torch": ["2.5.1", "2.9.1"],  # CVE-2025-32434, CVE-2026-24747
        "lightning": ["2.3.2", "2.6.0", "2.6.2", "2.6.3", "2.6.5"],  # malware, CVE-2026-31221, CVE-2026-58659
        "hydra-core": ["1.3.2", "1.3.5"],  # GHSA-37p2-j732-x8pj
        "datasets": ["3.6.0"],  # loading scripts
    }.items():
        assert not [version for version in versions if version in needed[name]], name
