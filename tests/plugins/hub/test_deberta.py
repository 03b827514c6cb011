"""DeBERTa's attention by relative positions, against transformers; and what of a config.json is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config import HardwareConfig, ModelConfig, OptimConfig, Placement, Precision, RunConfig
from manyheads.errors import UserError
from manyheads.inference.packed import cast_once
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, assemble
from manyheads.nn.transformer import EncoderLayer
from manyheads.plugins.hub import disentangled
from manyheads.plugins.hub.disentangled import DisentangledAttention, bucketed
from manyheads.plugins.hub.families import ConfigFile, read_config
from manyheads.training.optim import freeze, make_optimizer

LENGTHS = [9, 1, 12, 2]
OWN: dict[str, Any] = {"share_att_key": False, "conv_kernel_size": 3}
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6}


def ids_of(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Padded ids, and the mask."""
    keep_BL = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids_BL = torch.randint(5, 53, keep_BL.shape, generator=torch.Generator().manual_seed(3))
    return ids_BL.masked_fill(~keep_BL, 1), keep_BL


@pytest.fixture(scope="module", params=[{}, OWN], ids=["shared", "of its own"])
def both(request, tmp_path_factory, theirs, read) -> tuple[Any, Classifier]:
    model, folder = theirs("deberta-v2", **request.param), tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return model, read(folder)[0]


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (8, 16), (6, 7), (256, 256), (31, 100), (4, 2000)])
def test_buckets_are_those_of_transformers(buckets, longest):
    theirs = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2").make_log_bucket_position
    distances = torch.arange(-3000, 3001)
    assert torch.equal(bucketed(distances, buckets, longest), theirs(distances, buckets, longest).long())
    assert bucketed(distances, 0, longest) is distances


