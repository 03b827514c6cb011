"""Every mistake ends in one sentence that names the setting and what to write instead, exit code 2, no traceback, and
nothing written. golden_sentences.txt has whole sentences."""

import subprocess
import sys

import pytest

from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, choices, settings_of
from manyheads.config.conversion import choices_of
from manyheads.config.sentences import one_of

MODELS = one_of(choices("train", "model"))
DELETED = "settings are set, never added or deleted"
MISTAKES = [  # what is typed, and parts of what is answered, such as the setting that was meant
    # unknown names
    ("train model.heads=4", "did you mean model.n_heads?"),
    ("train model.n_haeds=4", "did you mean model.n_heads?"),
    ("train batch_size=4", "did you mean batch.rows?"),
    ("train model.lr=4", "did you mean optim.lr?"),
    ("train experment=paper", "did you mean experiment?"),
    ("train zzz=4", "`manyheads train --help`"),
    ("train checkpoint=loss", "checkpoint is a section", "checkpoint.metric=VALUE"),
    # forms that a plain run does not take
    ("train +model.n_haeds=4", DELETED, "did you mean model.n_heads?"),
    ("train ++x", DELETED, "`manyheads train --help`"),
    ("train ~model.n_heads", DELETED, "default of 4"),
    ("train ~trainer.max_epochs", DELETED, "default"),
    ("train ++seed=4", DELETED, "write seed=4"),
    ("train ~logger", DELETED, "logger=NAME", one_of(choices("train", "logger"))),
    ("train model@data=tiny", "write model=tiny"),
    ("train hydra.run.dir=x", "add -m"),
    ("train model.n_heads", "write model.n_heads=VALUE"),
    ("train =4", "`manyheads train --help`"),
    ("train seed=${oc.env:HOME}", "interpolation"),
    ("train +trainer={_target_:os.getcwd}", "names code to call", "plugins="),
    # values
    ("train model.n_heads=4.5", "a whole number", "default is 4"),
    ("train model.n_heads=", "a whole number", "default is 4"),
    ("train optim.lr=fast", "a number", "default is 0.001"),
    ("train optim.lr=inf", "a number", "default is 0.001"),
    ("train model.dropout_residual=x", "a number or null", "default is null"),
    ("train data.text=null", "write data.text="),
    ("train batch.rows=0", "at least 1", "default is 64"),
    ("train data.validation_share=1", "above 0.0 and below 1.0", "default is 0.1"),
    ("train data.on_bad_row=true", one_of(choices_of(settings_of("train")["data.on_bad_row"]))),
    ("train model=bse", MODELS),
    ("train model={n_heads:4}",),
    ("train data=run",),
    ("train hardware=tpu", one_of(choices("train", "hardware"))),
    ("evaluate run=x hardware=fsdp", "training", one_of(choices("evaluate", "hardware"))),
    ("look run=x hardware.devices=2", "does nothing in look", "remove it"),
    ("train optim.class_weights={joy:-1}", "balanced", "'{joy: 1, anger: 2.5}'"),
    ("train data=files", "add data.path=<file or folder>"),
    # flags of Lightning's Trainer
    ("train trainer.max_epochs=ten", "int or null"),
    # verbs and dashes
    ("frobnicate", one_of([*VERBS])),
    ("seed=3 train", "manyheads train seed=3"),
    ("train --lr=0.1", "without dashes", "optim.lr=0.1"),
    ("train --inf", "did you mean --info?"),
    ("train --resolve", "add --cfg job"),
    ("train --cfg job --info", "give one of them"),
    ("train --cfg", "choose job, hydra or all"),
    ("train --config-dir nowhere", "mine/model/wide.yaml"),
    ("train --experimental-rerun x", "can run code", "config.yaml"),
]


@pytest.mark.parametrize(
    ("line", "parts"), [(line, parts) for line, *parts in MISTAKES], ids=[one[0] for one in MISTAKES]
)
def test_a_mistake_is_one_sentence(line, parts, capsys, tmp_path, monkeypatch):
    if line.split()[0] == "look" and "look" not in VERBS:
        pytest.skip("no plugin adds its verb")
    check_refused(line, parts, capsys, tmp_path, monkeypatch)


def check_refused(line, parts, capsys, tmp_path, monkeypatch):
    """The last word of the line is the mistake: its setting is named, and what `parts` say."""
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert "use +" not in said.err
    for part in (line.split()[-1].partition("=")[0], *parts):
        assert part in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["train model.heads=4", "train model.n_heads=0", "train trainer.max_epoch=3"])
def test_from_the_shell_before_anything_heavy_is_imported(line, tmp_path):
    watch = "import sys; from manyheads.cli.main import main; code = main(sys.argv[1:]); "
    watch += "print(sorted({'torch', 'lightning', 'numpy', 'datasets'} & set(sys.modules))); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", watch, *line.split()], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == "[]\n"
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_traceback_is_shown_on_request(capsys, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert main(["train", "model.n_heads=0"]) == 2
    assert "Traceback" in capsys.readouterr().err


PRESETS = [  # a mistake in somebody's own preset file: file and key are named
    ("n_haeds: 4", ["preset model/mine: model.n_haeds is not a setting: did you mean model.n_heads?"]),
    ("n_heads: eight", ["model/mine", "model.n_heads", "eight"]),
    ("n_heads: 0", ["model.n_heads=0"]),
    ("pooling: meen", ["model/mine", "model.pooling"]),
    ("_target_: os.getcwd", ["_target_"]),
    ("n_heads: ${oc.env:HOME}", ["model.n_heads", "interpolation"]),
    ("n_heads: [", ["mine.yaml line 2"]),
    ("- 1", ["mine"]),
    ("d_ff: " + "9" * 5000, ["preset model=mine", "fix the file"]),
    ("d_ff: " + "[" * 500, ["mine"]),
    ("# @package _global_\ndefaults:\n  - override /data: nope", ["Could not find 'data/nope'", "demo"]),
]


@pytest.mark.parametrize(("content", "parts"), PRESETS, ids=[content for content, _ in PRESETS])
def test_a_mistake_in_a_preset_file(content, parts, tmp_path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(content + "\n")
    assert main(["train", "model=mine", "--config-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    for part in parts:
        assert part in said
