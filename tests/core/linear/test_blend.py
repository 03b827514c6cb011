"""A linear model beside a network: its file as a stranger's, and the answers of both together."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from manyheads.cli.main import main
from manyheads.config import DataConfig, OptimConfig, Terms
from manyheads.data.rows import Rows
from manyheads.evaluation import results
from manyheads.inference.folder import load, save
from manyheads.linear import blend
from manyheads.linear import model as ship
from manyheads.linear.blend import (
    LINEAR_FIRST,
    NETWORK_ALONE,
    NETWORK_FIRST,
    Blend,
    Tuned,
    best_share,
    best_temperature,
    blended,
    likelihoods,
)
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import LinearBaseline, counted, linear_logits, read_linear, write_baseline, write_linear
from manyheads.training import pipeline

TEXTS = ["a good film", "so bad", "the awful film", "good fun", "a film", "so awful"]
LOGITS = st.lists(st.tuples(*[st.floats(-30, 30)] * 3), min_size=1, max_size=4)


def linear():
    model = fit_linear(Rows(TEXTS, None, [0, 1, 1, 0, 2, 1], "x.csv", range(1, 7)), 3)
    assert model is not None
    return model


@settings(deadline=None)
@given(LOGITS, st.data(), st.sampled_from([0.05, 0.5, 0.95]), st.sampled_from([0.5, 1.0, 2.0]), st.booleans())
def test_probabilities_are_the_mean_of_both(network, data, share, temperature, multi):
    others = data.draw(st.lists(st.tuples(*[st.floats(-30, 30)] * 3), min_size=len(network), max_size=len(network)))
    net_nC, lin_nC = (torch.tensor(one, dtype=torch.float64) for one in (network, others))
    chance = torch.sigmoid if multi else lambda logits: logits.softmax(-1)
    found = chance(blended(net_nC, lin_nC, share, temperature, multi=multi))
    torch.testing.assert_close(found, (1 - share) * chance(net_nC / temperature) + share * chance(lin_nC))


@pytest.mark.parametrize("multi", [False, True])
def test_a_share_of_nothing_or_all_leaves_one_of_them(multi):
    net_nC, lin_nC = torch.randn(5, 3), torch.randn(5, 3)
    chance = torch.sigmoid if multi else lambda logits: logits.softmax(-1)
    torch.testing.assert_close(chance(blended(net_nC, lin_nC, 0.0, 2.0, multi=multi)), chance(net_nC / 2))
    torch.testing.assert_close(chance(blended(net_nC, lin_nC, 1.0, 2.0, multi=multi)), chance(lin_nC))


CLASSES = torch.arange(200) % 3
SETS = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]]).repeat(50, 1)


def right_and_noise(labels):
    """Logits of who knows these labels, and of who knows nothing."""
    marks_nC = labels if labels.ndim == 2 else torch.nn.functional.one_hot(labels, 3)
    return 6.0 * (2 * marks_nC - 1), torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("labels", [CLASSES, SETS])
def test_the_better_one_has_the_larger_share(labels):
    right_nC, noise_nC = right_and_noise(labels)
    assert best_share(right_nC, noise_nC, labels)[0] == 0.0
    assert best_share(noise_nC, right_nC, labels)[0] == 1.0
    halves = [right_nC.clone(), right_nC.clone()]
    halves[0][:100], halves[1][100:] = 0.0, 0.0  # each knows half of the rows
    assert best_share(halves[0], halves[1], labels)[0] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("labels", [CLASSES, SETS])
def test_few_rows_do_not_leave_one_of_them_out(labels):
    """The better one has more of the share, the more rows say so."""
    right_nC, noise_nC = right_and_noise(labels)
    shares = [best_share(right_nC[:n], noise_nC[:n], labels[:n])[0] for n in (4, 8, 16, 200)]
    assert shares == sorted(shares, reverse=True)
    assert 0.0 < shares[0] < NETWORK_FIRST
    assert best_share(right_nC[:4], right_nC[:4], labels[:4])[0] == pytest.approx(NETWORK_FIRST)
    assert best_share(right_nC[:4], right_nC[:4], labels[:4], prior_share=LINEAR_FIRST)[0] == pytest.approx(0.8)
    assert best_share(right_nC, noise_nC, labels, prior_share=LINEAR_FIRST)[0] < 0.2, "many rows decide"
    assert best_share(right_nC[:4], right_nC[:4], labels[:4], prior_share=NETWORK_ALONE)[0] == 0.0
    assert best_share(noise_nC, right_nC, labels, prior_share=NETWORK_ALONE)[0] > 0.5, "many rows decide"


def test_each_is_first_made_as_sure_as_it_may_be():
    """One of ten rows is wrong: the likeliest probability of the right ones is nine of ten, whatever the logits say."""
    labels = torch.arange(400) % 2
    given_n = torch.where(torch.arange(400) % 20 < 2, 1 - labels, labels)
    sure_nC = torch.nn.functional.one_hot(given_n, 2)
    _, of_network, of_linear = best_share(1.1 * sure_nC, 4.4 * sure_nC, labels)
    assert (1.1 / of_network, 4.4 / of_linear) == pytest.approx((math.log(9), math.log(9)), rel=0.1)


@pytest.mark.parametrize("labels", [torch.arange(4) % 2, SETS[:4]])
@pytest.mark.parametrize("sure", [1.0, 5.0, 40.0])
def test_four_rows_that_are_all_right_make_nobody_certain(labels, sure):
    """Each row counts once, and an eighth more as each class that it might have had: half a row in all."""
    from scipy.optimize import minimize_scalar

    logits_nC = sure * (torch.nn.functional.one_hot(labels, 2) if labels.ndim == 1 else 2.0 * labels - 1)
    found = best_temperature(logits_nC, labels, torch.ones(()))
    assert -likelihoods(logits_nC / found, labels).log().sum() / 4 > 0.02
    margin = (logits_nC.max() - logits_nC.min()).item() if labels.ndim == 1 else sure

    def unlikely(log_temperature):
        apart = margin / math.exp(log_temperature)
        return 4.25 * math.log1p(math.exp(-apart)) + 0.25 * math.log1p(math.exp(apart))

    best = math.exp(minimize_scalar(unlikely, bounds=(math.log(0.25), math.log(16)), method="bounded").x)
    assert abs(math.log2(found / best)) <= 1 / 8 + 1e-2  # the nearest on the grid


def test_a_linear_model_over_a_temperature_is_surer_or_less_sure():
    logits_nC = linear_logits(linear(), TEXTS, None)
    torch.testing.assert_close(linear_logits(linear().over(2.0), TEXTS, None), logits_nC / 2)


def test_a_network_that_is_too_modest_is_not_left_out_for_it():
    """Both are right but in some rows, the network in more, with less to show for it."""
    labels = torch.arange(40) % 2
    network_nC = 1.0 * torch.nn.functional.one_hot(labels, 2)
    linear_nC = 4.0 * torch.nn.functional.one_hot(labels, 2)
    network_nC[:1], linear_nC[:4] = network_nC[:1].flip(1), linear_nC[:4].flip(1)
    share, of_network, _ = best_share(network_nC, linear_nC, labels)
    assert of_network < 0.6
    assert share < 0.5


def test_it_is_read_as_it_was_written(tmp_path):
    write_linear(tmp_path / "one", linear())
    write_linear(tmp_path / "two", linear())
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    read = read_linear(tmp_path / "one", 3, Terms.words)
    torch.testing.assert_close(linear_logits(read, TEXTS, None), linear_logits(linear(), TEXTS, None), rtol=0, atol=0)
    assert linear_logits(read, [], None).shape == (0, 3)


@pytest.mark.parametrize("pairs", [None, ["good"] * 6])
def test_long_texts_are_answered_few_at_once(monkeypatch, pairs):
    """Memory is bounded by letters; what is answered is the same to the bit."""
    whole = linear_logits(linear(), TEXTS, pairs)
    letters = []

    def counting(texts, pairs, terms):
        letters.append(sum(map(len, [*texts, *(pairs or [])])))
        return counted(texts, pairs, terms)

    monkeypatch.setattr(ship, "counted", counting)
    monkeypatch.setattr(ship, "LETTERS_AT_ONCE", 20, raising=False)
    long = "so bad " * 10
    found = linear_logits(linear(), [*TEXTS, long], None if pairs is None else [*pairs, ""])
    torch.testing.assert_close(found[:-1], whole, rtol=0, atol=0)
    assert sum(letters) == sum(map(len, [*TEXTS, long, *(pairs or [])]))
    assert max(letters[:-1]) <= 20
    assert letters[-1] == len(long)


def spoilt(change):
    """The file with its tensors changed."""

    def spoil(path: Path) -> None:
        tensors = load_file(path)
        change(tensors)
        save_file({name: one.contiguous() for name, one in tensors.items()}, path)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "is not a whole safetensors file"),
        (lambda path: path.write_bytes(b""), "is not a whole safetensors file"),
        (spoilt(lambda held: held.pop("bias_C")), "does not hold the linear model of 3 classes"),
        (spoilt(lambda held: held.update(more=torch.ones(1))), "does not hold the linear model"),
        (spoilt(lambda held: held.update(bias_C=torch.ones(4))), "does not hold the linear model"),
        (spoilt(lambda held: held.update(rarity_U=held["rarity_U"][1:])), "does not hold the linear model"),
        (spoilt(lambda held: held.update(terms_U=held["terms_U"].int())), "does not hold the linear model"),
        (
            spoilt(lambda held: held.update({name: held[name][:0] for name in ("terms_U", "rarity_U", "votes_UC")})),
            "not hold",
        ),
        (spoilt(lambda held: held.update(terms_U=torch.tensor(3))), "does not hold the linear model"),
        (spoilt(lambda held: held.update(terms_U=held["terms_U"].flip(0))), "terms out of order"),
        (spoilt(lambda held: held["votes_UC"].fill_(float("nan"))), "values that are not finite"),
        *(
            (
                spoilt(lambda held, name=name: held[name].fill_(-3e38)),
                "values that are not finite or not below a million",
            )
            for name in ("votes_UC", "bias_C", "rarity_U")
        ),
    ],
)
def test_a_strange_file_is_one_sentence(spoil, words, tmp_path):
    path = tmp_path / "linear.safetensors"
    write_linear(path, linear())
    spoil(path)
    with pytest.raises(ValueError, match=words):
        read_linear(path, 3, Terms.words)


@pytest.fixture
def folder(model_folder, tmp_path):
    """A model that a linear one answers beside, by four tenths."""
    return shipped(model_folder, tmp_path, Blend(linear(), 0.4, 2.0))


def shipped(model_folder, tmp_path, blend, *tuned):
    plain = load(model_folder)
    save(
        tmp_path / "model",
        plain.network,
        model=plain.model,
        data=DataConfig(max_length=plain.max_length),
        tokenizer=plain.tokenizer,
        labels=plain.labels,
        tuned=Tuned(blend, *tuned),
    )
    return tmp_path / "model"


def test_both_answer_together_wherever_the_folder_is(folder, model_folder, tmp_path):
    shutil.move(folder, tmp_path / "elsewhere")
    whole, alone = load(tmp_path / "elsewhere"), load(model_folder)
    assert json.loads((tmp_path / "elsewhere" / "config.json").read_text())["linear"] == whole.share == 0.4
    wanted = 0.6 * (alone.logits(TEXTS) / 2).softmax(-1) + 0.4 * linear_logits(linear(), TEXTS, None).softmax(-1)
    torch.testing.assert_close(whole.logits(TEXTS).softmax(-1), wanted)
    one = whole.predict(TEXTS[:1])[0]
    assert list(one.probabilities.values()) == pytest.approx(wanted[0].tolist(), abs=1e-6)
    for at, text in enumerate(TEXTS):
        torch.testing.assert_close(whole.logits([text])[0], whole.logits(TEXTS)[at])


@pytest.mark.parametrize("share", [0.4, 0.0])
def test_each_member_may_be_asked(model_folder, tmp_path, share):
    whole, alone = load(shipped(model_folder, tmp_path, Blend(linear(), share))), load(model_folder)
    assert whole.members == (("network", "linear") if share else ("network",))
    assert alone.members == ("network",)
    found = whole.member_logits(TEXTS)
    assert list(found) == ["network", "linear", "both"]
    assert found["network"].equal(alone.logits(TEXTS))
    assert found["linear"].equal(linear_logits(linear(), TEXTS, None))
    assert found["both"].equal(whole.logits(TEXTS))
    assert found["both"].equal(found["network"]) is (share == 0)
    assert {name: one.shape for name, one in alone.member_logits(TEXTS).items()} == {"network": (6, 3)}


@pytest.mark.parametrize("share", [0.4, 0.0, 1.0])
@pytest.mark.parametrize("multi", [False, True])
def test_each_member_may_answer_alone(model_folder, tmp_path, monkeypatch, share, multi):
    """With its own thresholds, and uncalibrated but for the network that answers alone, which was calibrated."""
    own = {"network": [0.1, 0.9, 0.5], "linear": [0.2, 0.2, 0.8]}
    folder = shipped(model_folder, tmp_path, Blend(linear(), share, 2.0), *(([0.5] * 3, own) if multi else ()))
    (folder / "calibration.json").write_text(json.dumps({"method": "vector", "scale": [0.5] * 3, "shift": [1, 0, -1]}))
    whole, plain = load(folder), load(model_folder)
    network, alone = whole.alone("network"), whole.alone("linear")
    assert (network.members, alone.members) == (("network",), ("linear",))
    wanted = plain.logits(TEXTS) * 0.5 + torch.tensor([1.0, 0.0, -1.0]) if share == 0 else plain.logits(TEXTS)
    torch.testing.assert_close(network.logits(TEXTS), wanted)
    if share < 1:
        monkeypatch.setattr(alone.network, "forward", None)  # it is not asked
        linear_nC = linear_logits(linear(), TEXTS, None)
        torch.testing.assert_close(alone.probabilities(alone.logits(TEXTS)), whole.probabilities(linear_nC))
    if multi:
        moved = whole.calibration.thresholds([0.5] * 3)
        assert whole.thresholds == moved
        assert network.thresholds == (moved if share == 0 else own["network"])
        assert alone.thresholds == (moved if share == 1 else own["linear"])
    with pytest.raises(ValueError, match="the model has no linear model that could answer alone"):
        plain.alone("linear")
    assert plain.alone("network") is plain


def test_the_network_runs_once_for_all_members(folder, monkeypatch):
    whole, times = load(folder), []
    forward = whole.network.forward
    monkeypatch.setattr(whole.network, "forward", lambda *given: times.append(1) or forward(*given))
    whole.member_logits(TEXTS)
    assert len(times) == 1


def test_each_member_gives_labels_from_thresholds_of_its_own(model_folder, tmp_path):
    own = {"network": [0.1, 0.9, 0.5], "linear": [0.2, 0.2, 0.8]}
    whole = load(shipped(model_folder, tmp_path, Blend(linear(), 0.4), [0.5] * 3, own))
    assert (whole.thresholds, whole.member_thresholds) == ([0.5] * 3, own)
    chance = torch.tensor([[0.15, 0.6, 0.6]])
    given = {name: whole.alone(name).given(chance).tolist()[0] for name in ("network", "linear")}
    assert given == {"network": [True, False, True], "linear": [False, True, False]}
    assert whole.given(chance).tolist() == [[False, True, True]]
    path = tmp_path / "model" / "thresholds.json"
    held = json.loads(path.read_text())
    del held["linear"]
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="must hold a list for each of both, network and linear"):
        load(tmp_path / "model")


@pytest.mark.parametrize("thresholds", [None, [0.2, 0.5, 0.7]])
def test_a_baseline_is_read_as_it_was_written(model_folder, tmp_path, thresholds):
    plain = load(model_folder)
    plain.thresholds = thresholds
    assert plain.baseline(tmp_path) is None
    assert plain.baseline(None) is None
    write_baseline(tmp_path, LinearBaseline(linear(), thresholds))
    found = plain.baseline(tmp_path)
    assert found.thresholds == thresholds
    assert found.logits(TEXTS, None).equal(linear_logits(linear(), TEXTS, None))
    for content, words in (
        ('{"terms": "letters"}', "terms=letters is not a choice"),
        ('{"thresholds": [2, 0, 0]}', "is out of range"),
        ('{"thresholds": [0.5]}', "holds 1 thresholds for 3 classes"),
        ('{"path": "x"}', "path=x is not a setting"),
    ):
        (tmp_path / "baseline.json").write_text(content)
        with pytest.raises(ValueError, match=words):
            plain.baseline(tmp_path)


def test_the_baseline_of_a_folder_with_a_linear_model_is_that_one(folder, tmp_path):
    write_baseline(tmp_path, LinearBaseline(linear().over(3.0)))
    assert load(folder).baseline(tmp_path).logits(TEXTS, None).equal(linear_logits(linear(), TEXTS, None))


def test_an_early_folder_whose_linear_model_counted_in_another_way_is_refused(folder):
    settings = json.loads((folder / "config.json").read_text())
    del settings["terms"]
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"linear=0\.4 without terms.*train the model again, or put 0 there"):
        load(folder)
    (folder / "config.json").write_text(json.dumps(settings | {"linear": 0}))
    assert load(folder).members == ("network",)


def test_a_folder_without_its_linear_model_is_not_opened(folder):
    (folder / "linear.safetensors").unlink()
    with pytest.raises(ValueError, match=r"linear\.safetensors cannot be read|No such file"):
        load(folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"linear": 1.5}))
    with pytest.raises(ValueError, match=r"linear=1\.5 is out of range"):
        load(folder)


def test_the_pull_asks_for_no_little_share_of_who_knows_nothing():
    """The network is right but in one row of fifty, the other one guesses: its smallest share would cost the rows."""
    labels = torch.arange(400) % 2
    network_nC = 4.0 * torch.nn.functional.one_hot(torch.where(torch.arange(400) % 50 < 1, 1 - labels, labels), 2)
    assert best_share(network_nC, torch.zeros(400, 2), labels)[0] == 0.0


def test_a_network_that_was_trained_to_find_the_rare_class_keeps_its_say():
    """One row in twenty is rare. The network finds all of them and too many, the linear model none: what rows of the
    rare class count for decides who is right."""
    labels = (torch.arange(400) % 20 == 0).long()
    wary_n = (torch.arange(400) % 4 == 0).float()
    network_nC = torch.stack((-2 * wary_n, 2 * wary_n), 1) - torch.tensor([0.0, 2.0])
    linear_nC = torch.tensor([1.5, -1.5]).repeat(400, 1)
    weights_C = torch.tensor([400 / (2 * 380), 400 / (2 * 20)])
    assert best_share(network_nC, linear_nC, labels)[0] > 0.8
    assert best_share(network_nC, linear_nC, labels, weights_C)[0] < 0.2
    assert best_share(network_nC, linear_nC, labels, torch.ones(2)) == best_share(network_nC, linear_nC, labels)
    marks_nC = torch.stack((1 - labels, labels), 1)
    assert best_share(network_nC, linear_nC, marks_nC)[0] > 0.8
    assert best_share(network_nC, linear_nC, marks_nC, weights_C)[0] < 0.5


@pytest.mark.parametrize(
    ("init_from", "few", "prior_share"),
    [
        ("", 0, LINEAR_FIRST),
        ("", 50, LINEAR_FIRST),
        ("outputs/other", 0, NETWORK_FIRST),
        ("outputs/other", 50, NETWORK_ALONE),
    ],
)
def test_few_rows_leave_the_answer_to_the_linear_model_unless_weights_are_trained(
    monkeypatch, init_from, few, prior_share
):
    found = {}
    monkeypatch.setattr(pipeline, "cached_linear", lambda *_: None)
    monkeypatch.setattr(pipeline, "tune", lambda *_, **settings: found.update(settings))
    run = SimpleNamespace(data=DataConfig(), init_from=init_from, linear=True, optim=OptimConfig(few=few))
    splits = SimpleNamespace(labels=["a", "b"], train=[""], validation=[], multi=False, kept={})
    for own in (None, object()):
        pipeline.fit_members(SimpleNamespace(run=run, splits=splits, user_network=own))
        assert found == {"answers": True, "prior_share": prior_share, "has_head": own is None}


def test_a_network_that_answers_alone_is_as_sure_as_validation_rows_bear_out(model_folder, tmp_path, monkeypatch):
    """Its head is divided by the temperature; all else is what it is without a linear model."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    rows = [f"a {('bad', 'good')[at % 2]} film {at},{('no', 'yes')[at % 2]}" for at in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]))
    words = [f"data.path={tmp_path / 'rows.csv'}", f"init_from={model_folder}", "hardware=cpu", "trainer.max_epochs=1"]
    asked = []

    def found(network_nC, linear_nC, labels, *_):
        asked.append(best_temperature(network_nC, labels, torch.ones(())))
        return 0.0, asked[0], 1.0

    monkeypatch.setattr(blend, "best_share", found)
    weights = []
    for name, answers in (("raw", "false"), ("divided", "true")):
        assert main(["train", *words, f"linear={answers}", f"output={tmp_path / name}"]) == 0
        weights.append(load_file(tmp_path / name / "model" / "model.safetensors"))
    (temperature,) = asked
    assert temperature != 1
    raw, divided = weights
    for name, one in raw.items():
        expected = one / temperature if name.startswith("head.") else one
        torch.testing.assert_close(divided[name], expected, rtol=1e-6, atol=0)
    model, text = load(tmp_path / "divided" / "model"), ["a good film 1"]
    alone = load(tmp_path / "raw" / "model").logits(text)
    torch.testing.assert_close(model.logits(text), alone / temperature)