@torch.no_grad()
def test_maps_are_the_attentions_of_transformers(both):
    model, network = both
    ids_BL, keep_BL = ids_of(LENGTHS)
    expected = model(input_ids=ids_BL, attention_mask=keep_BL.long(), output_attentions=True).attentions
    blocks = [layer.attention.block for layer in network.encoder.layers]
    seen: list[Tensor] = []
    for block in blocks:
        block.register_forward_pre_hook(lambda block, args: seen.append(block.maps(*args)[0]))
    network(ids_BL[keep_BL], Packed.of_lengths(LENGTHS))
    network(ids_BL, Padded(keep_BL))
    for block in blocks:
        block._forward_pre_hooks.clear()
    assert len(seen) == 2 * len(expected)
    for ours, weights in zip(seen, expected * 2, strict=True):
        kept = keep_BL[:, None, :, None].expand(weights.shape)
        torch.testing.assert_close(ours[kept], weights[kept], atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@torch.no_grad()
def test_a_gpu_gives_the_logits_of_the_cpu(both):
    network = both[1]
    ids_BL, keep_BL = ids_of(LENGTHS)
    layout = Packed.of_lengths(LENGTHS)
    expected = network(ids_BL[keep_BL], layout)
    network.cuda()
    try:
        exact = network(ids_BL[keep_BL].cuda(), layout.to("cuda")).cpu()
        with torch.autocast("cuda", torch.bfloat16):
            near = network(ids_BL[keep_BL].cuda(), layout.to("cuda")).float().cpu()
    finally:
        network.cpu()
    torch.testing.assert_close(exact, expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(near, expected, atol=0.05, rtol=0.03)


@torch.no_grad()
def test_a_text_has_the_same_logits_alone_in_a_batch_and_with_a_tail(both):
    network = both[1]
    ids_BL, keep_BL = ids_of(LENGTHS)
    together = network(ids_BL[keep_BL], Packed.of_lengths(LENGTHS))
    for row, length in enumerate(LENGTHS):
        alone = network(ids_BL[row, :length], Packed.of_lengths([length]))
        torch.testing.assert_close(alone, together[row : row + 1], atol=1e-5, rtol=0)
    tail = Packed.of_lengths(LENGTHS).rounded(16)
    filled = torch.cat([ids_BL[keep_BL], torch.full((tail.tail,), 7)])
    torch.testing.assert_close(network(filled, tail), together, atol=1e-5, rtol=0)


def test_gradients_are_those_of_transformers(both):
    """Of the table of distances, of a matrix that projects tokens and distances, and of the words."""
    model, network = both
    ids_BL, keep_BL = ids_of(LENGTHS)
    model.zero_grad()
    model(input_ids=ids_BL, attention_mask=keep_BL.long()).logits.square().sum().backward()
    network.zero_grad()
    network(ids_BL[keep_BL], Packed.of_lengths(LENGTHS)).square().sum().backward()
    encoder, block = model.deberta.encoder, network.encoder.layers[1].attention.block
    pairs = [(network.encoder.distances.rows, encoder.rel_embeddings)]
    if block.distance_key is not None:
        attention = encoder.layer[1].attention.self
        pairs += [(block.distance_key, attention.pos_key_proj), (block.distance_query, attention.pos_query_proj)]
        pairs += [(network.encoder.layers[0].convolution, encoder.conv.conv)]
    for ours, its in pairs:
        assert its.weight.grad.abs().max() > 0
        torch.testing.assert_close(ours.weight.grad, its.weight.grad, atol=1e-4, rtol=1e-4)
    query = encoder.layer[1].attention.self.query_proj.weight.grad
    torch.testing.assert_close(block.project.weight.grad[:24], query, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_text_beyond_the_buckets_reads_the_whole_table(theirs, read, tmp_path):
    """And one that is longer than any distance that was trained."""
    model = theirs("deberta-v2", max_relative_positions=10, max_position_embeddings=64)
    model.save_pretrained(tmp_path)
    network = read(tmp_path, max_length=64)[0]
    for length in (3, 4, 5, 9, 11, 40):
        ids = torch.arange(length)[None] % 40 + 5
        torch.testing.assert_close(network(ids), model(input_ids=ids).logits, atol=1e-5, rtol=0)


@torch.no_grad()
def test_parts_of_a_layer_and_bf16_matrices_are_the_same_layer(both):
    network = both[1]
    ids_BL, keep_BL = ids_of(LENGTHS)
    ids_N, layout = ids_BL[keep_BL], Packed.of_lengths(LENGTHS)
    x_ND = network.embeddings(ids_N, layout)
    layer = network.encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    in_parts = layer.in_parts(lambda part, *args: part(*args), x_ND, layout)
    torch.testing.assert_close(in_parts, layer(x_ND, layout), atol=1e-6, rtol=0)
    narrow = cast_once(network, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(narrow(ids_N, layout).float(), network(ids_N, layout).float(), atol=0.02, rtol=0.02)
    assert narrow.encoder.distances is not network.encoder.distances
    assert narrow.encoder.layers[1].attention.block.shared == [narrow.encoder.distances]


def test_distances_are_projected_once_until_a_weight_changes(both, monkeypatch):
    """In inference, to the bit; at most `KEPT_ROWS` of them are kept."""
    network = copy.deepcopy(both[1])
    blocks = [layer.attention.block for layer in network.encoder.layers]
    monkeypatch.setattr(disentangled, "KEPT_ROWS", 30)

    def answer(length: int, *, fresh: bool) -> Tensor:
        """Logits of a text that is read alone; `fresh`: all is computed."""
        with torch.no_grad() if fresh else torch.inference_mode():
            return network(torch.arange(length) + 5, Packed.of_lengths([length]))

    def counted(length: int) -> int:
        calls: list[int] = []
        hook = network.encoder.distances.register_forward_hook(lambda *_: calls.append(1))
        assert torch.equal(answer(length, fresh=False), answer(length, fresh=True))
        hook.remove()
        return len(calls) - len(blocks)  # of what is not fresh

    assert [counted(length) for length in (4, 7, 4, 7)] == [len(blocks), len(blocks), 0, 0]
    before = answer(4, fresh=True)
    network.encoder.distances.rows.weight.data = network.encoder.distances.rows.weight + 1
    assert not torch.equal(answer(4, fresh=False), before)
    for change in (
        lambda: network.load_state_dict({name: one * 1.5 for name, one in network.state_dict().items()}),
        lambda: torch.optim.SGD(network.parameters(), lr=0.1).step(),
        network.double,
    ):
        for weight in network.parameters():
            weight.grad = torch.ones_like(weight)
        assert counted(4) in (0, len(blocks))
        change()
        assert counted(4) == len(blocks)
    assert counted(9) == counted(16) == len(blocks)
    assert all(sum(len(key_PE) for key_PE, _ in block.kept.values()) <= 30 for block in blocks)
    assert counted(16) == len(blocks), "too long to be kept"
    network.train()
    answer(5, fresh=False)  # with dropout
    assert not any(block.kept for block in blocks)


def test_a_step_of_training_drops_what_is_kept(both):
    """Also of the fused AdamW, which changes weights and does not count it."""
    network = copy.deepcopy(both[1]).eval()
    optimizer, ids, layout = (
        torch.optim.AdamW(network.parameters(), fused=True),
        torch.arange(4) + 5,
        Packed.of_lengths([4]),
    )
    for _ in range(3):
        with torch.inference_mode():
            found = network(ids, layout)
        with torch.no_grad():
            assert torch.equal(network(ids, layout), found)
        network.train()(ids, layout).square().sum().backward()
        optimizer.step()
        network.eval()


def test_it_learns_from_scratch_with_grouped_heads_and_other_blocks():
    """The settings of attention keep their meaning: all weights have a gradient, and none is there twice."""
    model = ModelConfig(
        encoder="deberta", n_layers=2, n_heads=4, n_kv_heads=2, d_model=16, d_k=6, d_v=4, d_ff=24, positions="alibi",
        encoder_options={"buckets": 8, "share": False, "convolution": 3}, placement=Placement.pre, dropout=0.1,
    )  # fmt: skip
    torch.manual_seed(0)
    network = assemble(model, vocab_size=53, n_classes=3, max_length=32)
    names = [name for name in network.state_dict() if "distances" in name]
    assert names == ["encoder.distances.rows.weight", "encoder.distances.norm.weight", "encoder.distances.norm.bias"]
    ids_BL, keep_BL = ids_of(LENGTHS)
    network(ids_BL[keep_BL], Packed.of_lengths(LENGTHS)).square().sum().backward()
    unused = [name for name, one in network.named_parameters() if one.grad is None]
    assert not unused
    shared = ModelConfig(encoder="deberta", d_model=16, n_heads=2, n_kv_heads=1, d_k=8, d_v=8, d_ff=24)
    block = assemble(shared, vocab_size=9, n_classes=2, max_length=9).encoder.layers[0].attention.block
    assert isinstance(block, DisentangledAttention)
    assert block.score.scale == pytest.approx(24**-0.5)


def test_frozen_layers_answer_as_before():
    """The table of distances, which all layers read, is frozen with the lowest of them."""
    model = ModelConfig(encoder="deberta", n_layers=2, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=8, dropout=0.0)
    network, optim = assemble(model, vocab_size=53, n_classes=3, max_length=32), OptimConfig(freeze=1)
    ids_N, layout = torch.arange(9) + 5, Packed.of_lengths([9])
    freeze(network, optim)
    x_ND = network.embeddings.eval()(ids_N, layout)
    before_ND = network.encoder.layers[0](x_ND, layout)
    network(ids_N, layout).square().sum().backward()
    make_optimizer(network, optim).step()
    assert torch.equal(network.encoder.layers[0](x_ND, layout), before_ND)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"embedding_size": 6}, "embedding_size=6, but manyheads has no such option, so this model cannot be read"),
    ({"attention_head_size": 2}, "attention_head_size=2, but manyheads has no such option"),
    ({"relative_attention": True}, "pos_att_type=[], but it must name c2p, p2c or both"),
    ({"pos_att_type": "c2p|p2p"}, "pos_att_type=['c2p', 'p2p'], but it must name c2p, p2c or both"),
    ({"conv_kernel_size": 4}, "conv_kernel_size=4, but it must be odd, and conv_groups=1 divide 8"),
    ({"conv_act": "silu"}, "conv_act=silu, but manyheads has gelu, relu or tanh there"),
    ({"norm_rel_ebd": "batch"}, "norm_rel_ebd=batch, but manyheads has none or layer_norm there"),
    (
        {"relative_attention": True, "pos_att_type": ["c2p"], "position_buckets": 2000},
        "position_buckets=2000, but it must be from 4 to less than twice 512 - 2",
    ),
    ({"max_position_embeddings": 2**20}, "position_buckets=-1, but a table has at most 65536 distances"),
    ({"conv_kernel_size": 257}, "conv_kernel_size=257, but it must be a whole number from 0 to 255"),
    (
        {"type_vocab_size": 1, "position_biased_input": False},
        "type_vocab_size=1, but without positions to add that one to, this model cannot be read",
    ),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED, ids=[next(iter(one)) for one, _ in REFUSED])
def test_what_cannot_be_read_is_one_sentence(settings, said):
    with pytest.raises(UserError) as refused:
        read_config("deberta-v2", ConfigFile(SIZES | settings))
    assert str(refused.value).startswith(f"config.json: {said}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"buckets": 3}, "model.encoder_options.buckets=3 must be at least 4 and less than twice"),
        (
            {"buckets": 0, "max_distance": 10**9},
            "model.encoder_options.max_distance=1000000000 is out of range: use 1 to",
        ),
        ({"buckets": 0, "max_distance": 0}, "model.encoder_options.max_distance=0 is out of range: use 1 to 65536"),
        ({"convolution": -1}, "model.encoder_options.convolution=-1 must be odd"),
        ({"convolution_groups": 0}, "model.encoder_options.convolution_groups=0 does not divide model.d_model=128"),
        ({"convolution": 2}, "model.encoder_options.convolution=2 must be odd, so that a token is in its middle"),
        ({"convolution_activation": "x"}, "model.encoder_options.convolution_activation=x must be tanh, gelu or relu"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(options, said):
    model = ModelConfig(encoder="deberta", encoder_options=options)
    with pytest.raises(UserError, match=f"^{said}"):
        assemble(model, vocab_size=9, n_classes=2, max_length=9)


def test_positions_that_turn_queries_are_refused():
    """A query that was turned by its position would be compared with distances, which have none."""
    model = ModelConfig(encoder="deberta", positions="rotary")
    with pytest.raises(
        UserError, match=r"^model\.positions=rotary turns queries and keys, which .*: use model\.positions"
    ):
        assemble(model, vocab_size=9, n_classes=2, max_length=9)
    options = {"c2p": False, "p2c": False}  # then nothing is compared with distances
    plain = ModelConfig(encoder="deberta", positions="rotary", encoder_options=options)
    assemble(plain, vocab_size=9, n_classes=2, max_length=9)


def test_fp16_is_refused_before_anything_is_read(capsys):
    assert main(["train", "model.encoder=deberta", "hardware.precision=fp16"]) == 2
    said = "hardware.precision=fp16 is too narrow for the scores of model.encoder=deberta, which overflow: use"
    assert capsys.readouterr().err.startswith(said)
    RunConfig(model=ModelConfig(encoder="deberta"), hardware=HardwareConfig(precision=Precision.bf16))


def test_heads_that_are_left_over_are_known(theirs, read, tmp_path: Path):
    """As in the files of DeBERTa-v3: two heads of pretraining, and positions that nothing reads."""
    from safetensors.torch import load_file, save_file

    model = theirs("deberta-v2", "Model")
    model.save_pretrained(tmp_path)
    held = {f"deberta.{name}": one for name, one in load_file(tmp_path / "model.safetensors").items()}
    held["deberta.embeddings.position_embeddings.weight"] = torch.zeros(16, 24)
    held |= {"mask_predictions.dense.weight": torch.zeros(24, 24), "lm_predictions.lm_head.bias": torch.zeros(53)}
    save_file(held, tmp_path / "model.safetensors")
    ids_BL, keep_BL = ids_of(LENGTHS)
    expected = model(input_ids=ids_BL, attention_mask=keep_BL.long()).last_hidden_state[keep_BL]
    torch.testing.assert_close(
        read(tmp_path)[0].encode(ids_BL[keep_BL], Packed.of_lengths(LENGTHS)), expected, atol=1e-5, rtol=0
    )


def test_options_that_the_weights_fix_are_refused_one_by_one(theirs, tmp_path: Path):
    """Also where the tensors would fit: such a run would train another model, and say nothing."""
    theirs("deberta-v2", "Model").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    for typed, of_weights in (
        ("c2p=false", "true"),
        ("max_distance=64", "16"),
        ("convolution_activation=relu", "tanh"),
    ):
        word = f"model.encoder_options.{typed}"
        with pytest.raises(UserError, match=rf"^{word}, but the weights of init_from=\S+ have {of_weights}: remove it"):
            compose("train", [f"init_from={tmp_path}", word])
    run = compose("train", [f"init_from={tmp_path}", "model.encoder_options.c2p=true"])
    assert run.model.encoder_options["max_distance"] == 16
