"""docs/extending.md as a reader types it: own parts are trained, repeated, judged, asked, looked at and loaded."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import manyheads
import manyheads.plugin as plugin
from manyheads.cli.main import main
from manyheads.cli.verbs import choices
from tests.conftest import forget_plugins

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("trainer.max_steps=6", "hardware.accelerator=cpu", "hardware.precision=fp32", "checkpoint.every=2"),
]
MINE = ["plugins=[./my_parts.py]", "model.score=bilinear", "model.pooling=last", "model.pooling_options.skip=1"]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    for name, code in zip(("my_parts", "more_parts"), BLOCKS, strict=False):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    rows = "".join(f"{'good' if at % 2 else 'bad'} film {at},{'pos' if at % 2 else 'neg'}\n" for at in range(80))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    forget_plugins()
    yield tmp_path
    forget_plugins()


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def test_blocks_of_ones_own_from_training_to_answers(home, capsys, monkeypatch):
    train = ["train", "data.path=rows.csv", *MINE, *TINY]
    assert main([*train, "output=run"]) == 0
    said = json.loads((home / "run" / "model" / "config.json").read_text())
    assert (said["model"]["score"], said["model"]["pooling_options"]) == ("bilinear", {"skip": 1})
    assert said["plugins"][0].startswith("my_parts 1 ")
    monkeypatch.setenv("MANYHEADS_FAULT", "step:4:fail")
    assert main([*train, "output=broken"]) == 1
    monkeypatch.delenv("MANYHEADS_FAULT")
    assert not (home / "broken" / "model").exists()
    assert main([*train, "output=broken", "resume=auto"]) == 0
    assert all(torch.equal(one, tensors(home / "broken")[name]) for name, one in tensors(home / "run").items())
    forget_plugins()
    for words in (["evaluate", "run=run"], ["predict", "run=run", "text=good"], ["train", "resume=run"]):
        capsys.readouterr()
        assert main(words) == 2
        assert (
            "was made with the plugin my_parts 1, which was not given: add plugins=[my_parts]"
            in capsys.readouterr().err
        )
    with pytest.raises(ValueError, match="plugin my_parts 1, which was not given"):
        manyheads.load("run")
    model = manyheads.load("run", plugins=["./my_parts.py"])
    assert model.labels == ["neg", "pos"]
    assert main(["evaluate", "plugins=[./my_parts.py]", "run=run", "hardware.accelerator=cpu"]) == 0
    assert main(["predict", "plugins=[./my_parts.py]", "run=run", "text=good", "hardware.accelerator=cpu"]) == 0
    if "look" in plugin.verbs():
        assert main(["look", "plugins=[./my_parts.py]", "run=run", "text=good film", "hardware.accelerator=cpu"]) == 0
        assert (home / "run" / "look" / "1.html").is_file()


def test_a_bug_in_a_block_is_traced_to_its_line(home, capsys):
    """An error within torch, in the middle of a training, which leaves its checkpoint."""
    line = "        x_BLD = layout.grid(self.mix(x))\n"
    broken = f"        self.calls = getattr(self, 'calls', 0) + self.training\n{line}"
    broken += "        torch.zeros(2) @ torch.zeros(3 if self.calls == 5 else 2)\n"
    assert BLOCKS[0].count(line) == 1
    (home / "my_parts.py").write_text(BLOCKS[0].replace(line, broken), encoding="utf-8")
    at = BLOCKS[0][: BLOCKS[0].index(line)].count("\n") + 3
    assert main(["train", "data.path=rows.csv", *MINE, *TINY, "output=broken"]) == 1
    said = capsys.readouterr().err.rstrip()
    assert "Traceback" in said
    assert said.endswith(f"the error above comes from plugin my_parts, line {at} of {home}/my_parts.py")
    assert (home / "broken" / "checkpoints").is_dir()
    assert not (home / "broken" / "model").exists()


@pytest.mark.slow
def test_two_processes_have_the_parts_of_their_command(home):
    words = ["train", "data.path=rows.csv", *MINE, *TINY, "hardware.devices=2", "output=two"]
    assert main(words) == 0
    assert (home / "two" / "summary.json").is_file()
    assert (home / "two" / "ranks").is_dir()


def test_a_part_registered_in_python_is_refused_for_several_processes(home):
    from manyheads.cli.compose import compose

    names: dict = {"__name__": "my_parts"}
    exec(compile(BLOCKS[0], "my_parts", "exec"), names)
    plugin.register(names["PLUGIN"])
    run = compose("train", ["data.path=rows.csv", "model.score=bilinear", *TINY, "hardware.devices=2", "output=two"])
    with pytest.raises(ValueError, match="the plugin my_parts was registered in Python"):
        manyheads.train(run)
    assert not (home / "two").exists()


def test_figures_losses_rows_loggers_and_verbs_of_ones_own(home, capsys):
    more = "plugins=[./more_parts.py]"
    words = ["train", more, "data.source=days", "optim.objective=poly", "diary.keep=true", "output=days", *TINY]
    assert main(words) == 0
    assert next((home / "days" / "diary").rglob("metrics.csv")).stat().st_size > 0
    capsys.readouterr()
    assert main(["evaluate", more, "run=days", "require=[top_two.low>0.5]", "hardware.accelerator=cpu"]) == 0
    figures = json.loads(next((home / "days" / "evaluate").rglob("metrics.json")).read_text())
    assert figures["top_two"] == {"value": 1.0, "low": 1.0, "high": 1.0}, "of two classes one is right"
    (home / "texts.txt").write_text("one\ntwo\n")
    capsys.readouterr()
    assert main(["count", more, "input=texts.txt"]) == 0
    assert capsys.readouterr().out == "2 texts\n"
    assert main(["count", more]) == 2
    assert "input is empty: name it, such as input=lines.txt" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.verb("tune")
def test_a_search_keeps_the_plugins_of_its_command(home, capsys):
    words = ["tune", "data.path=rows.csv", MINE[0], "model.score=bilinear,scaled_dot", *TINY, "output=search"]
    assert main(words) == 0
    assert f"manyheads train 'plugins=[{home}/my_parts.py]' " in capsys.readouterr().out
    assert "\nplugins:\n- my_parts 1 " in (home / "search" / "trials" / "001-seed-0" / "config.yaml").read_text()
    (home / "my_parts.py").write_text(BLOCKS[0] + "# changed\n", encoding="utf-8")
    forget_plugins()
    assert main(words) == 2
    assert "holds a search with plugins=['my_parts 1 " in " ".join(capsys.readouterr().err.split())


def test_a_job_script_keeps_the_plugins_of_its_command(home):
    if "slurm" not in choices("train", "hardware"):
        pytest.skip("no plugin writes job scripts")
    assert main(["train", "data.path=rows.csv", *MINE, "hardware=slurm", "output=job"]) == 0
    assert f"plugins=[{home}/my_parts.py]" in (home / "job" / "job.sbatch").read_text()


@pytest.mark.parametrize("kind", ["onnx", pytest.param("torch", marks=pytest.mark.slow)])
def test_blocks_that_can_be_traced_are_exported(home, capsys, kind):
    if "export" not in plugin.verbs():
        pytest.skip("no export")
    assert main(["train", "data.path=rows.csv", *MINE, *TINY, "linear=false", "output=run"]) == 0
    assert main(["export", MINE[0], "run=run", f"format={kind}", "output=out"]) == 0
    if kind == "onnx":  # which opens without the plugin, too
        texts = ["text=[good film, bad, a film]", "hardware.accelerator=cpu"]
        capsys.readouterr()
        assert main(["predict", MINE[0], "run=run", "hardware.precision=fp32", *texts]) == 0
        expected = capsys.readouterr().out
        forget_plugins()
        assert main(["predict", "run=out", *texts]) == 0
        assert capsys.readouterr().out == expected
        assert main(["evaluate", "run=out", "data.path=rows.csv"]) == 0
    code = BLOCKS[0].replace("at_B.size(0)", "len(at_B)")
    assert code != BLOCKS[0]
    (home / "my_parts.py").write_text(code, encoding="utf-8")
    forget_plugins()
    capsys.readouterr()
    assert main(["export", MINE[0], "run=run", f"format={kind}", "output=other"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"format={kind} cannot trace a model with score bilinear of plugin my_parts, pooling last of" in said
    assert not (home / "other").exists()


@pytest.mark.parametrize(("reduced", "shape"), [(".mean()", "()"), ("[:, None]", "(64, 1)")])
def test_losses_of_another_shape_are_refused(home, capsys, reduced, shape):
    code = BLOCKS[1].replace("return losses_B + 1 - (-losses_B).exp()", f"return losses_B{reduced}")
    (home / "more_parts.py").write_text(code, encoding="utf-8")
    assert main(["train", "plugins=[./more_parts.py]", "data.path=rows.csv", "optim.objective=poly", *TINY]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"optim.objective gives losses of shape {shape} for labels of shape (" in said


def test_a_preset_chooses_blocks_of_the_plugins_it_names(home, capsys):
    preset = home / "conf" / "experiment" / "mine.yaml"
    preset.parent.mkdir(parents=True)
    preset.write_text("# @package _global_\nplugins: [./my_parts.py]\nmodel:\n  score: bilinear\n")
    words = ["train", "--config-dir", "conf", "experiment=mine", "--cfg", "job"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "score: bilinear" in said
    assert "my_parts 1 " in said


def test_a_word_plugins_is_that_of_a_flag(home, capsys):
    assert main(["train", "--cfg", "job", "--package", "plugins", MINE[0]]) == 0
    assert "my_parts 1 " in capsys.readouterr().out


def test_the_notebook_runs(home, capsys):
    names: dict = {}
    exec(compile(BLOCKS[2], "notebook", "exec"), names)
    assert names["module"].network(torch.tensor([[2, 5, 3]])).shape == (1, 2)
    (folder,) = (home / "outputs").iterdir()
    assert json.loads((folder / "summary.json").read_text())["rows"] == {"train": 72, "validation": 9, "test": 9}
    capsys.readouterr()
    assert main(["evaluate", f"run={folder}"]) == 2
    assert "data=memory are rows that were given in Python" in capsys.readouterr().err


def test_a_run_on_rows_in_memory_is_that_on_a_file_of_them(home):
    rows = [tuple(line.split(",")) for line in (home / "rows.csv").read_text().splitlines()[1:]]
    words = [*TINY, "linear=false"]
    by_file = manyheads.compose("train", [*words, "data.path=rows.csv", "output=file"])
    in_memory = manyheads.compose("train", [*words, "output=memory"])
    manyheads.train(by_file)
    manyheads.train(in_memory, data=manyheads.TextData.from_rows(rows, run=in_memory))
    assert all(torch.equal(one, tensors(home / "memory")[name]) for name, one in tensors(home / "file").items())
    several = manyheads.compose("train", [*words, "hardware.devices=2", "output=several"])
    with pytest.raises(ValueError, match=r"hardware.devices=2 reads rows from files"):
        manyheads.train(several, data=manyheads.TextData.from_rows(rows, run=several))


class Bag(nn.Module):
    """The mean of a document's word vectors, to logits."""

    def __init__(self, n_words: int = 2000, leak: bool = False) -> None:
        super().__init__()
        self.words, self.head, self.leak = nn.Embedding(n_words, 8), nn.Linear(8, 2), leak

    def forward(self, ids, layout):
        x_BLD = layout.grid(self.words(ids)) * layout.keep_BL[..., None]
        x_BD = x_BLD.sum(1) / layout.lengths_B.clamp(min=1)[:, None]
        return self.head(x_BD - x_BD.mean(0) if self.leak else x_BD)


