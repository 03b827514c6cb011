"""Settings of compare, calibrate, probe and audit. Standard library only."""

from enum import Enum

import manyheads.plugin as plugin
from manyheads.config.data import ROLES, DataConfig, TokenizerConfig
from manyheads.config.facts import require, section, setting
from manyheads.config.figures import figures_of_answers
from manyheads.config.inference import OVERWRITE, InferenceBatch, InferenceHardware, finished_run, run_data
from manyheads.config.required import bounds_of

FEWEST = 50  # rows that a calibration is fitted to
CHANGE = "change."  # of compare: the figure of the last run less that of the first


def compared_figures(rows: str) -> list[str]:
    """What `compare` measures of rows with one class ("classes") or with any number of labels ("labels")."""
    measured = figures_of_answers(rows)
    return [*measured, *(f"{CHANGE}{name}" for name in measured)]


CalibrationMethod = Enum("CalibrationMethod", "temperature vector isotonic")


@section()
class CalibrateConfig:
    """All settings of `manyheads calibrate`."""

    run: str = finished_run("to calibrate")
    method: CalibrationMethod = setting(
        CalibrationMethod.temperature, "one number; a scale and a shift, or a rising line, for each class"
    )
    output: str = setting("", "a new folder for the calibrated model; empty: what run holds is calibrated", path=True)
    overwrite: bool = setting(False, "a calibrated model that calibrate wrote to output is replaced; nothing else is")
    split: str = setting("validation", "train, validation or test; a single file is read whole", among=ROLES)
    seed: int = setting(0, "seed of the folds, and of the rows that are drawn of many", ge=0, lt=2**32)
    data: DataConfig = setting(run_data, "texts and labels to fit on; default: those of the run")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        require(
            bool(self.output) or not self.overwrite,
            "overwrite=true does nothing without output, as what run holds is calibrated then: remove it",
        )


@section()
class ProbeConfig:
    """All settings of `manyheads probe`."""

    run: str = finished_run("to try")
    tests: str = setting("", "YAML file of tests; empty: texts changed in small ways keep their answers", path=True)
    output: str = setting("", "folder of the results; empty: <run>/probe/<data>-<split>", path=True)
    overwrite: bool = setting(False, OVERWRITE)
    split: str = setting("test", "train, validation or test; a single file is read whole", among=ROLES)
    rows: int = setting(500, "most rows that each test changes", ge=1, le=10_000)
    examples: int = setting(10, "most failures of each test on the page", ge=0, le=1000)
    seed: int = setting(0, "seed of rows and typing errors", ge=0, lt=2**32)
    data: DataConfig = setting(run_data, "texts to change; default: those of the run")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")


@section()
class CompareConfig:
    """All settings of `manyheads compare`."""

    runs: list[str] = setting(
        list,
        "two or more: run, model or ONNX folders, models of the Hugging Face hub, files with a column prediction",
        path=True,
        hub=True,
        required="name two or more, for example runs=[outputs/a,outputs/b]",
    )
    output: str = setting(
        "", "folder of the results; empty: outputs/compare-<data>-<split>; or a table such as x.tex", path=True
    )
    overwrite: bool = setting(False, OVERWRITE)
    split: str = setting("test", "train, validation or test; a single file is judged whole", among=ROLES)
    require: str = setting(
        "",
        "figures that the last of runs must reach, as in evaluate, or change.accuracy: less the first's",
        verbatim=True,
    )
    rows: int = setting(20, "most rows of each kind of change on the page", ge=0, le=10_000)
    data: DataConfig = setting(run_data, "texts and labels; default: those of the first run")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        bounds_of(self.require, compared_figures("labels"))


@section()
class AuditConfig:
    """All settings of `manyheads audit`."""

    output: str = setting(
        "", "folder of audit.html, audit.json and suspects.csv; empty: a new one under outputs/", path=True
    )
    overwrite: bool = setting(
        False, "an earlier audit in output is replaced once the new one is whole; nothing else is"
    )
    seed: int = setting(0, "seed of carved-out splits, folds and samples", ge=0, lt=2**32)
    sample: int = setting(20_000, "most rows of each split that are looked at, drawn", ge=100, le=1_000_000)
    folds: int = setting(5, "parts of train, each answered by a linear model of the others", ge=2, le=50)
    data: DataConfig = setting(DataConfig, "texts and labels")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "text to tokens, whose number is counted")

    def __post_init__(self) -> None:
        task = plugin.find("source", self.data.source).facts.get("task", "classify")
        require(
            bool(self.data.path) or (self.data.source != "run" and task == "classify"),
            f"data={self.data.source} has no labels to look at: name a file by data.path=<file or folder>, or "
            "choose other data",
        )
        require(
            bool(self.output) or not self.overwrite,
            "overwrite=true does nothing without output, as each audit has a new folder then: remove it",
        )
