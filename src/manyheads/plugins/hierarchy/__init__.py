"""Labels with levels: data.hierarchy=/ reads animals/cats/siamese as a path, data.parents names a file of parents.

A run learns the classes at the ends of paths, and rows whose label is a node above them by the sum of the classes below
it. Figures of each level are part of every evaluation, and predict answers the deepest level that it is sure of.
"""

from manyheads.plugin import Part, Plugin, Section

LEVELS = Section(
    "",
    config="manyheads.plugins.hierarchy.config:HierarchyConfig",
    help="how labels are parts of others",
    into=("data",),
    refuse="manyheads.plugins.hierarchy.config:refuse_levels",
    coarse="manyheads.plugins.hierarchy.tree:finder",
    rows="manyheads.plugins.hierarchy.nodes:rows_of_nodes",
    loss="manyheads.plugins.hierarchy.learning:loss_of",
    keep="manyheads.plugins.hierarchy.tree:kept_lines",
)
ANSWERS = Section(
    "hierarchy",
    config="manyheads.plugins.hierarchy.config:SureConfig",
    help="which level of a label is answered",
    into=("judge", "answer"),
)
PARTS = (
    Part(
        "answer_rule",
        "hierarchy",
        "manyheads.plugins.hierarchy.answers:level_rule",
        facts={"check": "manyheads.plugins.hierarchy.config:wants_levels"},
    ),
    Part("finding", "hierarchy", "manyheads.plugins.hierarchy.answers:figures_of_levels"),
)
PLUGIN = Plugin("hierarchy", sections=(LEVELS, ANSWERS), parts=PARTS)
