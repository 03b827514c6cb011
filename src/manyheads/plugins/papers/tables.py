"""Tables as LaTeX and as csv. Standard library only."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from manyheads.plugin import VERSION
from manyheads.runs.result_table import Cell, ResultTable
from manyheads.runs.summary import Interval
from manyheads.terminal import one_line

SIGNS = {sign: f"\\{sign}" for sign in "&%$#_{}"}
SIGNS |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SIGNS |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
SIGNS |= {"[": "{[}", "]": "{]}", "*": "{*}", "`": r"\textasciigrave{}"}  # the rule or line before takes no option
TABLE = r"""
\begin{table}[t]
\centering
\small
\caption{CAPTION}
\label{tab:LABEL}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{KINDS}
\toprule
HEADER
\midrule
ROWS
\bottomrule
\end{tabular}}
\end{table}
"""


def latex(tables: Sequence[ResultTable]) -> str:
    """One `table` for each, with the rules of the package booktabs, made smaller where it is wider than the column; how
    to read it is in the caption."""
    blocks = [f"% written by manyheads {VERSION}; needs \\usepackage{{booktabs,graphicx}}\n"]
    for table in tables:
        rows = []
        for row, words in zip(table.rows, table.in_words(), strict=True):
            rows.append(_line(_latex_cell(cell, word) for cell, word in zip(row, words, strict=True)))
        parts = {
            "CAPTION": _escaped(" ".join([f"{table.title}.", *table.notes])),
            "LABEL": re.sub(r"[^a-z0-9]+", "-", table.name.lower()),
            "KINDS": "".join("l" if table.is_text(name) else "r" for name in table.columns),
            "HEADER": _line(_escaped(name) for name in table.columns),
            "ROWS": "\n".join(rows),
        }
        blocks.append(re.sub("|".join(parts), lambda found, parts=parts: parts[found[0]], TABLE))
    return "".join(blocks)


def _line(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex_cell(cell: Cell, word: str) -> str:
    """A minus and a power of ten are set as such, and the ends of an interval without signs are joined by a dash; texts
    are as they are."""
    if isinstance(cell, str):
        return _escaped(cell)

    def in_math(found: re.Match[str]) -> str:
        return f"${found[1]} \\cdot 10^{{{int(found[2])}}}$" if found[1] else "$-$"

    escaped = re.sub(r"(-?[\d.]+)e([+-]\d+)|-(?=[\d.])", in_math, _escaped(word))
    return escaped if re.search("[+-]", word) else escaped.replace(" to ", "--")


def _escaped(text: str) -> str:
    """A text that LaTeX prints as it is, on one line."""
    escaped = "".join(SIGNS.get(sign, sign) for sign in one_line(text))
    return re.sub(r"([-',])(?=\1)", r"\1{}", escaped)  # two of them are one sign of LaTeX


def comma_separated(tables: Sequence[ResultTable]) -> str:
    """The first table with all digits; an interval has the columns NAME, NAME.low and NAME.high, as in `runs`."""
    header, columns = list[str](), list[list[Cell]]()
    for name in tables[0].columns:
        cells = tables[0].cells(name)
        header.append(name)
        columns.append([cell.value if isinstance(cell, Interval) else cell for cell in cells])
        for end in ("low", "high"):
            if any(isinstance(cell, Interval) for cell in cells):
                header.append(f"{name}.{end}")
                columns.append([getattr(cell, end, None) for cell in cells])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([header, *zip(*columns, strict=True)])
    return file.getvalue()
