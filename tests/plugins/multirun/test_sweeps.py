"""Sweeps: what the jobs must not share, and Hydra's own settings, which come from Hydra alone."""

import csv
import logging
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.cli.hydra import every_choice, first_difference
from manyheads.cli.overrides import Typed
from manyheads.cli.verbs import choices
from manyheads.config import DataConfig, ModelConfig, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.config.required import RequirementError
from manyheads.config.sentences import one_of
from manyheads.distributed.signals import Stopped
from manyheads.errors import UserError
from manyheads.plugins.multirun import jobs
from manyheads.plugins.multirun.sweeps import hydra_words, refuse_many_devices, refuse_ranges, score_of, show_jobs
from manyheads.runs.summary import Interval
from tests.core.cli.sweeping import check_sweep

SWEEP = "-m seed=1,2 dry=true debug=fast"
WEIGHTS = "optim.class_weights=balanced,{bank: 2}"


def refusal(line, capsys):
    """The one sentence that a command line ends in; nothing was written."""
    try:
        code = cli.main(line.split())
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1), said.err
    assert "append" not in said.err
    assert list(Path.cwd().iterdir()) == []
    return said.err.rstrip("\n")


def write(folder, files):
    for name, content in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


TOUCH = "{_target_: logging.FileHandler, filename: %s}"
INJECTED = "hydra/job_logging=stdout"
EVIL = {  # ways of a preset to Hydra's settings: files, words, the setting that is named
    "callback": (
        {
            "hydra/callbacks/evil": f"x: {TOUCH}\n",
            "model/evil": "# @package _global_\ndefaults:\n  - override /hydra/callbacks: evil\n",
        },
        f"model=evil {SWEEP}",
        "hydra.callbacks.x",
    ),
    "swept": (
        {"model/evil": f"# @package _global_\nhydra:\n  callbacks:\n    x: {TOUCH}\n"},
        f"model=tiny,evil {SWEEP}",
        "hydra.callbacks.x",
    ),
    "glob": (
        {"model/evil": f"# @package _global_\nhydra:\n  callbacks:\n    x: {TOUCH}\n"},
        f"model=glob(e*) {SWEEP}",
        "hydra.callbacks.x",
    ),
    "package": (
        {"model/evil": f"# @package hydra.callbacks\nx: {TOUCH}\n"},
        f"model=evil {SWEEP}",
        "hydra.callbacks.x",
    ),
    "logging": (
        {
            "experiment/evil": "# @package _global_\n"
            "hydra: {hydra_logging: {handlers: {x: {'()': logging.FileHandler, filename: %s}}}}\n",
        },
        f"experiment=evil {SWEEP}",
        "hydra.hydra_logging.handlers.x",
    ),
    "environment": (
        {"model/evil": "# @package _global_\nhydra: {job: {env_set: {PATH: '%s'}}}\n"},
        f"model=evil {SWEEP}",
        "hydra.job.env_set.PATH",
    ),
    "words": (
        {"model/evil": f"# @package _global_\nhydra: {{overrides: {{hydra: ['{INJECTED}']}}}}\n# %s"},
        f"model=evil {SWEEP}",
        "hydra.overrides.hydra",
    ),
    "launcher": (
        {"hydra/launcher/basic": "_target_: os.getcwd\n# %s"},
        f"model=tiny {SWEEP}",
        "hydra.launcher._target_",
    ),
    "sweeper": (
        {"model/evil": "# @package _global_\nhydra: {sweeper: {params: {+hydra.callbacks.x: '%s'}}}\n"},
        f"model=evil {SWEEP}",
        "hydra.sweeper.params",
    ),
    "plain run": (
        {"model/evil": f"# @package _global_\nhydra: {{callbacks: {{x: {TOUCH}}}}}\n"},
        "model=evil",
        "hydra.callbacks.x",
    ),
    "shown": (
        {"model/evil": f"# @package _global_\nhydra: {{callbacks: {{x: {TOUCH}}}}}\n"},
        "model=evil --cfg job",
        "hydra.callbacks.x",
    ),
}