def test_a_network_of_ones_own_is_trained_judged_and_opened(home, capsys):
    torch.manual_seed(0)
    bag = Bag()
    first = bag.words.weight.detach().clone()
    words = ["data.path=rows.csv", "output=own", *TINY, "linear=false", "optim.lr=0.05", "trainer.max_steps=60"]
    summary = manyheads.train(manyheads.compose("train", words), network=bag)
    assert summary is not None
    assert torch.equal(bag.words.weight, first), "the module that was given is copied"
    assert summary.validation["accuracy"].value > 0.9
    model = manyheads.load("own", network=Bag())
    assert model.predict(["good film 3", "bad film 4"])[0].label == "pos"
    assert not torch.equal(model.network.module.words.weight, first)
    with pytest.raises(ValueError, match="holds the weights of Bag, a module of its maker's own"):
        manyheads.load("own")
    with pytest.raises(ValueError, match=r"tensor module.words.weight is F32 \[2000, 8\], not"):
        manyheads.load("own", network=Bag(1000))
    capsys.readouterr()
    assert main(["predict", "run=own", "text=good"]) == 2
    assert "open it in Python by manyheads.load(folder, network=...)" in capsys.readouterr().err
    leaking = manyheads.compose("train", ["data.path=rows.csv", "output=leak", *TINY])
    with pytest.raises(ValueError, match="network=Bag: the logits of a text alone differ by"):
        manyheads.train(leaking, network=Bag(leak=True))
    assert not (home / "leak").exists()
    several = manyheads.compose("train", ["data.path=rows.csv", *TINY, "hardware.devices=2"])
    with pytest.raises(ValueError, match=r"hardware.devices=2 does not go with network="):
        manyheads.train(several, network=Bag())
