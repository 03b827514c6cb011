"""Tables as figures, in three kinds of files. The same table gives the same bytes: files hold no date."""

import warnings
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

from matplotlib import rc_context

from manyheads.evaluation.report import draw_table
from manyheads.runs.result_table import ResultTable

STYLE: Any = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "manyheads", "text.parse_math": False}


def figure(tables: Sequence[ResultTable], *, kind: str, **metadata: Any) -> bytes:
    """The first table as a file whose letters are text; a bitmap has 300 dots an inch."""
    file = BytesIO()
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a class name in a script that the font lacks
        draw_table(tables[0]).savefig(file, format=kind, dpi=300, metadata=metadata)
    return file.getvalue()


pdf = partial(figure, kind="pdf", CreationDate=None)
svg = partial(figure, kind="svg", Date=None)
bitmap = partial(figure, kind="png", Software=None)
