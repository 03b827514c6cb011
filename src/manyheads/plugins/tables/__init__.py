"""What is done to tables before rows are read of them: data.rename= gives labels other names, data.split_by= makes the
newest rows the test split; and workbooks of Excel and folders of classes, a text a file, are read.

A section that adds settings to `data`, and a hook that changes the tables which these name.
"""

from manyheads.plugin import Part, Plugin, Section

SETTINGS = Section(
    "",
    config="manyheads.plugins.tables.config:TablesConfig",
    help="labels by other names, and splits by date",
    into=("data",),
    tables="manyheads.plugins.tables.config:apply_changes",
)
READER = "manyheads.plugins.tables.workbook:read_workbook"
FOLDERS = Part("folder", "classes", "manyheads.plugins.tables.class_folders:open_class_folders")
PLUGIN = Plugin(
    "tables", sections=[SETTINGS], parts=[FOLDERS, *(Part("file", kind, READER) for kind in (".xlsx", ".xlsm"))]
)