@pytest.mark.parametrize("name", EVIL)
def test_a_preset_never_sets_hydra_itself(name, calls, capsys, tmp_path, recwarn):
    files, line, key = EVIL[name]
    made = tmp_path / "made"
    theirs = write(tmp_path / "cd", {file: content.replace("%s", str(made)) for file, content in files.items()})
    said = refusal(f"train {line} --config-dir {theirs}", capsys)
    assert said == (
        f"--config-dir {theirs}: a preset in it sets {key}, but presets set a run, never Hydra itself, which would "
        "call whatever they name: remove that"
    )
    assert not calls
    assert not made.exists()
    # garbage of earlier tests may be collected meanwhile, which warns of what they left open
    assert not [one for one in recwarn.list if not issubclass(one.category, ResourceWarning)]


def test_honest_presets_are_swept(calls, tmp_path):
    theirs = write(
        tmp_path / "cd",
        {
            "model/wide": "d_ff: 4096\n",
            "model/wider": "defaults: [wide]\nd_ff: 8192\n",
            "experiment/mine": "# @package _global_\ndefaults:\n  - override /optim: wsd\nseed: 7\n",
        },
    )
    words = ["train", "-m", "model=wide,wider,tiny", "experiment=mine", "--config-dir", str(theirs)]
    assert cli.main(words) == 0
    assert [(one.model.d_ff, one.seed) for one in calls] == [(4096, 7), (8192, 7), (512, 7)]


ONLY = "of Hydra's own settings only hydra/launcher, hydra/sweeper, hydra.sweep.dir and hydra.launcher.KEY are"
TYPED = [
    ("train -m hydra.foo=1", f"hydra.foo=1 is not taken: {ONLY}"),
    (
        "train -m seed=1,2 hydra.job.env_set.PATH=/nope",
        f"hydra.job.env_set.PATH=/nope is not taken: {ONLY}",
    ),
    ("train -m hydra/callbacks=x", f"hydra/callbacks=x is not taken: {ONLY}"),
    ("train -m hydra.sweeper.params={seed:3}", f"hydra.sweeper.params={{seed:3}} is not taken: {ONLY}"),
    ("train -m hydra/launcher=", "hydra/launcher= is not understood: give one name, such as hydra/launcher=basic"),
    (
        "train -m hydra/launcher=a,b",
        "hydra/launcher=a,b is not understood: give one name, such as hydra/launcher=basic",
    ),
    (
        "train -m hydra/launcher=slurm",
        "hydra/launcher=slurm cannot be used (Could not find 'hydra/launcher/slurm'): choose basic",
    ),
    (
        "train -m hydra.launcher.partition=gpu",
        "hydra.launcher.partition=gpu cannot be used (Could not override 'hydra.launcher.partition'): remove it",
    ),
    (
        "train -m hydra.launcher._target_=os.getcwd",
        "hydra.launcher._target_=os.getcwd names code to call, which a setting never may: "
        "remove it, and give parts of your own by plugins=",
    ),
    (
        "train hydra/launcher=basic",
        "hydra/launcher=basic: Hydra's own settings count only with -m: remove it, or add -m",
    ),
    (
        "train -m experiment=paper,null",
        f"experiment=null is not a choice: choose {one_of(choices('train', 'experiment'))}",
    ),
    (
        "train -m optim.lr=interval(0.1,1)",
        "optim.lr=interval(0.1,1) names no values one by one: list them, such as optim.lr=1,2,3",
    ),
]


@pytest.mark.parametrize(("line", "sentence"), TYPED, ids=[line for line, _ in TYPED])
def test_few_of_hydras_own_settings_may_be_typed(line, sentence, calls, capsys):
    said = refusal(line, capsys)
    assert said == sentence or (sentence.endswith(": choose basic") and said.startswith(f"{sentence[:-5]}basic, "))
    assert not calls


def test_the_folder_of_a_sweep_and_its_plugins_may_be_typed(calls):
    words = ["seed=1,2", "hydra.sweep.dir=there", "hydra/launcher=basic", "hydra/sweeper=basic"]
    assert cli.main(["train", "-m", *words]) == 0
    assert [one.seed for one in calls] == [1, 2]
    assert {path.name for path in Path.cwd().iterdir()} == {"there"}