def test_of_a_network_that_answers_alone_the_temperature_is_for_its_head(monkeypatch):
    rows = Rows(TEXTS, None, [0, 1, 1, 0, 2, 1], "x.csv", range(1, 7))
    network_nC = 0.1 * torch.eye(3)[torch.tensor(rows.labels)]
    for share, expected in ((0.0, (1.0, 0.25)), (0.5, (0.25, 1.0))):
        monkeypatch.setattr(blend, "best_share", lambda *_, share=share: (share, 0.25, 1.0))
        tuned = blend.tune(network_nC, linear(), rows, 3)
        assert tuned.blend is not None
        assert (tuned.blend.temperature, tuned.temperature) == expected
    assert blend.tune(network_nC, linear(), rows, 3, answers=False).temperature == 1.0


def test_with_any_number_of_labels_thresholds_are_those_of_the_divided_head(monkeypatch):
    """The same labels are given as without a temperature, by probabilities that are other ones."""
    sets = [(0,), (1, 2), (1,), (0, 2), (2,), ()]
    rows = Rows(TEXTS, None, [0, 2, 1, 2, 2, 3], "x.csv", range(1, 7), sets=sets)
    network_nC = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = []
    for temperature in (1.0, 0.25):
        found = 0.0, temperature, 1.0
        monkeypatch.setattr(blend, "best_share", lambda *_, found=found: found)
        tuned = blend.tune(network_nC, linear(), rows, 3)
        assert tuned.temperature == temperature
        assert tuned.member_thresholds["network"] == tuned.thresholds
        given.append((network_nC / temperature).sigmoid() >= torch.tensor(tuned.thresholds, dtype=torch.float64))
    assert torch.equal(*given)
    assert tuned.thresholds != blend.tune(network_nC, linear(), rows, 3, answers=False).thresholds


def test_a_network_without_a_head_to_divide_keeps_its_thresholds(monkeypatch):
    sets = [(0,), (1, 2), (1,), (0, 2), (2,), ()]
    rows = Rows(TEXTS, None, [0, 2, 1, 2, 2, 3], "x.csv", range(1, 7), sets=sets)
    network_nC = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(blend, "best_share", lambda *_: (0.0, 0.25, 1.0))
    tuned = blend.tune(network_nC, linear(), rows, 3, has_head=False)
    assert tuned.temperature == 1.0
    assert tuned.thresholds == blend.tune(network_nC, linear(), rows, 3, answers=False).thresholds


def test_the_logits_of_some_classes_are_divided():
    head = torch.nn.Linear(4, 5)
    x_BD = torch.randn(3, 4)
    before_BC = head(x_BD)
    blend.divide_head(head, 2.5, slice(1, 3))
    expected_BC = before_BC / torch.tensor([1, 2.5, 2.5, 1, 1])
    torch.testing.assert_close(head(x_BD), expected_BC)
