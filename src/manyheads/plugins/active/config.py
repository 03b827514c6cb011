"""Settings of next. Standard library only."""

from enum import Enum

from manyheads.config.data import DataConfig, OnBadRow
from manyheads.config.facts import section, setting
from manyheads.config.inference import InferenceBatch, InferenceHardware, finished_run, run_data

By = Enum("By", "uncertainty diversity both disagreement random")


@section()
class NextConfig:
    """All settings of `manyheads next`."""

    run: str = finished_run("that is to learn more")
    output: str = setting(
        "",
        "new file of the chosen texts: .csv, .tsv, .parquet or .jsonl; -: standard output",
        path=True,
        required="name a file to be labelled, for example output=next.csv",
    )
    n: int = setting(100, "texts that are chosen", ge=1, le=100_000)
    by: By = setting(
        By.uncertainty,
        "close answers; diversity: unlike each other and train; both: close and unlike each other; disagreement: "
        "of network and linear model; random: drawn",
    )
    sample: int = setting(20_000, "most texts that are considered, drawn at random", ge=1, le=100_000)
    seed: int = setting(0, "seed of what is drawn", ge=0, lt=2**32)
    data: DataConfig = setting(lambda: run_data(on_bad_row=OnBadRow.drop), "texts to choose from")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")
