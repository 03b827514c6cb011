"""Every mistake ends in one exact sentence, exit code 2, no traceback, and nothing written."""

import subprocess
import sys

import pytest

from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, choices
from manyheads.config.fields import one_of

OF_PLUGINS = {"look", "serve", "export", "push"}  # verbs
MODELS = one_of(choices("train", "model"))
MISTAKES = [
    # unknown names
    ("train model.heads=4", "model.heads=4 is not a setting: did you mean model.n_heads?"),
    ("train n_heads=4", "n_heads=4 is not a setting: did you mean model.n_heads?"),
    ("train model.n_haeds=4", "model.n_haeds=4 is not a setting: did you mean model.n_heads?"),
    ("train epochs=4", "epochs=4 is not a setting: did you mean trainer.max_epochs?"),
    ("train batch_size=4", "batch_size=4 is not a setting: did you mean batch.rows?"),
    ("train model.lr=4", "model.lr=4 is not a setting: did you mean optim.lr?"),
    ("train experment=paper", "experment=paper is not a setting: did you mean experiment?"),
    ("train zzz=4", "zzz=4 is not a setting: `manyheads train --help` lists every setting"),
    (
        "evaluate run=x model.n_heads=4",
        "model.n_heads=4 is a setting of train, not of evaluate: `manyheads evaluate --help` lists those of evaluate",
    ),
    (
        "train checkpoint=loss",
        "checkpoint=loss: checkpoint is a section: set its keys, such as checkpoint.metric=VALUE",
    ),
    # forms that a plain run does not take
    (
        "train +model.n_haeds=4",
        "+model.n_haeds=4: settings are set, never added or deleted, and model.n_haeds=4 is not a setting: did you "
        "mean model.n_heads?",
    ),
    (
        "train ++x",
        "++x: settings are set, never added or deleted, and x is not a setting: `manyheads train --help` lists every "
        "setting",
    ),
    (
        "train ~model.n_heads",
        "~model.n_heads: settings are set, never added or deleted: leave model.n_heads out, and its default of 4 "
        "counts",
    ),
    (
        "train ~trainer.max_epochs",
        "~trainer.max_epochs: settings are set, never added or deleted: leave trainer.max_epochs out, and its default "
        "counts",
    ),
    ("train ++seed=4", "++seed=4: settings are set, never added or deleted: write seed=4"),
    (
        "train ~logger",
        "~logger: settings are set, never added or deleted: write logger=NAME, and choose "
        + one_of(choices("train", "logger")),
    ),
    ("train model@data=tiny", "model@data=tiny: settings keep their place, @ moves none: write model=tiny"),
    ("train hydra.run.dir=x", "hydra.run.dir=x: Hydra's own settings count only with -m: remove it, or add -m"),
    ("train model.n_heads", "model.n_heads has no value: write model.n_heads=VALUE"),
    ("train =4", "=4 is not a setting: `manyheads train --help` lists every setting"),
    (
        "train seed=${oc.env:HOME}",
        "seed=${oc.env:HOME} holds an interpolation, but settings are plain values: write the value itself",
    ),
    (
        "train model._target_=os.getcwd",
        "model._target_=os.getcwd names code to call, which a setting never may: "
        "remove it, and give parts of your own by plugins=",
    ),
    (
        "train +trainer={_target_:os.getcwd}",
        "+trainer={_target_:os.getcwd} names code to call, which a setting never may: "
        "remove it, and give parts of your own by plugins=",
    ),
    # values
    (
        "train model.n_heads=eight",
        "model.n_heads=eight has the wrong type: it must be a whole number; the default is 4",
    ),
    ("train model.n_heads=4.5", "model.n_heads=4.5 has the wrong type: it must be a whole number; the default is 4"),
    ("train model.n_heads=", "model.n_heads= has the wrong type: it must be a whole number; the default is 4"),
    ("train optim.lr=fast", "optim.lr=fast has the wrong type: it must be a number; the default is 0.001"),
    ("train optim.lr=inf", "optim.lr=inf has the wrong type: it must be a number; the default is 0.001"),
    ("train test=yes", "test=yes has the wrong type: it must be true or false; the default is true"),
    (
        "train model.dropout_residual=x",
        "model.dropout_residual=x has the wrong type: it must be a number or null; the default is null",
    ),
    ("train data.text=null", "data.text=null is not text: for none write data.text="),
    ("train batch.rows=0", "batch.rows=0 is out of range: it must be at least 1; the default is 64"),
    (
        "train data.validation_share=1",
        "data.validation_share=1.0 is out of range: it must be above 0.0 and below 1.0; the default is 0.1",
    ),
    ("train model.pooling=meen", "model.pooling=meen is not a choice: choose mean, first, max or attention"),
    ("train data.on_bad_row=true", "data.on_bad_row=true is not a choice: choose raise or drop"),
    ("train model=bse", f"model=bse is not a choice: choose {MODELS}"),
    ("train model={n_heads:4}", None),
    ("train data=run", None),
    (
        "train hardware=tpu",
        f"hardware=tpu is not a choice: choose {one_of(choices('train', 'hardware'))}",
    ),
    (
        "evaluate run=x hardware=fsdp",
        "hardware=fsdp is a way to hold weights in training: choose auto, cpu, ddp or gpu",
    ),
    (
        "look run=x hardware.devices=2",
        "hardware.devices=2 does nothing in look, where one device is used: remove it",
    ),
    (
        "predict -m run=x hardware.devices=2 batch.tokens=512,1024",
        "hardware.devices=2 is refused under -m, which runs on one device: start each alone, or remove it",
    ),
    (
        "train model.n_heads=2,4",
        "model.n_heads=2,4 holds several values: give one, or add -m to run one after another",
    ),
    (
        "train model.n_heads=[2",
        "model.n_heads=[2 cannot be read: close its quotes and brackets, or quote special signs",
    ),
    (
        "train model.d_k=3 model.positions=rotary",
        "model.d_k=3 is odd, but model.positions=rotary turns pairs of dimensions: use an even width such as "
        "model.d_k=4, or other positions",
    ),
    (
        "train optim.class_weights={joy:-1}",
        "optim.class_weights={'joy': -1} is not understood: it must be none, balanced, or positive weights by "
        "class name such as '{joy: 1, anger: 2.5}'",
    ),
    (
        "train data=files",
        "data.path is empty, but data=files reads local files: add data.path=<file or folder>",
    ),
    ("evaluate", "run is empty: name the run to judge, for example run=outputs/my-run"),
    ("predict text=hello", "run is empty: name the run that predicts, for example run=outputs/my-run"),
    # flags of Lightning's Trainer
    (
        "train trainer.max_epoch=3",
        "trainer.max_epoch=3 is not a flag of Lightning's Trainer: did you mean trainer.max_epochs?",
    ),
    ("train trainer.devices=2", "trainer.devices=2: this flag is decided elsewhere: set hardware.devices"),
    ("train trainer.max_epochs=ten", "trainer.max_epochs=ten has the wrong type: Lightning takes int or null"),
    # verbs and dashes
    ("trian", "trian is not a verb: did you mean train?"),
    (
        "frobnicate",
        f"frobnicate is not a verb: choose {one_of([*VERBS])}",
    ),
    ("seed=3 train", "seed=3 stands before the verb: write manyheads train seed=3 ..."),
    ("train --lr=0.1", "--lr=0.1 is not a flag: settings are typed without dashes, such as optim.lr=0.1"),
    ("train --multrun", "--multrun is not a flag: did you mean --multirun?"),
    ("train --resolve", "--resolve: -m, --cfg and --info each do one thing: add --cfg job"),
    ("train -m --cfg job", "-m --cfg: -m, --cfg and --info each do one thing: give one of them"),
    ("train --cfg", "--cfg has no value: choose job, hydra or all"),
    (
        "train --config-dir nowhere",
        "--config-dir nowhere is not a folder: name one that holds presets, such as mine/model/wide.yaml",
    ),
    (
        "train --experimental-rerun x",
        "--experimental-rerun is refused, as it would unpickle a file, which can run code: type the settings of its "
        "config.yaml instead",
    ),
    # the same rules hold under -m, for every value of a sweep
    ("train -m seed=1,-2", "seed=-2 is out of range: it must be at least 0 and below 4294967296; the default is 0"),
    ("train -m model=tiny,bse", f"model=bse is not a choice: choose {MODELS}"),
    ("train -m seed=1,2 +model.bias=0", "+model.bias=0: settings are set, never added or deleted: write model.bias=0"),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_exact_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    if line.split()[0] in OF_PLUGINS - VERBS.keys():
        pytest.skip("no plugin adds its verb")
    check_sentence(line, sentence, capsys, tmp_path, monkeypatch)


def check_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert "use +" not in said.err
    if sentence is not None:
        assert said.err == f"{sentence}\n"
    else:
        assert line.split()[-1].partition("=")[0] in said.err
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
    ("d_ff: " + "[" * 5000, ["mine"]),
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