@pytest.mark.parametrize("typed", ["outputs/multirun", "outputs/mine"])
def test_a_file_in_the_place_of_a_sweep_is_refused(typed, calls, capsys):
    Path("outputs").touch()
    own = [] if typed == "outputs/multirun" else [f"hydra.sweep.dir={typed}"]
    assert cli.main(["train", "-m", "seed=1,2", *own]) == 2
    said = f"hydra.sweep.dir={typed}: outputs is a file: name another place by hydra.sweep.dir=\n"
    assert capsys.readouterr().err == said
    assert not calls


@pytest.mark.parametrize("swept", ["seed=1,2", "model=tiny,mini", "output=a,b seed=1,2"])
def test_an_output_for_several_jobs_is_refused_before_the_first(swept, calls, capsys):
    line = f"train -m {swept}" if "output" in swept else f"train -m {swept} output=a"
    assert refusal(line, capsys) == (
        "output=a would be shared by the jobs of -m, but each needs its own: remove it, and name the "
        "folder of them all by hydra.sweep.dir=FOLDER"
    )
    assert not calls


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["model.pooling=first,max", "optim.lr=1e-3"], ["model.pooling=first", "model.pooling=max"]),
        (["data.text=a/b,c"], ["0", "1"]),
        (["seed=1,2", "model=tiny,mini"], [f"model={model},seed={n}" for n in (1, 2) for model in ("tiny", "mini")]),
        (["data.path=a.csv,b.csv", "optim.lr=1e-3"], ["0", "1"]),
        ([WEIGHTS], ["0", "1"]),
        (["seed=3"], ["0"]),
    ],
    ids=str,
)  # fmt: skip
def test_jobs_go_where_the_sweep_goes_and_are_named_by_what_varies(calls, words, names):
    assert cli.main(["train", "-m", "hydra.sweep.dir=there", *words]) == 0
    assert [one.output for one in calls] == [str(Path.cwd() / "there" / name) for name in names]
    assert [path.name for path in Path("there").iterdir()] == ["multirun.yaml"], "empty folders are of no use"


PLAIN = {  # every kind of value as it is typed in a plain run, in as few sweeps as name no setting twice
    "most": [
        *("data.rows=1e3", "model.n_heads=4.0", "optim.lr=1", "optim.eps=1e-06", "batch.tokens=1_000", "seed=0"),
        *("trainer.val_check_interval=0.5", "trainer.max_time=00:01:00:00", "trainer.limit_val_batches=3"),
        *("model.scale=null", "data.split_seed=null", "trainer.gradient_clip_val=null", "experiment=null"),
        *("data.text=no", "data.label='1e3'", 'data.text_pair="a, b"', "data.group=it's"),
        *("data.path=a b; c.csv", "data.cache=~/x=y", "model.pooling=max", "data.on_bad_row=drop"),
        *("guard.nonfinite=raise", "test=false", "linear=TRUE", "optim.class_weights=balanced"),
    ],
    "names": [
        *("trainer.max_time={hours: 2}", "trainer.detect_anomaly=True", "trainer.max_epochs=1e1", "batch.tokens=auto"),
        *("data.cache=", "output=", "data.text_pair=", "data.group=''", "data.revision="),
        "optim.class_weights={no: 1, 010: 2, 1e3: 3, 1_000: 4, 12:30: 5, ~: 6, null: 7, on: 8, y: 9, TRUE: 1.5}",
    ],
    "further names": ['optim.class_weights={\'yes, please\': 2, "a: b": 1, 标签: 1e-2, it\'s so: 3, "caf\\u00e9": 4}'],
    "names without spaces": ["optim.class_weights={joy:2,a:b:1,12:30:4}"],
}


