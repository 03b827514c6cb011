"""What occurs in the other text, against sets of Python."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.nn.embeddings import occurs_in_other

texts = st.lists(st.integers(0, 8), max_size=5)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
def test_a_token_matches_where_the_other_text_has_it(pairs):
    ids = torch.tensor([one for first, second in pairs for one in first + second], dtype=torch.int64)
    segments = torch.tensor([side for pair in pairs for side in (0, 1) for _ in pair[side]], dtype=torch.int64)
    layout = Packed.of_lengths([len(first) + len(second) for first, second in pairs])
    expected = [int(one in set(pair[1 - side])) for pair in pairs for side in (0, 1) for one in pair[side]]
    assert occurs_in_other(ids, layout, segments).tolist() == expected
    found_BL = occurs_in_other(layout.grid(ids), Padded(layout.keep_BL), layout.grid(segments))
    assert found_BL[layout.keep_BL].tolist() == expected
    tail = layout.rounded(7)
    behind = ids.new_zeros(tail.tail)
    assert (
        occurs_in_other(torch.cat([ids, behind]), tail, torch.cat([segments, behind]))[: ids.numel()].tolist()
        == expected
    )


def test_single_texts_have_none(small):
    models = [assemble(small(matches=on), vocab_size=9, n_classes=2, max_length=8) for on in (False, True)]
    assert models[0].state_dict().keys() == models[1].state_dict().keys()


def test_a_match_reaches_the_logits_joint_and_across(small):
    for pair in ("joint", "cross"):
        torch.manual_seed(0)
        model = assemble(small(matches=True, pair=pair), vocab_size=9, n_classes=2, max_length=8, n_segments=2).eval()
        ids, segments = torch.tensor([2, 5, 3, 6, 3]), torch.tensor([0, 0, 0, 1, 1])
        before = model(ids, Packed.of_lengths([5]), segments)
        with torch.no_grad():
            model.embeddings.matches.weight[1] += torch.randn(model.embeddings.matches.embedding_dim)
        assert not torch.allclose(model(ids, Packed.of_lengths([5]), segments), before)
        model.embeddings.matches.weight.data[0] += 1
        padded = model(ids[None], Padded(torch.ones(1, 5, dtype=torch.bool)), segments[None])
        torch.testing.assert_close(padded, model(ids, Packed.of_lengths([5]), segments))
