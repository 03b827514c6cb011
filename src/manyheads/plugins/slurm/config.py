"""Settings of the script for `sbatch`. Standard library only."""

import re

from manyheads.config.facts import require, section, setting
from manyheads.config.sentences import format_value

OURS = {  # options of sbatch that the script of a job sets itself, and by which setting
    "--nodes": "hardware.nodes",
    "--ntasks": "hardware.devices",
    "--ntasks-per-node": "hardware.devices",
    "--time": "slurm.time",
    "--partition": "slurm.partition",
    "--account": "slurm.account",
    "--output": "output",
    "--array": "one line for each run",
}
TIME = re.compile(r"\d+(:\d\d?){0,2}|\d+-\d\d?(:\d\d?){0,2}", re.ASCII)
NAME = re.compile(r"[\w.,-]*", re.ASCII)
OPTION = re.compile(r"--[a-z][a-z-]*[a-z](=[\w.,:;/+*@%|&()\[\]=-]+)?", re.ASCII)


@section("slurm.")
class SlurmConfig:
    """A script for `sbatch`. hardware.nodes and hardware.devices say how many machines, and tasks on each."""

    script: bool = setting(
        False, "write <output>/job.sbatch and stop there, unless within a job: hardware=slurm sets it", needs=""
    )
    time: str = setting("", "longest time of the job, such as 90 (minutes), 12:00:00 or 2-00; empty: the partition's")
    partition: str = setting("", "partition, or several with commas; empty: the cluster's usual one")
    account: str = setting("", "account that is charged; empty: the usual one")
    options: str = setting("", 'other options of sbatch, spaces between them, such as "--gres=gpu:4 --mem=64G"')

    def __post_init__(self) -> None:
        require(
            not self.time or TIME.fullmatch(self.time) is not None,
            f"slurm.time={format_value(self.time)} is not a time of SLURM: write minutes, hours:minutes:seconds or "
            "days-hours, such as slurm.time=12:00:00",
        )
        for name in ("partition", "account"):
            value = getattr(self, name)
            require(
                NAME.fullmatch(value) is not None,
                f"slurm.{name}={format_value(value)} is not a name: it may hold letters, digits and the signs . , _ "
                "and -",
            )
        for option in self.options.split(" "):
            require(
                not option or OPTION.fullmatch(option) is not None,
                f"slurm.options: {format_value(option)} is not an option of sbatch: write --name=value without quotes "
                "or spaces in it, such as --gres=gpu:4",
            )
            name = option.partition("=")[0]
            require(name not in OURS, f"slurm.options: {option} is set by {OURS.get(name)}: use that and remove it")


@section("slurm.")
class ArrayConfig(SlurmConfig):
    """The script of an array of jobs, one machine each, which share a search or a comparison."""

    tasks: int = setting(4, "jobs of the array", ge=1, le=1000)