@pytest.mark.parametrize(
    "kind", ["most", "names", *(pytest.param(one, marks=pytest.mark.slow) for one in [*PLAIN][2:])]
)
def test_a_sweep_reads_what_a_plain_run_reads(kind, calls):
    check_sweep(PLAIN[kind], calls)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param("trainer.val_check_interval", ["0.5", "1e2"], marks=pytest.mark.slow),
        pytest.param("trainer.max_time", ["00:01:00:00", "{hours: 2}"], marks=pytest.mark.slow),
        pytest.param("trainer.limit_val_batches", ["1", "1.0"], marks=pytest.mark.slow),
        pytest.param("trainer.detect_anomaly", ["true", "false"], marks=pytest.mark.slow),
        pytest.param("data.rows", ["1e3", "1_500", "20.0"], marks=pytest.mark.slow),
        pytest.param("model.scale", ["null", "1", "0.5"], marks=pytest.mark.slow),
        pytest.param("optim.lr", ["1e-05", "1", "3E-4"], marks=pytest.mark.slow),
        pytest.param("batch.tokens", ["auto", "1e3"], marks=pytest.mark.slow),
        ("data.label", ["no", "010", "12:30", "标签", "'a, b'", "it's"]),
        pytest.param("data.label", ["1e3", "1_000", "'null'", "on"], marks=pytest.mark.slow),
        pytest.param("data.text", ["'a b'", '"c"', "d e"], marks=pytest.mark.slow),
        pytest.param("model.pooling", ["mean", "'max'"], marks=pytest.mark.slow),
        ("optim.class_weights", ["none", "{010: 2, no: 1}", "{'yes, please': 2, null: 1}", "balanced", "{a:1}"]),
    ],
)
def test_each_value_of_a_sweep_is_read_as_if_it_was_typed_alone(name, values, calls):
    words = ["data.path=x.csv"]
    assert cli.main(["train", "-m", *words, f"{name}={','.join(values)}"]) == 0
    plain = [compose("train", [*words, f"{name}={value}"]) for value in values]
    assert [replace(one, output="") for one in calls] == plain


def test_a_text_that_looks_like_an_interpolation_is_a_text_in_a_sweep_too(calls):
    assert cli.main(["predict", "-m", "run=x", "text=${HOME},${oc.env:HOME}"]) == 0
    assert [one.text for one in calls] == ["${HOME}", "${oc.env:HOME}"]


def test_the_last_word_of_a_setting_counts(calls):
    assert cli.main(["train", "-m", "seed=1,2", "seed=3"]) == 0
    assert cli.main(["train", "-m", "seed=3", "seed=1,2"]) == 0
    assert [one.seed for one in calls] == [3, 1, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=1,1"], "seed is given 1 twice: name each value once"),
        (["seed=1,2,1"], "seed is given 1 twice: name each value once"),
        (["optim.lr=1e-3,0.001"], "optim.lr is given 0.001 twice: name each value once"),
        (["model=tiny,mini,tiny"], "model is given tiny twice: name each value once"),
        (["model.pooling=first,first"], "model.pooling is given first twice: name each value once"),
    ],
    ids=str,
)
def test_a_value_given_twice_is_refused_before_the_first_job(words, said, calls, capsys):
    assert refusal(" ".join(["train", "-m", *words]), capsys) == said
    assert not calls


def test_jobs_of_several_seeds_share_their_rows_and_say_so(calls, capsys):
    assert cli.main(["train", "-m", "seed=1,2"]) == 0
    assert [(one.seed, one.data.split_seed) for one in calls] == [(1, 1), (2, 1)]
    said = capsys.readouterr().err
    assert said.startswith("seeds vary: rows held out for validation and test are those of seed 1 in every job")
    calls.clear()
    assert cli.main(["train", "-m", "seed=1,2", "data.split_seed=7"]) == 0
    assert cli.main(["train", "-m", "seed=1,2", "data.split_seed=null"]) == 0
    assert [one.data.split_seed for one in calls] == [7, 7, None, None]
    assert "seeds vary" not in capsys.readouterr().err


def test_what_libraries_note_by_the_way_is_not_shown(calls, capsys):
    root = logging.getLogger()
    before = root.level, [*root.handlers]
    assert cli.main(["train", "-m", "seed=1,2"]) == 0
    assert capsys.readouterr().err.count("[HYDRA]") == 3
    assert (root.level, [*root.handlers]) == before


