"""hardware=slurm: the script that is written, what it does when it runs, and what it is never made of.

The script is run here by bash with an srun of our own; test_queue.py hands it to a real SLURM.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.cli.verbs import VERBS
from manyheads.config import Resume, RunConfig
from manyheads.config.facts import settings
from manyheads.plugins.slurm.config import ArrayConfig, SlurmConfig
from manyheads.plugins.slurm.script import is_for_the_queue
from manyheads.runs.resume import find_start, resume_policy
from manyheads.training_run import train
from tests.registry import SWEEPS

FAKE_SRUN = """#!/bin/bash
printf '%s\\0' "$@" >> "$RECORD/srun"
pwd > "$RECORD/pwd"
read -r code < "$RECORD/codes"
sed -i 1d "$RECORD/codes"
exit "$code"
"""


@pytest.fixture(autouse=True)
def _outside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "")
    monkeypatch.delenv("SLURM_JOB_ID")


def written(capsys, *words: str) -> Path:
    """The script of a command line, as the line that was printed names it."""
    assert cli.main(["train", "hardware=slurm", *words]) == 0
    said = capsys.readouterr()
    program, script = shlex.split(said.out)
    assert (program, said.err) == ("sbatch", "")
    return Path(script)


def test_a_program_reads_the_line_as_a_document(capsys):
    assert cli.main(["train", "hardware=slurm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).startswith("sbatch ")


def asked(script: Path) -> list[str]:
    """What the script asks of SLURM, which reads it up to the first line that is none of its own."""
    first, *lines = script.read_text().splitlines()
    assert first == "#!/bin/bash"
    options = lines[: lines.index("")]
    assert all(line.startswith("#SBATCH --") for line in options)
    return [line.removeprefix("#SBATCH ") for line in options]


def test_the_script_asks_for_what_the_settings_say(tmp_path, capsys):
    script = written(
        capsys, "hardware.devices=4", "hardware.nodes=2", "hardware.accelerator=gpu", "hardware.threads=8",
        "slurm.time=1-12:00:00", "slurm.partition=a100,h100", "slurm.account=nlp-lab", "output=runs/my run",
        "slurm.options=--mem=64G --exclusive",
    )  # fmt: skip
    assert script == tmp_path / "runs" / "my run" / "job.sbatch"
    assert asked(script) == [
        "--mem=64G", "--exclusive", "--signal=USR1@90", "--gpus-per-node=4", "--job-name=my_run", "--nodes=2",
        "--ntasks-per-node=4",
        "--time=1-12:00:00", "--partition=a100,h100", "--account=nlp-lab", "--cpus-per-task=8",
        f'--output="{tmp_path}/runs/my run/slurm-%j.out"', "--open-mode=append", "--requeue",
    ]  # fmt: skip
    own = written(capsys, "hardware.accelerator=gpu", "slurm.options=--gres=gpu:h100:1 --signal=USR1@600", "output=own")
    assert [one for one in asked(own) if "gpu" in one or "signal" in one] == ["--gres=gpu:h100:1", "--signal=USR1@600"]
    bare = written(capsys)
    assert bare.parent.parent == tmp_path / "outputs"
    assert {one.partition("=")[0] for one in asked(bare)} == {
        "--job-name", "--nodes", "--ntasks-per-node", "--output", "--open-mode", "--signal", "--requeue",
    }  # fmt: skip


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """`queue(script, *codes)`: its own code where its steps end with these codes, and what it told scontrol."""
    (tmp_path / "bin").mkdir()
    for name, body in (("srun", FAKE_SRUN), ("scontrol", '#!/bin/bash\necho "$@" >> "$RECORD/scontrol"\n')):
        (tmp_path / "bin" / name).write_text(body)
        (tmp_path / "bin" / name).chmod(0o755)
    record = tmp_path / "record"
    record.mkdir()
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "RECORD": str(record)}
    environment["SLURM_JOB_ID"] = "7"

    def run(script: Path, *codes: int) -> tuple[int, str]:
        for name in ("srun", "scontrol"):
            (record / name).write_text("")
        (record / "codes").write_text("".join(f"{code}\n" for code in codes))
        done = subprocess.run(["bash", str(script)], cwd="/", env=environment, capture_output=True, timeout=60)
        assert (record / "codes").read_text() == "", "every step was run"
        assert done.stderr == b""
        return done.returncode, (record / "scontrol").read_text()

    return run


def test_the_words_arrive_as_they_were_typed(tmp_path, capsys, queue):
    words = ['data.path=it\'s; a $HOME "file".csv', "data.text=new\nline", "optim.lr=1e-3"]
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "own.yaml").write_text("n_layers: 1\n")
    folder = tmp_path / "run"
    script = written(capsys, "--config-dir", "mine", "output=run", *words, "resume=must")
    assert queue(script, 0) == (0, "")
    python, *given = (tmp_path / "record" / "srun").read_bytes().rstrip(b"\0").decode().split("\0")
    assert python == sys.executable
    assert given == [
        "-m", "manyheads", "train", "--config-dir", "mine", "hardware=slurm", *words,
        f"output={folder}", "resume=auto",
    ]  # fmt: skip
    assert (tmp_path / "record" / "pwd").read_text() == f"{tmp_path}\n", "relative paths keep their meaning"


@pytest.mark.parametrize("code", [0, 1, 2, 124, 130, 143])
def test_a_job_that_is_done_or_failed_is_not_put_back(code, capsys, queue):
    assert queue(written(capsys), code) == (code, "")


def test_a_job_that_was_signalled_is_put_back_and_one_that_asks_begins_again(capsys, queue):
    script = written(capsys)
    assert queue(script, 138) == (138, "requeue 7\n")
    assert queue(script, 75, 75, 0) == (0, "")
    assert queue(script, 75, 138) == (138, "requeue 7\n")
    assert queue(script, *[75] * 20) == (75, ""), "it is not tried for ever"


@pytest.mark.skipif("pretrain" not in VERBS, reason="needs the verb pretrain")
def test_a_pretraining_is_begun_again_as_one(capsys):
    assert cli.main(["pretrain", "hardware=slurm", "budget=1Mtok"]) == 0
    _, script = shlex.split(capsys.readouterr().out)
    (command,) = [line for line in Path(script).read_text().splitlines() if " -m manyheads " in line]
    words = shlex.split(command)
    assert words[words.index("manyheads") + 1] == "pretrain"
    assert "budget=1Mtok" in words


def test_a_folder_of_a_script_and_logs_is_where_a_run_begins(tmp_path, capsys):
    folder = written(capsys, "output=run").parent
    (folder / "slurm-7.out").touch()
    run = RunConfig(output=str(folder), resume=Resume.auto)
    assert find_start(run).checkpoint is None
    (folder / "notes.txt").touch()
    with pytest.raises(ValueError, match="holds no run"):
        find_start(run)


def test_a_run_that_has_begun_is_queued_again_by_its_folder(tmp_path, capsys, queue):
    folder = written(capsys, "output=run").parent
    assert cli.main(["train", "hardware=slurm", "output=run", "hardware.devices=2"]) == 2
    assert "is not empty" in capsys.readouterr().err
    again = written(capsys, "output=run", "hardware.devices=2", "resume=auto")
    assert again == folder / "job.sbatch"
    assert "--ntasks-per-node=2" in asked(again)


def test_torch_is_not_imported_and_nothing_else_is_written(tmp_path):
    line = "import sys; from manyheads.cli.main import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    words = [sys.executable, "-c", line, "train", "hardware=slurm", "output=run"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "job.sbatch"]


def test_within_a_job_and_in_a_dry_run_nothing_is_written(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append(config.slurm.script))
    assert cli.main(["train", "hardware=slurm", "dry=true"]) == 0
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert cli.main(["train", "hardware=slurm"]) == 0
    assert seen == [True, True]
    assert list(tmp_path.iterdir()) == []
    assert not is_for_the_queue(RunConfig())


def test_a_call_from_python_has_no_words_to_write_down(tmp_path):
    with pytest.raises(
        ValueError, match=r"^hardware=slurm writes down a command line, which a call from Python is not"
    ):
        train(compose("train", ["hardware=slurm"]))
    assert list(tmp_path.iterdir()) == []


def test_a_section_that_widens_another_has_its_rules():
    with pytest.raises(ValueError, match=r"slurm\.time=soon is not a time of SLURM"):
        ArrayConfig(time="soon")


def test_another_job_is_free_for_a_run_that_is_resumed():
    assert {resume_policy(name) for name in settings(RunConfig) if name.startswith("slurm.")} == {"free"}


@SWEEPS
def test_under_multirun_nothing_is_written(tmp_path, capsys):
    assert cli.main(["train", "-m", "seed=1,2", "hardware=slurm"]) == 2
    assert capsys.readouterr().err == (
        "hardware=slurm is refused under -m, which writes no script: start each run alone, such as "
        "`for n in 2 4; do manyheads train model.n_heads=$n hardware=slurm; done`\n"
    )
    assert list(tmp_path.iterdir()) == []


PAGE = (Path(__file__).parents[3] / "docs" / "slurm.md").read_text(encoding="utf-8")
PROSE, FENCES = re.sub(r"(?ms)^```.*?^```\n", "", PAGE), re.findall(r"(?ms)^```(\w*)\n(.*?)^```\n", PAGE)
COMMANDS = [line.strip() for line in re.findall(r"(?m)^ {4}\S.*$", PROSE)]
SPANS = [one for one in re.findall(r"`([^`]+)`", PROSE) if re.match(r"[a-z_]+(\.[a-z_0-9]+)*=\S", one)]


@pytest.mark.parametrize("words", [*COMMANDS, *SPANS])
def test_what_the_page_says_composes(words):
    _, _, typed = words.rpartition("manyheads train ")
    more = ["hardware=slurm"] if "slurm." in typed else []
    assert isinstance(compose("train", [*shlex.split(typed), *more]), RunConfig)


def test_the_script_is_the_one_that_is_written(tmp_path, capsys):
    assert cli.main(shlex.split(COMMANDS[0])[1:]) == 0
    (script,) = tmp_path.rglob("job.sbatch")
    said = capsys.readouterr().out
    assert said == f"sbatch {script}\n"
    text = script.read_text().replace(sys.executable, "/home/you/work/.venv/bin/python")
    expected = [(kind, one.replace(str(tmp_path), "/home/you/work")) for kind, one in (("text", said), ("bash", text))]
    assert expected == FENCES


MISTAKES = [
    (
        "slurm.time=soon",
        "slurm.time=soon is not a time of SLURM: write minutes, hours:minutes:seconds or days-hours, such as "
        "slurm.time=12:00:00",
    ),
    ("slurm.partition=a b", "slurm.partition=a b is not a name: it may hold letters, digits and the signs . , _ and -"),
    (
        "slurm.options=gpu:4",
        "slurm.options: gpu:4 is not an option of sbatch: write --name=value without quotes or spaces in it, such as "
        "--gres=gpu:4",
    ),
    ("slurm.options=--time=5", "slurm.options: --time=5 is set by slurm.time: use that and remove it"),
    (
        "hardware.devices=0",
        "hardware.devices=0 takes all GPUs of this machine, but a job runs on others: say how many each has, such as "
        "hardware.devices=4",
    ),
    (
        "output=/a/100%",
        "output=/a/100% cannot be written in a script of SLURM: use letters, digits, spaces and the signs "
        "/ . , : + = @ ~ _ - alone",
    ),
]


@pytest.mark.parametrize(("word", "sentence"), MISTAKES, ids=[word for word, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_nothing_is_written(word, sentence, tmp_path, capsys):
    assert cli.main(["train", "hardware=slurm", word]) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")
    assert list(tmp_path.iterdir()) == []


def test_settings_of_a_job_without_a_job_and_other_verbs_are_refused(capsys):
    assert cli.main(["train", "slurm.time=60"]) == 2
    assert capsys.readouterr().err == "slurm.time=60 does nothing without hardware=slurm: add that, or remove it\n"
    assert cli.main(["evaluate", "run=x", "hardware=slurm"]) == 2
    assert capsys.readouterr().err.startswith("hardware=slurm is a job of training: choose ")


@pytest.mark.skipif("tune" not in VERBS, reason="needs the verb tune")
def test_a_search_is_an_array_of_the_same_words(tmp_path, capsys):
    """Its jobs share a folder and a storage, which is added unless one was named."""
    words = ["optim.lr=1e-3,3e-3", "slurm.tasks=3", "jobs=2", "hardware.accelerator=gpu", "hardware.threads=3"]
    assert cli.main(["tune", "hardware=slurm", *words, "output=search"]) == 0
    script = Path(shlex.split(capsys.readouterr().out)[1])
    folder = tmp_path / "search"
    assert script == folder / "job.sbatch"
    assert asked(script) == [
        "--signal=USR1@90", "--gpus-per-node=2", "--job-name=search", "--nodes=1", "--ntasks-per-node=1",
        "--array=1-3", "--cpus-per-task=6", f'--output="{folder}/slurm-%A_%a.out"', "--open-mode=append", "--requeue",
    ]  # fmt: skip
    (line,) = [line for line in script.read_text().splitlines() if "srun" in line]
    assert shlex.split(line)[2:] == [
        "-m", "manyheads", "tune", "hardware=slurm", *words, f"output={folder}", f"storage={folder}/storage.journal",
    ]  # fmt: skip
    assert 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"' in script.read_text()
    assert cli.main(["tune", "hardware=slurm", *words, "output=search", "storage=sqlite:///s.db"]) == 0
    capsys.readouterr()
    assert "storage.journal" not in script.read_text()


@pytest.mark.skipif("ablate" not in VERBS, reason="needs the verb ablate")
def test_a_comparison_is_an_array_of_the_same_words(tmp_path, capsys):
    """Its jobs share a results file, beside which the script lies."""
    words = ["vary=model.score", "values=[dot,cosine]", "slurm.tasks=3", "hardware.threads=2", "slurm.time=60"]
    assert cli.main(["ablate", "hardware=slurm", *words, "output=tables/scores.json"]) == 0
    script = Path(shlex.split(capsys.readouterr().out)[1])
    assert script == tmp_path / "tables" / "scores.sbatch"
    assert asked(script) == [
        "--signal=USR1@90", "--job-name=scores", "--nodes=1", "--ntasks-per-node=1", "--array=1-3", "--time=60",
        "--cpus-per-task=2", f'--output="{tmp_path}/tables/scores-slurm-%A_%a.out"', "--open-mode=append", "--requeue",
    ]  # fmt: skip
    (line,) = [line for line in script.read_text().splitlines() if "srun" in line]
    assert shlex.split(line)[2:] == [
        "-m", "manyheads", "ablate", "hardware=slurm", *words, f"output={tmp_path}/tables/scores",
    ]  # fmt: skip
    assert 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"' in script.read_text()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("tune hardware=slurm optim.lr=1e-3,3e-3", "which find each other by their folder: add output=FOLDER"),
        ("tune slurm.tasks=2 optim.lr=1e-3,3e-3", "slurm.tasks=2 does nothing without hardware=slurm: add that"),
        ("train hardware=slurm slurm.tasks=2", "slurm.tasks=2 is a setting of ablate, not of train"),
        ("ablate hardware=slurm vary=model.score values=[dot,cosine]", "by their results file: add output=FILE, on"),
        ("ablate slurm.tasks=2 vary=model.score values=[dot,cosine]", "slurm.tasks=2 does nothing without hardware"),
    ],
)
def test_what_is_no_array_is_one_sentence(line, sentence, tmp_path, capsys):
    if line.split()[0] not in VERBS or "ablate" not in VERBS:
        pytest.skip("needs the verbs tune and ablate")
    assert cli.main(line.split()) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), sentence in said.err) == ("", 1, True), said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["time", "partition", "account", "options"])
@pytest.mark.parametrize(
    "evil",
    ["1\n#SBATCH --uid=0", "1\r--x", "1 #SBATCH", "1\u2028x", "1\x00", '1"', "1'", "1\\", "1`id`", "$(id)", "--a\tb"],
)
def test_nothing_breaks_out_of_its_line(field, evil):
    for value in (evil, f"--name={evil}"):
        with pytest.raises(ValueError, match="is not a"):
            SlurmConfig(script=True, **{field: value})


@pytest.mark.parametrize("time", ["90", "90:30", "12:00:00", "2-00", "2-12:30", "2-12:30:15"])
def test_times_that_slurm_reads(time):
    assert SlurmConfig(time=time).time == time
