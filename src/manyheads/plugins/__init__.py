"""The plugins that come with the package, each a folder here. Core reads this table and names none of them."""

PLUGINS: dict[str, str] = {  # name -> module, whose PLUGIN says what it adds
    "slurm": "manyheads.plugins.slurm",
    "trackers": "manyheads.plugins.trackers",
    "interpret": "manyheads.plugins.interpret",
    "judge": "manyheads.plugins.judge",
    "language": "manyheads.plugins.language",
    "serving": "manyheads.plugins.serving",
    "sweep": "manyheads.plugins.sweep",
    "static": "manyheads.plugins.static",
    "hub": "manyheads.plugins.hub",
    "tables": "manyheads.plugins.tables",
    "transfer": "manyheads.plugins.transfer",
    "fewshot": "manyheads.plugins.fewshot",
    "trim": "manyheads.plugins.trim",
    "editors": "manyheads.plugins.editors",
    "hierarchy": "manyheads.plugins.hierarchy",
    "active": "manyheads.plugins.active",
    "columns": "manyheads.plugins.columns",
    "multitask": "manyheads.plugins.multitask",
    "papers": "manyheads.plugins.papers",
    "review": "manyheads.plugins.review",
}
