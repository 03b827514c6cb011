"""Tables and figures for papers: what `output=scores.tex`, .csv, .pdf, .svg or .png writes of results."""

from manyheads.plugin import Part, Plugin

WRITERS = (
    Part("writer", ".tex", "manyheads.plugins.papers.tables:latex", facts={"several": True}),
    Part("writer", ".csv", "manyheads.plugins.papers.tables:comma_separated"),
    Part("writer", ".pdf", "manyheads.plugins.papers.figures:pdf"),
    Part("writer", ".svg", "manyheads.plugins.papers.figures:svg"),
    Part("writer", ".png", "manyheads.plugins.papers.figures:bitmap"),
)
PLUGIN = Plugin("papers", parts=WRITERS)
