"""Blocks of users, as docs/extending.md shows them: each is made, read alike in every batch, saved and opened."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.cli.compose import compose
from manyheads.cli.errors import user_sentence
from manyheads.config import ModelConfig, RunConfig
from manyheads.config.blocks import NUMBERS
from manyheads.errors import UserError
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, MultiHeadAttention, assemble, attend
from manyheads.nn.classifier import mean
from manyheads.nn.cost import flops_per_token
from manyheads.plugin import Part, Plugin
from manyheads.runs.config_file import read_run, save_run
from manyheads.training.own_parts import check_part

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
LENGTHS = [3, 1, 6]
OWN: dict[str, dict[str, Any]] = {
    "score": {"score": "bilinear", "score_options": {"power": 0.5}},
    "normaliser": {"normaliser": "squared", "normaliser_options": {"floor": 1e-3}},
    "positions": {"positions": "ramp"},
    "pooling": {"pooling": "last", "pooling_options": {"skip": 1}},
    "activation": {"activation": "square"},
    "norm": {"norm": "scale"},
    "encoder": {"encoder": "sums", "encoder_options": {"decay": 0.5}},
}


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """What the page's example defines."""
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "my_parts"}
    exec(compile(code, "my_parts", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def registered(shown) -> Iterator[None]:
    plugin.register(shown["PLUGIN"])
    yield
    for name in plugin.given():
        plugin.unregister(name)


def built(model: ModelConfig) -> Classifier:
    torch.manual_seed(0)
    return assemble(model, vocab_size=20, n_classes=3, max_length=12).eval()


def logits(network: Classifier, lengths: list[int], ids_N: Tensor) -> Tensor:
    return network(ids_N, Packed.of_lengths(lengths))


@pytest.mark.parametrize("kind", OWN)
def test_a_part_of_each_kind_reads_a_document_alike_in_every_batch(kind, small):
    model = small(**({"d_model": 12, "n_layers": 2} if kind == "encoder" else {}) | OWN[kind])
    network, ids_N = built(model), torch.arange(sum(LENGTHS)) + 5
    together_BC = logits(network, LENGTHS, ids_N)
    alone_BC = torch.cat([logits(network, [len(ids)], ids) for ids in ids_N.split(LENGTHS)])
    torch.testing.assert_close(together_BC, alone_BC)
    layout = Packed.of_lengths(LENGTHS)
    torch.testing.assert_close(network(layout.grid(ids_N), Padded(layout.keep_BL)), together_BC)
    check_part(RunConfig(model=model), network)
    without = replace(model, **{kind: getattr(ModelConfig(), kind), f"{kind}_options": {}})
    assert not torch.equal(logits(built(without), LENGTHS, ids_N), together_BC)
    assert flops_per_token(model, 9) > 0


@pytest.mark.parametrize("kind", [kind for kind, fields in OWN.items() if f"{kind}_options" in fields])
def test_an_option_changes_the_model_and_is_in_its_own_type(kind, small):
    fields = small(**({"d_model": 12, "n_layers": 2} if kind == "encoder" else {}) | OWN[kind])
    (option,) = getattr(fields, f"{kind}_options")
    ids_N = torch.arange(sum(LENGTHS)) + 5
    usual = replace(fields, **{f"{kind}_options": {}})
    assert not torch.equal(logits(built(fields), LENGTHS, ids_N), logits(built(usual), LENGTHS, ids_N))
    with pytest.raises(ValueError, match=rf"model.{kind}_options.{option}=wide has the wrong type: it must be a"):
        replace(fields, **{f"{kind}_options": {option: "wide"}})
    with pytest.raises(ValueError, match=rf"model.{kind}_options.other=1 is not an option of .*: choose {option}"):
        replace(fields, **{f"{kind}_options": {"other": 1}})


def test_an_own_score_runs_by_the_textbook_formula_and_its_maps_are_its_weights(small):
    attention = built(small(**OWN["score"])).encoder.layers[0].attention.block  # type: ignore[union-attr]
    assert isinstance(attention, MultiHeadAttention)
    x_BLD, mask_BL = torch.randn(2, 5, 12), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    weights_BHLM, contexts_BHLV = attention.maps(x_BLD, mask_BL)
    torch.testing.assert_close(weights_BHLM.sum(-1)[mask_BL[:, None].expand(-1, 2, -1)], torch.ones(16))
    mixed_BLD = attention.output(contexts_BHLV.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(mixed_BLD[mask_BL], attention(x_BLD, mask_BL)[mask_BL])
    q, k, v = torch.randn(3, 1, 2, 4, 4).unbind()
    expected = (q * attention.score.compare.weight_HK @ k.mT * 0.5).softmax(-1) @ v  # type: ignore[union-attr]
    torch.testing.assert_close(attend(q, k, v, score=attention.score), expected)


def test_a_part_begins_as_its_constructor_made_it():
    torch.manual_seed(0)

    class Zero(nn.Module):
        def __init__(self, d_model: int) -> None:
            super().__init__()
            self.mix = nn.Linear(d_model, d_model)
            nn.init.zeros_(self.mix.weight)

        def forward(self, x, layout):
            return layout.grid(self.mix(x)).sum(1)

    plugin.register(Plugin("zeros", parts=[Part("pooling", "zero", Zero)]))
    assert not built(ModelConfig(pooling="zero")).pooling.mix.weight.any()  # type: ignore[union-attr]


def test_own_choices_and_options_are_typed_recorded_and_compared(tmp_path):
    words = ["model.pooling=last", "model.pooling_options.skip=1", "model.score=bilinear"]
    run = compose("train", words)
    assert (run.model.pooling, run.model.pooling_options, run.model.score) == ("last", {"skip": 1}, "bilinear")
    save_run(run, tmp_path / "config.yaml")
    assert read_run(tmp_path) == run
    with pytest.raises(ValueError, match=r"model.pooling_options.skip=1 is not an option of model.pooling=mean"):
        compose("train", words[1:])
    with pytest.raises(ValueError, match=r"model.pooling=lost is not a choice: choose .* last"):
        compose("train", ["model.pooling=lost"])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("pooling: last\npooling_options: {skip: 2}\n")
    assert compose("train", ["model=mine"], config_dir=str(tmp_path)).model.pooling_options == {"skip": 2}
    plugin.unregister("my_parts")
    with pytest.raises(ValueError, match="which was not given"):
        read_run(tmp_path)


def test_an_option_that_has_no_default_is_asked_for():
    plugin.register(Plugin("needy", parts=[Part("pooling", "needs", type("Needs", (), {"__init__": needs}))]))
    with pytest.raises(ValueError, match=r"model.pooling_options.k is not given, which model.pooling=needs needs: add"):
        ModelConfig(pooling="needs")
    assert ModelConfig(pooling="needs", pooling_options={"k": 3}).pooling_options == {"k": 3}


def needs(self: Any, d_model: int, k: int) -> None: ...


def last_of_grid(x: Tensor, layout: Any) -> Tensor:
    return layout.grid(x)[:, -1]


def endless(x: Tensor, layout: Any) -> Tensor:
    return layout.grid(x).sum(1) / 0.0


def constant(x: Tensor, layout: Any) -> Tensor:
    return mean(x, layout).detach()


class Hidden(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor, layout: Any) -> Tensor:
        return mean(x, layout)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (last_of_grid, r"the logits of a text alone differ by [\d.e-]+ from those in a packed batch"),
        (endless, "its logits are not finite"),
        (constant, "no gradient comes through it to the words"),
        (Hidden, r"its weight pooling\.unused has no gradient"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_part_that_breaks_a_promise_is_refused_before_the_first_step(make, problem, small):
    plugin.register(Plugin("broken", parts=[Part("pooling", "broken", make)]))
    model = small(pooling="broken")
    network, before = built(model), torch.get_rng_state()
    weights = {name: one.clone() for name, one in network.state_dict().items()}
    with pytest.raises(ValueError, match=rf"^pooling broken of plugin broken: {problem}; docs/extending.md"):
        check_part(RunConfig(model=model), network)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one, weights[name]) for name, one in network.state_dict().items())


def test_a_mistake_that_a_part_raises_names_its_plugin():
    code = "def picky(x, layout, *, k=1):\n    if k < 2:\n        raise ValueError('k is too small: use 2')\n"
    names: dict[str, Any] = {"__name__": "picky_parts"}
    exec(code, names)
    plugin.register(Plugin("picky", parts=[Part("pooling", "picky", names["picky"])]))
    with pytest.raises(ValueError, match="k is too small") as raised:
        built(ModelConfig(pooling="picky"))(torch.arange(3), Packed.of_lengths([3]))
    assert user_sentence(raised.value) == "plugin picky: k is too small: use 2 (line 3 of <string>)"
    names = {"__name__": "picky_parts"}
    exec("def picky(x, layout):\n    return int('no number')", names)
    plugin.register(Plugin("picky", parts=[Part("pooling", "picky", names["picky"])]))
    with pytest.raises(ValueError, match="invalid literal") as raised:
        built(ModelConfig(pooling="picky"))(torch.arange(3), Packed.of_lengths([3]))
    sentence = "plugin picky: invalid literal for int() with base 10: 'no number' (line 2 of <string>)"
    assert user_sentence(raised.value) == sentence, "its author finds the line"
    names = {"__name__": "picky_parts", "UserError": UserError}
    exec("def picky(x, layout):\n    raise UserError('k is too small: use 2')", names)
    plugin.register(Plugin("picky", parts=[Part("pooling", "picky", names["picky"])]))
    with pytest.raises(UserError) as raised:
        built(ModelConfig(pooling="picky"))(torch.arange(3), Packed.of_lengths([3]))
    assert user_sentence(raised.value) == "plugin picky: k is too small: use 2"


def test_an_encoder_reads_the_settings_that_its_signature_names():
    class Wide(nn.Module):
        def __init__(self, d_model: int, d_ff: int) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

        def forward(self, x, layout):
            return self.block(x)

    plugin.register(Plugin("wide", parts=[Part("encoder", "wide", Wide)]))
    run = compose("train", ["model.encoder=wide", "model.d_ff=24"])
    assert isinstance(run, RunConfig)
    assert built(run.model).encoder.block[0].out_features == 24  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"model.n_heads=2 does nothing with model.encoder=wide: remove it"):
        compose("train", ["model.encoder=wide", "model.n_heads=2"])


def test_the_page_names_the_numbers_of_every_kind():
    page = PAGE.read_text(encoding="utf-8")
    for kind, numbers in NUMBERS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` | `model.")]
        assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == set(numbers)
