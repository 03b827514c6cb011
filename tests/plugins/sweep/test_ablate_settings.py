"""What may vary, and the sentence for what may not; the experiments of the repository."""

import pytest

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.verbs import choices
from manyheads.config import ModelConfig, Placement
from manyheads.config.sentences import one_of
from manyheads.plugins.sweep.config import AblateConfig, Equal

TWO = "values=[0,0.1]"
MISTAKES = [
    (
        [],
        "nothing varies: give a setting several values, such as model.score=dot,cosine, or an experiment such as "
        "experiment=ablate_scores",
    ),
    (["model.score=dot,dot"], "model.score is given dot twice: name each value once"),
    (
        ["model.n_heads=2..4"],
        "model.n_heads=2..4 is a range, but values are compared: write model.n_heads=VALUE,VALUE",
    ),
    (
        ["tokenizer.vocab_size=100,200"],
        "tokenizer.vocab_size=[100, 200] cannot vary, as all rows share data, hardware and seeds: choose a setting of "
        "model, optim or batch",
    ),
    (
        ["experiment=ablate_scores", "model.d_k=8,16"],
        "vary=model.score and several values of model.d_k both say what varies: remove one of them",
    ),
    (["vary=model.scor", TWO], "vary=model.scor is not a setting: did you mean model.score?"),
    (
        ["vary=colour", TWO],
        "vary=colour is not a setting: choose one such as batch.tokens, batch.rows, batch.accumulate",
    ),
    (
        ["vary=seed", TWO],
        "vary=seed cannot vary, as all rows share data, hardware and seeds: choose a setting of model, optim or batch",
    ),
    (
        ["vary=data.rows", TWO],
        "vary=data.rows cannot vary, as all rows share data, hardware and seeds: "
        "choose a setting of model, optim or batch",
    ),
    (
        ["vary=model.score", "values=[dot]"],
        "values=[dot] holds 1 value: a comparison needs two at least, such as vary=model.score values=[...,...]",
    ),
    (["vary=model.score", "values=[dot,dot]"], "values holds dot twice: name each value once"),
    (
        ["vary=model.score", "values=[dot,dots]"],
        f"model.score=dots is not a choice: choose {one_of(plugin.names('score'))}",
    ),
    (
        ["vary=model.d_k", "values=[8,7]", "model.positions=rotary"],
        "model.d_k=7 is odd, but model.positions=rotary turns pairs of dimensions: use an even width such as "
        "model.d_k=8, or other positions",
    ),
    (
        ["vary=[model.n_heads,model.d_k]", "values=[[1,2],3]"],
        "values holds 3, but vary names 2 settings: give each value as a list of 2, in the order of vary",
    ),
    (["vary=optim.warmup", TWO, "sets=demo"], "sets=demo is not a list: write it in brackets, such as sets=[demo]"),
    (
        ["vary=optim.warmup", TWO, "sets=[nowhere]"],
        "sets holds nowhere, which is neither demo nor a file or folder here, and $MANYHEADS_DATA is not set: "
        "set MANYHEADS_DATA to the folder that holds nowhere, or leave it out of sets",
    ),
    (["vary=optim.warmup", TWO, "sets=[demo,demo]"], "sets holds demo twice: name each data once"),
    (
        ["vary=optim.warmup", TWO, "trainer.max_steps=-1", "trainer.max_epochs=-1"],
        "trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them",
    ),
    (
        ["vary=optim.warmup", TWO, "hardware.devices=2"],
        "hardware.devices=2 does nothing in ablate, where runs of one device are compared, one after another: "
        "remove it",
    ),
    (
        ["vary=optim.warmup", TWO, "experiment=paper"],
        "experiment=paper is of train, not of ablate: write manyheads train experiment=paper",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MANYHEADS_DATA", raising=False)
    assert main(["ablate", *words]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", sentence + "\n")
    assert list(tmp_path.iterdir()) == []


def test_sets_and_the_path_of_data_are_not_both_named(capsys, tmp_path, monkeypatch):
    """A long path is cut in the sentence."""
    monkeypatch.chdir(tmp_path)
    assert main(["ablate", "vary=optim.warmup", TWO, "sets=[demo]", "data.path=x.csv"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("sets=[demo] and data.path=")
    assert said.endswith(" both name data: give one of them\n")


def test_train_does_not_read_a_comparison(capsys):
    assert main(["train", "experiment=ablate_heads"]) == 2
    assert capsys.readouterr().err == (
        "experiment=ablate_heads is of ablate, not of train: write manyheads ablate experiment=ablate_heads\n"
    )


def test_a_row_is_a_run_that_differs_in_what_varies_alone():
    config = AblateConfig(vary="model.score", values=["dot", "cosine"], seed=5, model=ModelConfig(d_ff=7))
    dot, cosine = (config.run(variant, seed) for variant, seed in zip(config.variants(), (5, 6), strict=True))
    assert (dot.model, cosine.model) == (ModelConfig(d_ff=7, score="dot"), ModelConfig(d_ff=7, score="cosine"))
    assert (dot.seed, cosine.seed, dot.test, cosine.test) == (5, 6, False, False)
    assert (dot.optim, dot.data, dot.batch, dot.trainer) == (config.optim, config.data, config.batch, config.trainer)


def test_a_list_is_a_value_of_one_setting_and_one_value_of_each_of_several():
    one = AblateConfig(vary="model.windows", values=[[2], [2, 0]])
    assert [one.run(variant).model.windows for variant in one.variants()] == [[2], [2, 0]]
    assert [variant.name for variant in one.variants()] == ["[2]", "[2, 0]"]
    two = AblateConfig(vary=["model.n_heads", "model.d_k"], values=[[1, 64], [4, 16]])
    assert [(run.n_heads, run.d_k) for run in (two.run(each).model for each in two.variants())] == [(1, 64), (4, 16)]
    assert (two.vary_name, [variant.name for variant in two.variants()]) == (
        "model.n_heads, model.d_k",
        ["1, 64", "4, 16"],
    )


def test_several_values_of_settings_are_a_grid():
    config = compose("ablate", ["model.score=dot,cosine", "model.n_heads=2,4,8"])
    runs = [config.run(variant).model for variant in config.variants()]
    assert [(run.score, run.n_heads) for run in runs] == [(s, n) for s in ("dot", "cosine") for n in (2, 4, 8)]
    assert (config.vary_name, config.variants()[1].name) == ("model.score, model.n_heads", "dot, 4")
    listed = compose("ablate", ["vary=model.score", "values=[dot,cosine]"])
    assert compose("ablate", ["model.score=dot,cosine"]).variants() == listed.variants()


@pytest.mark.parametrize("name", choices("ablate", "experiment"))
def test_every_value_of_every_experiment_is_a_run(name):
    if name == "ablate_long_range" and "gru" not in plugin.names("encoder"):
        pytest.skip("it compares recurrent encoders, which another plugin has")
    config = compose("ablate", [f"experiment={name}"])
    runs = [config.run(variant) for variant in config.variants()]
    assert len(runs) >= 3
    if name == "ablate_long_range":
        return
    assert config.seeds == 3
    assert config.seconds <= 30
    assert config.equal is Equal.parameters
    assert all(run.trainer["max_steps"] <= 1000 for run in runs)


def test_the_experiments_cover_what_was_promised():
    def values(name):
        config = compose("ablate", [f"experiment=ablate_{name}"])
        return [next(iter(variant.changes.values())) for variant in config.variants()], config.sets

    assert set(values("scores")[0]) == set(plugin.names("score"))
    assert values("scores")[1] == ["demo", "trec6", "emotion"]
    assert values("heads") == ([1, 2, 4, 8], ["demo", "trec6"])
    assert (min(values("d_k")[0]), max(values("d_k")[0])) == (4, 64)
    assert len(values("positions")[0]) == 5
    assert set(values("placement")[0]) == set(Placement.__members__)
