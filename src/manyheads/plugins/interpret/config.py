"""Settings of the verb `look`."""

from manyheads.config import InferenceHardware
from manyheads.config.facts import section, setting
from manyheads.config.inference import InferenceBatch, finished_run


@section()
class LookConfig:
    """All settings of `manyheads look`: one text, a file of texts, or a split of the run's data."""

    run: str = finished_run("to look into")
    text: str = setting("", "one text to look at (a tab between a pair)", verbatim=True, may_be_empty=False)
    input: str = setting(
        "",
        "file of one text a line (tab between a pair), csv, tsv, jsonl or parquet; -: standard input",
        path=True,
        may_be_empty=False,
    )
    split: str = setting("", "validation or test: figures of the heads over the run's data, instead of pages of texts")
    rows: int = setting(0, "most rows of the split, or most texts of input; 0: all", ge=0)
    output: str = setting("", "folder of the pages and figures; empty: <run>/look", path=True)
    layers: str = setting("", "layers to show, counted from 1, such as 2 or 1,3-4; empty: all")
    heads: str = setting("", "heads to show, counted from 1, such as 2 or 1,3-4; empty: all")
    attribution: bool = setting(False, "also say what each token of a text adds to the answer (integrated gradients)")
    seed: int = setting(0, "seed of rows and tokens drawn at random", ge=0, lt=2**32)
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor")