def test_it_ends_with_one_table(calls, capsys, monkeypatch):
    def figure(value):
        return {"accuracy": SimpleNamespace(value=value, low=value - 0.1, high=value + 0.1)}

    def train(verb, config):
        return SimpleNamespace(
            output=config.output, best={"metric": "accuracy"}, validation=figure(0.5 + config.seed / 10),
            test=figure(0.6), steps=1200, wall_seconds=90.0, members={}, linear=0.0,
        )  # fmt: skip

    monkeypatch.setattr(cli, "call", train)
    assert cli.main(["train", "-m", "seed=1,2", "hydra.sweep.dir=there"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["2", "runs", "in", "there"]
    assert ["seed=1", "0.6000", "0.500-0.700", "0.6000", "0.500-0.700", "1,200", "1.5"] in lines
    assert ["seed=2", "0.7000", "0.600-0.800", "0.6000", "0.500-0.700", "1,200", "1.5"] in lines


def plugin(name):
    is_missing = find_spec("hydra_plugins") is None or find_spec(f"hydra_plugins.{name}") is None
    return pytest.mark.skipif(is_missing, reason="manyheads[launch] is not installed")


@pytest.fixture
def told(tmp_path):
    """`told(*words)`: a sweep of two seeds in a process of its own, in a folder with data."""
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(64)]
        csv.writer(file).writerows([("text", "label"), *rows])
    environment = os.environ | {"MANYHEADS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    def run(*words, **more):
        command = [sys.executable, "-m", "manyheads", *words, "debug=fast", "hardware=cpu", "seed=1,2"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment | more, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.mark.slow
@plugin("hydra_joblib_launcher")
@plugin("hydra_submitit_launcher")
@pytest.mark.parametrize("name", ["joblib", "submitit_local"])
def test_a_launcher_of_hydra_trains_the_same_runs_and_says_the_same_sentences(name, told, tmp_path):
    words = ["train", "-m", "data.path=rows.csv"]
    assert told(*words, "hydra.sweep.dir=here").returncode == 0
    there = told(*words, "hydra.sweep.dir=there", f"hydra/launcher={name}")
    assert there.returncode == 0, there.stderr
    for seed in ("seed=1", "seed=2"):
        one, other = (tmp_path / folder / seed / "model" / "model.safetensors" for folder in ("here", "there"))
        assert one.read_bytes() == other.read_bytes()
    assert "2 runs in there" in there.stdout
    missing = told("train", "-m", "data.path=nowhere.csv", "hydra.sweep.dir=no", f"hydra/launcher={name}")
    assert (missing.returncode, "Traceback" in missing.stderr) == (2, False)
    assert "nowhere.csv does not exist" in missing.stderr.splitlines()[-1]
    killed = told(*words, "hydra.sweep.dir=gone", f"hydra/launcher={name}", MANYHEADS_FAULT="step:2:kill")
    assert killed.returncode, "the launcher says in its own words that a job is lost"
    again = told(*words, "hydra.sweep.dir=gone", f"hydra/launcher={name}", "resume=auto")
    assert again.returncode == 0, again.stderr


def test_a_bug_of_a_job_elsewhere_shows_its_traceback_there(monkeypatch, capsys):
    def broken(verb, config):
        raise KeyError("bug")

    monkeypatch.setattr(cli, "call", broken)
    with pytest.raises(KeyError):
        jobs.one_of_many("train", os.getpid(), RunConfig)
    assert capsys.readouterr().err == ""
    with pytest.raises(KeyError):
        jobs.one_of_many("train", 0, RunConfig)
    assert "in broken" in capsys.readouterr().err


def test_a_job_gives_its_metric_to_hydras_sweepers():
    both, network = ({"loss": SimpleNamespace(value=value)} for value in (0.25, 0.5))
    summary = SimpleNamespace(best={"metric": "loss"}, validation=both, members={})
    score = pickle.loads(pickle.dumps(score_of(RunConfig(seed=3), summary, "")))
    assert (score, score.summary, score.run.seed) == (0.25, summary, 3)
    summary.members = {"validation": {"both": both, "network": network}}
    assert score_of(RunConfig(), summary, "") == 0.5, "the network's own"


def job(run: RunConfig, both: float, network: float, share: float) -> float:
    figures = {"both": both, "network": network, "linear model": 0.9}
    members = {
        split: {name: {"accuracy": Interval(value, value - 0.1, value + 0.1)} for name, value in figures.items()}
        for split in ("validation", "test")
    }
    shipped = {split: of["both"] for split, of in members.items()}
    about = {"output": f"/x/{run.seed}-{run.model.n_heads}", "best": {"metric": "accuracy"}, "members": members}
    return score_of(run, SimpleNamespace(**about, **shipped, steps=3, wall_seconds=60.0, linear=share), "")


def test_the_table_of_jobs_shows_what_varies_and_names_whose_figure_it_is(capsys):
    """The linear model may have all of the answers, whatever the heads do."""
    heads = [RunConfig(model=ModelConfig(n_heads=n)) for n in (2, 4)]
    show_jobs([job(heads[0], 0.9, 0.25, 1.0), job(heads[1], 0.9, 0.375, 0.6)])
    said = capsys.readouterr().out
    assert all(figure in said for figure in ("0.2500", "0.3750"))
    assert "0.9000" not in said
    note = (
        "Figures of the network alone, whose settings vary; the linear model has a weight of 60% to 100% in each answer"
    )
    assert note in " ".join(said.split())
    show_jobs([job(RunConfig(data=DataConfig(rows=n)), 0.9, 0.25, 1.0) for n in (100, 200)])
    said = capsys.readouterr().out
    assert said.count("0.9000") == 4
    assert " both " in said
    assert "0.2500" not in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(141), "a job of the sweep ended with exit code 141"),
        (Stopped("SIGTERM", 143), "a job of the sweep ended with exit code 143"),
        (FileNotFoundError(2, "", "x"), "x does not"),
    ],
)
def test_what_ends_a_job_elsewhere_is_told_to_the_sweep(error, said, monkeypatch):
    def fail(verb, config):
        raise error

    monkeypatch.setattr(cli, "call", fail)
    monkeypatch.setattr(jobs, "user_sentence", lambda error: "x does not exist")
    with pytest.raises(UserError, match=said):
        jobs.one_of_many("train", 0, RunConfig)
    with pytest.raises(SystemExit):
        jobs.one_of_many("train", os.getpid(), RunConfig)


