"""Several label columns: data.labels=[topic,urgency] trains one encoder with a head for each (Caruana, 1997, "Multitask
Learning").

A task, whose network is that of a classifier with the labels of all columns, one after the other; each column is
learnt, judged and answered by itself, and is a classifier of its own in the folder of the model.
"""

from manyheads.plugin import Part, Plugin, Section, Task

MULTITASK = Task(
    answers="labels of several columns",
    model="answers several columns, each of which has a classifier of its own in the folder of the model",
    column="label",
    figures=("mean", "loss"),
    required="manyheads.plugins.multitask.config:required_figures",
    hub=("text-classification", "Text classification"),
    assemble="manyheads.nn.assemble:assemble",
    objective="manyheads.plugins.multitask.learning:learn_columns",
    predictor="manyheads.plugins.multitask.model:ColumnsClassifier",
    evaluate="manyheads.plugins.multitask.evaluation:evaluate_columns",
    check="manyheads.plugins.multitask.config:check_run",
    finish="manyheads.plugins.multitask.learning:fit_columns",
    unread=(
        *("data.target", "data.label", "refit", "predictions", "data.fold"),
        *("optim.few_strength", "optim.compare_rate"),
    ),
    lacks=("data.folds", "optim.class_weights", "optim.focal_gamma", "optim.objective", "batch.balance"),
    is_weights=True,
)
LABELS = Section(
    "",
    config="manyheads.plugins.multitask.config:LabelsConfig",
    help="several columns of labels",
    into=("data",),
    refuse="manyheads.plugins.multitask.config:refuse_elsewhere",
    tables="manyheads.plugins.multitask.reading:join_labels",
    rows="manyheads.plugins.multitask.columns:check_labels",
    keep="manyheads.plugins.multitask.config:kept_columns",
    read_as="manyheads.plugins.multitask.config:label_settings",
)
TABLES = "manyheads.plugins.multitask.columns:tables_of_columns"
PARTS = (
    Part("task", "multitask", MULTITASK),
    Part("record", "columns", TABLES, facts={"keys": ("mean", "columns")}),
)
PLUGIN = Plugin("multitask", sections=(LABELS,), parts=PARTS)
