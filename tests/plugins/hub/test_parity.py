"""Hidden states and logits against transformers, for small random models of every family."""

from typing import Any

import pytest
import torch
from torch import Tensor

from manyheads.layout import Layout, Packed, Padded
from manyheads.nn import Classifier

LENGTHS = [7, 1, 12, 4]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("bert", {}),
    ("bert", {"type_vocab_size": 1, "hidden_act": "relu", "layer_norm_eps": 1e-5}),
    ("roberta", {}),
    ("xlm-roberta", {"pad_token_id": 2}),
    ("electra", {}),
    ("electra", {"embedding_size": 24}),
    ("distilbert", {}),
    ("modernbert", {}),
    ("modernbert", {"classifier_pooling": "mean", "norm_bias": True, "global_attn_every_n_layers": 2}),
    ("modernbert", {"attention_bias": True, "mlp_bias": True, "classifier_bias": True, "num_hidden_layers": 2}),
    ("modernbert", {"classifier_pooling": "mean", "global_rope_theta": 160_000.0, "local_rope_theta": 160_000.0}),
    ("deberta-v2", {}),
    ("deberta-v2", {"share_att_key": False, "max_relative_positions": 7}),
    ("deberta-v2", {"pos_att_type": ["c2p"], "position_buckets": -1}),
    ("deberta-v2", {"pos_att_type": "p2c", "share_att_key": False, "norm_rel_ebd": "none"}),
    ("deberta-v2", {"position_buckets": -1, "max_relative_positions": 5, "pooler_hidden_act": "tanh"}),
    ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
    ("deberta-v2", {"conv_kernel_size": 5, "conv_groups": 2, "hidden_act": "relu"}),
    ("deberta-v2", {"position_biased_input": True, "type_vocab_size": 2}),
    ("deberta-v2", {"position_biased_input": True, "type_vocab_size": 1, "pooler_hidden_act": "relu"}),
    ("deberta-v2", {"relative_attention": False, "norm_rel_ebd": "none"}),
    ("deberta-v2", {"relative_attention": False}),
    ("deberta-v2", {"relative_attention": False, "pos_att_type": None, "norm_rel_ebd": "none", "conv_kernel_size": 1}),
]
IDS = [" ".join([kind, *(f"{name}={value}" for name, value in options.items())]) for kind, options in VARIANTS]


@pytest.fixture(scope="module", params=VARIANTS, ids=IDS)
def both(request, tmp_path_factory, theirs, read) -> tuple[Any, Classifier]:
    kind, options = request.param
    model, folder = theirs(kind, **options), tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return model, read(folder)[0]


def batch(model: Any) -> dict[str, Tensor]:
    """Ids, mask and segments of texts side by side, with pads behind them."""
    torch.manual_seed(3)
    keep_BL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids_BL = torch.randint(5, model.config.vocab_size, keep_BL.shape).masked_fill(~keep_BL, model.config.pad_token_id)
    inputs = {"input_ids": ids_BL, "attention_mask": keep_BL.long()}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        segments_BL = (torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS)[:, None] // 2) & keep_BL
        inputs["token_type_ids"] = segments_BL.long()
    return inputs


def in_layout(inputs: dict[str, Tensor], *, padded: bool) -> tuple[Tensor, Layout, Tensor | None]:
    keep_BL, segments_BL = inputs["attention_mask"].bool(), inputs.get("token_type_ids")
    if padded:
        return inputs["input_ids"], Padded(keep_BL), segments_BL
    segments_N = None if segments_BL is None else segments_BL[keep_BL]
    return inputs["input_ids"][keep_BL], Packed.of_lengths(LENGTHS), segments_N


def states(network: Classifier, ids: Tensor, layout: Layout, segments: Tensor | None) -> tuple[list[Tensor], Tensor]:
    """What the embeddings, each layer and the last norm give, without pads, and the logits."""
    found: list[Tensor] = []
    places = [network.embeddings, *network.encoder.layers, network.encoder.norm]
    hooks = [place.register_forward_hook(lambda _, __, x: found.append(x)) for place in places]
    logits = network(ids, layout, segments)
    for hook in hooks:
        hook.remove()
    kept = layout.keep_BL if isinstance(layout, Padded) else slice(sum(LENGTHS))
    return [x[kept] for x in found], logits


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@torch.no_grad()
def test_hidden_states_and_logits_are_those_of_transformers(both, padded):
    model, network = both
    inputs = batch(model)
    expected = model(**inputs, output_hidden_states=True)
    (*hidden, last), logits = states(network, *in_layout(inputs, padded=padded))
    kept = inputs["attention_mask"].bool()
    hidden[-1] = last
    assert len(hidden) == len(expected.hidden_states)
    for ours, state in zip(hidden, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours, state[kept], atol=1e-5, rtol=0)
    torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=0)
    assert expected.logits.std(0).min() > 1e-3, "texts must differ for the logits to say anything"


OTHER_CLASSES = [(kind, suffix) for kind, _ in dict(VARIANTS).items() for suffix in ("Model", "ForMaskedLM")]
OTHER_CLASSES += [("bert", "ForPreTraining"), ("electra", "ForPreTraining"), ("distilbert", "ForQuestionAnswering")]


@pytest.mark.parametrize(("kind", "suffix"), OTHER_CLASSES)
@torch.no_grad()
def test_the_encoder_is_read_from_whatever_class_was_saved(kind, suffix, theirs, read, tmp_path):
    model = theirs(kind, suffix, num_labels=2)
    model.save_pretrained(tmp_path)
    inputs = batch(model)
    expected = model(**inputs, output_hidden_states=True).hidden_states[-1][inputs["attention_mask"].bool()]
    got = read(tmp_path)[0].encode(*in_layout(inputs, padded=False))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
