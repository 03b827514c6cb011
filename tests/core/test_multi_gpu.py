"""docs/multi-gpu.md is read: each command is taken apart and its settings composed; what needs no GPU runs (slow)."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.cli.compose import compose
from manyheads.config import RunConfig
from manyheads.distributed import launch
from manyheads.distributed.launch import n_to_start

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "multi-gpu.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in re.findall(r"(?m)^ {4}\S.*$", TEXT)]
SPANS = re.findall(r"`([^`]+)`", TEXT)
CPU = ["debug=fast", "hardware.accelerator=cpu"]


def parted(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables set before a command, and its words."""
    words = shlex.split(command)
    first = next(at for at, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def launched(words: list[str]) -> tuple[list[str], list[str]]:
    """What torchrun or srun is told, and what each process is."""
    at = next(at for at, word in enumerate(words[1:], 1) if not word.startswith("-") or word == "-m")
    return words[1:at], words[at:]


def settings_of(program: list[str]) -> tuple[str, list[str]]:
    """The verb and its words, by any of the doors."""
    doors = {"scripts/train.py": ["train"], "-m": program[2:3], "manyheads": program[1:2]}
    (verb,) = doors[program[0]]
    if program[0] == "-m":
        assert program[1] == "manyheads"
    return verb, program[{"scripts/train.py": 1, "-m": 3, "manyheads": 2}[program[0]] :]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    variables, words = parted(command)
    if words[0] in ("torchrun", "srun"):
        flags, words = launched(words)
        assert all(flag.startswith("--") for flag in flags)
    verb, words = settings_of(words)
    config = compose(verb, words)
    for name, _, value in (word.partition("=") for word in words):
        section, _, key = name.rpartition(".")
        found = getattr(getattr(config, section), key, None) if section else value
        assert str(getattr(found, "name", found)) in (value, str(tmp_path / value)), name
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "_n_gpus", lambda: 8)
    assert not variables or n_to_start(config.hardware) == config.hardware.devices


def test_torchrun_knows_its_flags():
    from torch.distributed.run import get_args_parser

    for command in COMMANDS:
        if command.startswith("torchrun "):
            known = get_args_parser().parse_args(shlex.split(command)[1:])
            assert "--" not in known.training_script
            assert (ROOT / known.training_script).is_file() != known.module


@pytest.mark.parametrize("span", [span for span in SPANS if re.match(r"[a-z_]+(\.[a-z_0-9]+)*=\S", span)])
def test_settings_in_the_text_compose(span):
    words = shlex.split(span)
    assert isinstance(compose("train", words), RunConfig)


def test_files_and_tests_that_are_named_exist():
    for span in SPANS:
        if re.fullmatch(r"(tests|scripts|docs|src)/\S+", span):
            assert (ROOT / span).exists(), span


COMPUTED = re.findall(r"(?m)^\| (\d+) x ([\d,]+) \|(.*)\|$", TEXT)


@pytest.mark.parametrize("row", COMPUTED)
def test_figures_of_many_gpus_follow_from_the_formulas_beside_them(row):
    n_layers, d_model = (int(one.replace(",", "")) for one in row[:2])
    cells = [cell.strip() for cell in row[2].split("|")]
    n_gpus = int(cells[2].replace(",", ""))
    matrices = n_layers * (4 * d_model**2 + 2 * d_model * 4 * d_model)
    parameters = matrices + 30_522 * d_model
    step = 6 * matrices * 16_384 / (0.4 * 989e12) * 1e3
    sent = 2 * (n_gpus - 1) / n_gpus * 4 * parameters * 1e3
    ring = sent / (450e9 if n_gpus <= 8 else 50e9)
    assert cells == [
        f"{parameters / 1e6:,.0f} M", f"{16 * parameters / 1e9:.1f} GB", f"{n_gpus:,}", f"{step:.0f} ms",
        f"{ring:.1f} ms", "yes" if ring <= step * 2 / 3 else "no", f"{sent / 1.25e9:,.0f} ms",
    ]  # fmt: skip
    assert len(COMPUTED) == 9


@pytest.mark.slow
def test_what_needs_no_gpu_runs(tmp_path):
    """In the order in which they stand there, with two processes, each in the folder of a reader."""
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        rows = [(f"{n} {('dull', 'fine', 'great')[n % 3]}", (1, 3, 5)[n % 3]) for n in range(60)]
        csv.writer(file).writerows([("review", "stars"), *rows])
    (tmp_path / "lines.txt").write_text("great\ndull\nfine\n")
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    environment = os.environ | {"MANYHEADS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    doors = {
        "manyheads": [sys.executable, "-m", "manyheads"],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    }
    done = 0
    for command in COMMANDS:
        words = re.sub(r"--nproc-per-node=\d+", "--nproc-per-node=2", command).split()
        alone = words[0] == "manyheads" and "hardware.devices=2" in words
        if not alone and words[:2] != ["torchrun", "--standalone"]:
            continue
        more = CPU if words[1] == "train" or words[0] == "torchrun" else CPU[1:]
        run = subprocess.run(
            [*doors[words[0]], *words[1:], *more],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, f"{command}\n{run.stderr}"
        done += 1
    assert done == 6
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) == 3
    assert len(list(tmp_path.glob("outputs/*/summary.json"))) == 4