def test_an_output_for_each_job_is_taken(calls):
    assert cli.main(["train", "-m", "output=a,b"]) == 0
    assert cli.main(["train", "-m", "output=c", "seed=3"]) == 0
    assert [Path(one.output).name for one in calls] == ["a", "b", "c"]
    assert cli.main(["predict", "-m", "run=a,b", "text=x", "output=-"]) == 0
    assert [one.output for one in calls[3:]] == ["-", "-"]
    assert cli.main(["runs", "-m", "folder=a,b"]) == 0
    assert [Path(one.folder).name for one in calls[5:]] == ["a", "b"]


def test_a_reader_that_leaves_ends_a_sweep_too(calls, monkeypatch):
    def leave(verb, config):
        raise BrokenPipeError

    monkeypatch.setattr(cli, "call", leave)
    monkeypatch.setattr(cli, "reader_left", lambda: 141)
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "-m", "seed=1,2"])
    assert stop.value.code == 141


def test_every_choice_of_presets_is_looked_at():
    typed = Typed(groups={"data": "demo", "model": "a"}, swept_groups={"model": ["a", "b"], "experiment": [None, "x"]})
    every = every_choice("train", typed)
    assert {(one["model"], one["experiment"]) for one in every} == {
        (model, experiment) for model in ("a", "b", "tiny") for experiment in (None, "x")
    }
    assert {one["data"] for one in every} == {"demo"}


def test_hydras_words_are_those_typed_and_a_quiet_rest():
    typed = Typed(words=["seed=1,2", "hydra.sweep.dir=x", "hydra/launcher=basic"])
    assert hydra_words(typed) == [
        "hydra.sweep.dir=x",
        "hydra/launcher=basic",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]


def test_a_difference_is_named_by_its_keys():
    assert first_difference({"a": {"b": [1]}}, {"a": {"b": [1]}}, "x") is None
    assert first_difference({"a": {"b": [1], "c": 0}}, {"a": {"b": [1], "c": 1}}, "x") == "x.a.c"
    assert first_difference({"a": {}}, {"a": {"b": None}}, "x") == "x.a.b"
    assert first_difference({"a": 1, "b": 2}, {"a": 1}, "x") == "x.b"
    assert first_difference({"a": [1]}, {"a": {"b": 1}}, "x") == "x.a"


def test_several_machines_are_refused_and_ranges_are_left_to_a_sweeper_of_ones_own():
    with pytest.raises(ValueError, match=r"hardware\.nodes=2 is refused under -m"):
        refuse_many_devices(replace_settings(RunConfig(), {"hardware.nodes": 2}))
    refuse_ranges(Typed(swept={"seed": "interval(1, 3)"}, words=["hydra/sweeper=optuna"]))


