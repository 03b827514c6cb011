"""The job that `hardware=slurm` writes for a SLURM queue."""

import re
from dataclasses import dataclass

from manyheads.config.knobs import check_ranges, knob, require
from manyheads.config.plain import show

OURS = {  # what the script sets itself, and by which setting
    "--nodes": "hardware.nodes",
    "--ntasks": "hardware.devices",
    "--ntasks-per-node": "hardware.devices",
    "--time": "slurm.time",
    "--partition": "slurm.partition",
    "--account": "slurm.account",
    "--output": "output",
    "--array": "one line for each run",
}
_TIME = re.compile(r"\d+(:\d\d?){0,2}|\d+-\d\d?(:\d\d?){0,2}", re.ASCII)
_NAME = re.compile(r"[\w.,-]*", re.ASCII)
_OPTION = re.compile(r"--[a-z][a-z-]*[a-z](=[\w.,:;/+*@%|&()\[\]=-]+)?", re.ASCII)


@dataclass(kw_only=True, slots=True)
class SlurmConfig:
    """A script for `sbatch`. hardware.nodes and hardware.devices say how many machines, and tasks on each."""

    script: bool = knob(False, "write <output>/job.sbatch and stop there, unless within a job: hardware=slurm sets it")
    time: str = knob("", "longest time of the job, such as 90 (minutes), 12:00:00 or 2-00; empty: the partition's")
    partition: str = knob("", "partition, or several with commas; empty: the cluster's usual one")
    account: str = knob("", "account that is charged; empty: the usual one")
    options: str = knob("", 'other options of sbatch, spaces between them, such as "--gres=gpu:4 --mem=64G"')

    def __post_init__(self) -> None:
        check_ranges(self, "slurm.")
        require(
            not self.time or _TIME.fullmatch(self.time) is not None,
            f"slurm.time={show(self.time)} is not a time of SLURM: write minutes, hours:minutes:seconds or days-hours, "
            "such as slurm.time=12:00:00",
        )
        for name in ("partition", "account"):
            value = getattr(self, name)
            require(
                _NAME.fullmatch(value) is not None,
                f"slurm.{name}={show(value)} is not a name: it may hold letters, digits and the signs . , _ and -",
            )
        for one in self.options.split(" "):
            name = one.partition("=")[0]
            require(
                not one or _OPTION.fullmatch(one) is not None,
                f"slurm.options: {show(one)} is not an option of sbatch: write --name=value without quotes or spaces "
                "in it, such as --gres=gpu:4",
            )
            require(name not in OURS, f"slurm.options: {one} is set by {OURS.get(name)}: use that and leave it away")
