"""Settings of verbs that ask a finished model, such as `evaluate` and `predict`."""

from enum import Enum
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.data import ROLES, DataConfig, Predictions, check_columns
from manyheads.config.facts import require, section, setting
from manyheads.config.figures import measured_by
from manyheads.config.required import HELP, bounds_of
from manyheads.config.sentences import format_value
from manyheads.config.training import Accelerator, Precision


@section("hardware.")
class InferenceHardware:
    """Processors of `evaluate` and `predict`."""

    accelerator: Accelerator = setting(Accelerator.auto, "auto takes a GPU, else the CPU")
    devices: int = setting(1, "GPUs, or CPU processes, that share the rows; 0: all GPUs", ge=0, le=1024)
    precision: Precision = setting(Precision.auto, "auto: fp32; answers without labels in bf16 where the processor can")
    threads: int = setting(0, "CPU threads of a process; 0: torch decides", ge=0, le=1024)
    timeout: int = setting(600, "seconds without an answer after which a process is given up", ge=1)


@section("batch.")
class InferenceBatch:
    """Texts that `evaluate` and `predict` answer together. Answers do not depend on it, memory and speed do."""

    tokens: int = setting(2048, "most tokens of a batch", ge=1)


def finished_run(what: str) -> Any:
    """The setting that names the run `what`."""
    remedy = f"name the run {what}, for example run=outputs/my-run"
    where = "run folder, its model/ folder moved anywhere, or a model of the Hugging Face hub: name/model@revision"
    return setting("", where, path=True, hub=True, required=remedy)


def run_data(**named: Any) -> DataConfig:
    """The data a run was trained on, or what is `named`; columns that are not are those of the run."""
    of_run: dict[str, Any] = {"source": "run", "text": "", "text_pair": "", "label": "", "target": ""}
    return DataConfig(**(of_run | named))


OVERWRITE = "earlier results of this verb are replaced once the new ones are whole; nothing else in output is"
MEMBERS = "who answers: all by their shares, or one of them alone, uncalibrated"


class Member(Enum):
    all = "all"  # as the run answers
    network = "network"
    linear = "linear"


@section(opening="judge")
class EvaluateConfig:
    """All settings of `manyheads evaluate`."""

    run: str = finished_run("to judge")
    output: str = setting("", "folder of the results; empty: <run>/evaluate/<data>-<split>", path=True)
    overwrite: bool = setting(False, OVERWRITE)
    split: str = setting("test", "train, validation or test; a single file is judged whole", among=ROLES)
    require: str = setting("", HELP, verbatim=True)
    predictions: Predictions = setting(Predictions.csv, "kind of the file of all answers")
    data: DataConfig = setting(run_data, "texts and labels; default: those of the run")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        figures = [figure for name in plugin.names("task") for figure in measured_by(name)]
        bounds_of(self.require, [*dict.fromkeys(figures)])


OnBadText = Enum("OnBadText", {"raise": "raise", "drop": "drop", "empty": "empty"})


@section("data.")
class TextColumns:
    """Which columns of a file hold the texts, and what becomes of rows that have none."""

    text: Any = setting("", "column of the text, or several; empty: those of training, or text", several=True)
    text_pair: str = setting("", "column of the second text; empty: that of training, or text_pair")
    on_bad_row: OnBadText = setting(
        OnBadText.empty,
        "a row that cannot be answered: raise; drop: its answer is null; empty: drop empty texts alone",
    )

    def __post_init__(self) -> None:
        if isinstance(self.text, list):
            check_columns(self.text)


@section(opening="answer")
class PredictConfig:
    """All settings of `manyheads predict`."""

    run: str = finished_run("that predicts")
    input: str = setting(
        "-",
        "file of one text a line (tab between a pair), csv, tsv, jsonl or parquet; -: standard input",
        path=True,
        may_be_empty=False,
    )
    text: str = setting("", "one text, instead of input", verbatim=True, may_be_empty=False)
    output: str = setting("-", "file: .csv, .tsv, .parquet or .jsonl (JSON lines); -: standard output", path=True)
    overwrite: bool = setting(False, "answers of an earlier command in output are replaced, and none of them resumed")
    top_k: int = setting(0, "most probable classes whose probabilities are written; 0: those of all", ge=0)
    members: Member = setting(Member.all, MEMBERS)
    data: TextColumns = setting(TextColumns, "rows of input")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        require(
            self.output != "-" or not self.overwrite,
            "overwrite=true does nothing on standard output: name a file by output=, or remove it",
        )


ListFormat = Enum("ListFormat", "table csv json")
ReportFormat = Enum("ReportFormat", "md json html")


@section()
class RunsConfig:
    """All settings of `manyheads runs`."""

    folder: str = setting("outputs", "folder of the runs, which may lie deeper in it", path=True, may_be_empty=False)
    where: str = setting(
        "", "what holds of all that are listed, such as [data=reviews, model.n_heads=8, accuracy>0.8]", verbatim=True
    )
    sort: str = setting("", "column, setting or figure; -accuracy: the highest first; empty: the newest first")
    runs: list[str] = setting(
        list, "instead of folder two runs or more, or evaluations: settings that differ, and figures", path=True
    )
    format: ListFormat = setting(ListFormat.table, "how they are printed; table: plain lines where no terminal reads")
    output: str = setting(
        "-", "file: .csv, .md, .tex, or a figure, .pdf, .svg, .png; -: standard output", path=True, may_be_empty=False
    )

    def __post_init__(self) -> None:
        for name in ("where", "sort"):
            value = getattr(self, name)
            require(
                not (self.runs and value),
                f"{name}={format_value(value)} does nothing with runs, which names them: remove one of them",
            )
        require(
            len(self.runs) != 1, f"runs={format_value(self.runs)} is one run, but two or more are compared: add another"
        )


@section()
class ReportConfig:
    """All settings of `manyheads report`."""

    run: str = setting(
        "",
        "run folder, folder of an evaluation, such as <run>/evaluate/reviews-test, or results of tune and others",
        path=True,
        required="name a finished run, for example run=outputs/my-run",
    )
    format: ReportFormat = setting(ReportFormat.md, "Markdown, JSON, or the page that is there")
    of: str = setting("", "the only table to write, by its name, such as reliability; empty: those that fit")
    output: str = setting(
        "-", "file, replaced if it exists, also .tex, .csv, .pdf, .svg, .png; -: standard output", path=True,
        may_be_empty=False,
    )  # fmt: skip