def test_what_is_typed_is_put_back():
    before = list(sys.argv)
    with pytest.raises(ValueError, match="is not taken"):
        jobs.sweep("train", ["hydra.foo=1"], lambda make: None)
    assert sys.argv == before


def test_every_run_of_a_sweep_begins_with_the_weights(model_folder, tmp_path):
    made = []
    words = [f"init_from={model_folder}", "optim.lr=1e-4,2e-4", f"hydra.sweep.dir={tmp_path}"]
    jobs.sweep("train", words, lambda make: made.append(make()))
    assert [(run.optim.lr, run.model.d_v, run.tokenizer.path) for run in made] == [
        (lr, 6, str(model_folder / "model" / "tokenizer.json")) for lr in (1e-4, 2e-4)
    ]


def test_what_was_typed_stands_in_every_run_of_a_sweep(model_folder, tmp_path):
    """What the weights bring must not take its place: a sweep over it would run the same thing again and again."""
    made = []
    words = [f"init_from={model_folder}", "model.pooling=first,max", "model.dropout=0.3", "data.max_length=40"]
    words += ["model.positions=sinusoidal", f"hydra.sweep.dir={tmp_path}"]
    jobs.sweep("train", words, lambda make: made.append(make()))
    typed = [words[0], "model.dropout=0.3", *words[3:5]]
    alone = [compose("train", [*typed, f"model.pooling={one}"]) for one in ("first", "max")]
    assert [replace(run, output="") for run in made] == alone


def test_a_job_whose_figure_is_missed_has_its_score_too(monkeypatch):
    def missed(verb, config):
        error = RequirementError("accuracy>1 is not met")
        error.summary = SimpleNamespace(
            best={"metric": "loss"}, validation={"loss": Interval(0.25, 0.1, 0.5)}, members={}
        )
        raise error

    monkeypatch.setattr(cli, "call", missed)
    score = jobs.one_of_many("train", os.getpid(), RunConfig)
    assert (score, score.missed) == (0.25, "accuracy>1 is not met")


def test_a_sweep_runs_every_value(calls):
    assert cli.main(["train", "-m", "model.n_heads=2,4", "model=tiny,mini", "data.path=a b"]) == 0
    assert [(one.model.n_heads, one.model.n_layers) for one in calls] == [(2, 2), (2, 4), (4, 2), (4, 4)]
    assert {one.data.path for one in calls} == {str(Path.cwd() / "a b")}
    assert {path.name for path in Path.cwd().iterdir()} == {"outputs"}


def test_a_sweep_prints_what_its_jobs_print_and_no_more(bare, tmp_path):
    body = "from manyheads.cli import main as cli\ncli.call = lambda verb, config: print(config.text)\n"
    body += "raise SystemExit(cli.main(['predict', '-m', 'run=x', 'text=a,b']))"
    said = bare.run("-c", body, cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "a\nb\n")
    assert said.stderr.count("[HYDRA]") == 3


MISTAKES = [
    ("train model.d_k=4,3 model.positions=none,rotary", "model.d_k=3 is odd"),
    ("predict run=x batch.tokens=512,1024 hardware.devices=2", "remove it"),
    ("train --cfg job seed=1,2", "-m --cfg: -m, --cfg and --info each do one thing: give one of them"),
    ("train seed=1,-2", "at least 0 and below 4294967296"),
    ("train model=tiny,bse", one_of(choices("train", "model"))),
    ("train seed=1,2 +model.bias=0", "write model.bias=0"),
    ("train data.path= seed=1,2", "data.path= is empty: write data.path=VALUE, or remove it"),
    ("evaluate run=x data.rows=5,6", "data.rows=5 does nothing here, where evaluate reads the run's own data"),
    ("train seed=1,2 model.n_layers=0", "model.n_layers=0 is out of range"),
]


@pytest.mark.parametrize(("line", "said"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_in_one_job_ends_the_sweep(line, said, calls, capsys):
    verb, *words = line.split()
    try:
        code = cli.main([verb, "-m", *words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert len(calls) == (3 if "rotary" in line else 0), "those before the first that is wrong"


def test_a_flag_that_is_nearly_this_one(capsys):
    assert cli.main(["train", "--multrun"]) == 2
    assert "did you mean --multirun?" in capsys.readouterr().err
