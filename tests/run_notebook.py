"""Runs the cells of a notebook as Jupyter does, in this process and folder: `run_notebook.py NOTEBOOK CHANGES`.

Prints what the last expression of a cell is, as HTML where it has any. CHANGES is JSON: texts of cells and what is in
their place here.
"""

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path


def run_cell(source: str, names: dict) -> None:
    if source.startswith("%%writefile "):
        first, _, content = source.partition("\n")
        Path(first.split()[1]).write_text(content, encoding="utf-8")
        return
    if source.startswith("!"):
        command = shlex.split(source[1:])
        assert command[0] == "manyheads"
        subprocess.run([sys.executable, "-m", *command], check=True)
        return
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is not None:
        found = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if found is not None:
            print(found._repr_html_() if hasattr(found, "_repr_html_") else repr(found), flush=True)


def main(notebook: str, changes: str) -> None:
    text, names = json.loads(Path(notebook).read_text(encoding="utf-8")), {"__name__": "__main__"}
    sources = ["".join(cell["source"]) for cell in text["cells"] if cell["cell_type"] == "code"]
    for before, after in json.loads(changes).items():
        assert any(before in source for source in sources), before
        sources = [source.replace(before, after) for source in sources]
    for number, source in enumerate(sources):
        print(f"cell {number}", flush=True)
        run_cell(source, names)


if __name__ == "__main__":
    main(*sys.argv[1:])
