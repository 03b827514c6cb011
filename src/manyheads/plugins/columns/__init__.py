"""data.columns=[priority,amount]: categories and numbers of a row are read with its text. data.text_names=true: so are
the names of the columns that data.text joins.

Each cell is a token of its own before the text, and a term of the linear model: a category by its name, a number by its
bucket among the training rows. The measured figures of a run say what the columns add.
"""

from manyheads.plugin import Plugin, Section

COLUMNS = Section(
    "",
    config="manyheads.plugins.columns.config:ColumnsConfig",
    help="categories and numbers that are read with the text",
    into=("data",),
    refuse="manyheads.plugins.columns.config:refuse_columns",
    fields="manyheads.plugins.columns.config:column_names",
    keep="manyheads.plugins.columns.units:learn_buckets",
    read="manyheads.plugins.columns.units:unit_reader",
    script="manyheads.plugins.columns.row_units:rows_with_units",
    tokenizer="manyheads.plugins.columns.learning:with_units",
    measure="manyheads.plugins.columns.learning:gain_of_columns",
)
PLUGIN = Plugin("columns", sections=[COLUMNS])
