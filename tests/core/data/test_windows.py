"""What is read of a long text, against slices of plain lists and the tokenizers' own cutting."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from manyheads.config import Cutting, DataConfig, Long, ModelConfig
from manyheads.data.batches import Batches, Planned, gather, plan_evaluation, tokens_on
from manyheads.data.prepare_tokens import long_text_notes
from manyheads.data.rows import Rows
from manyheads.data.token_cache import cached_tokens
from manyheads.data.tokens import Tokens, encode, kept_tokens, window_starts
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.training.state import hash_tokens
from tests.conftest import WORDS, word_tokenizer

CLS, SEP = 2, 3
TOKENIZER = word_tokenizer()


def texts_of(*lengths: int, seed: int = 0) -> list[str]:
    drawn = random.Random(seed)
    return [" ".join(drawn.choice(WORDS) for _ in range(n)) for n in lengths]


def words_of(text: str) -> list[int]:
    return [TOKENIZER.token_to_id(word) for word in text.split()]


def documents(tokens: Tokens) -> list[list[list[int]]]:
    """Of each row the ids of its documents."""
    ids = tokens.ids_N.tolist()
    if tokens.windows is None:
        return [[ids[a:b]] for a, b in pairwise(tokens.offsets.tolist())]
    bounds, firsts = (one.tolist() for one in tokens.windows)
    assert tokens.offsets.tolist() == [bounds[first] for first in firsts]
    return [[ids[bounds[w] : bounds[w + 1]] for w in range(a, b)] for a, b in pairwise(firsts)]


def test_head_and_tail_are_a_quarter_and_three_quarters():
    texts = texts_of(3, 8, 9, 30)
    tokens = encode(TOKENIZER, texts, None, None, 10, Cutting(Long.both))
    for text, (ids,) in zip(texts, documents(tokens), strict=True):
        words = words_of(text)
        words = words if len(words) <= 8 else words[:2] + words[-6:]
        assert ids == [CLS, *words, SEP]
    assert tokens.n_truncated == 2


@pytest.mark.parametrize(("first", "second"), [(2, 30), (30, 2), (30, 30), (9, 8), (8, 9), (3, 4), (20, 5)])
@pytest.mark.parametrize("max_length", [10, 11, 12])
def test_pairs_keep_as_many_tokens_of_each_text_as_the_tokenizers_leave(first, second, max_length):
    a, b = texts_of(first, second)
    TOKENIZER.enable_truncation(max_length, strategy="longest_first")
    n_first, n_second = (TOKENIZER.encode(a, b).sequence_ids.count(text) for text in (0, 1))
    TOKENIZER.no_truncation()
    tokens = encode(TOKENIZER, [a], [b], None, max_length, Cutting(Long.both))
    parts = []
    for words, n in ((words_of(a), n_first), (words_of(b), n_second)):
        parts.append(words if len(words) == n else words[: n // 4] + words[len(words) - (n - n // 4) :])
    assert tokens.ids_N.tolist() == [CLS, *parts[0], SEP, *parts[1], SEP]
    assert tokens.segments_N is not None
    assert tokens.segments_N.tolist() == [0] * (n_first + 2) + [1] * (n_second + 1)


@pytest.mark.parametrize("pair", [False, True])
def test_the_end_is_cut_as_the_tokenizers_cut_it(pair):
    drawn = random.Random(1)
    for max_length in (5, 9, 16):
        for _ in range(40):
            texts = texts_of(drawn.randint(0, 30), drawn.randint(0, 30), seed=drawn.randint(0, 999))
            given = texts if pair else texts[:1]
            whole = TOKENIZER.encode(*given)
            TOKENIZER.enable_truncation(max_length, strategy="longest_first")
            cut = TOKENIZER.encode(*given).ids
            TOKENIZER.no_truncation()
            if len(whole) > max_length:
                (places,) = kept_tokens(whole.sequence_ids, max_length, Cutting()).documents
                assert [whole.ids[at] for at in places] == cut


@pytest.mark.parametrize("stride", [0, 1, 3, 8])
def test_windows_are_full_and_read_every_token_in_order(stride):
    texts = texts_of(*range(0, 41, 4))
    tokens = encode(TOKENIZER, texts, None, None, 10, Cutting(Long.windows, stride, 4096))
    assert tokens.n_truncated == 0
    for text, parts in zip(texts, documents(tokens), strict=True):
        words, room, apart = words_of(text), 8, stride or 8
        if len(words) <= room:
            assert parts == [[CLS, *words, SEP]]
            continue
        n = 1
        while (n - 1) * apart < len(words) - room:  # the fewest that are no further apart
            n += 1
        assert len(parts) == n
        starts = [(len(words) - room) * at // (n - 1) for at in range(n)]
        assert parts == [[CLS, *words[start : start + room], SEP] for start in starts]
        assert {at for start in starts for at in range(start, start + room)} == set(range(len(words)))
        assert all(b - a <= apart for a, b in pairwise(starts))


def test_a_text_has_no_more_windows_than_allowed_and_they_lie_evenly():
    assert window_starts(100, 10, Cutting(Long.windows, 0, 4)) == [0, 30, 60, 90]
    assert window_starts(100, 10, Cutting(Long.windows, 0, 1)) == [0]
    tokens = encode(TOKENIZER, texts_of(5, 100, 20), None, None, 12, Cutting(Long.windows, 0, 4))
    assert [len(one) for one in documents(tokens)] == [1, 4, 2]
    assert tokens.n_truncated == 1
    said = long_text_notes("train", tokens, DataConfig(max_length=12, long=Long.windows, windows=4))
    assert said == [
        "train: 2 of 3 texts (66.7%) are read in 2 to 4 windows of data.max_length=12 tokens",
        "train: 1 of 3 texts (33.3%) are longer than data.windows=4 windows, which leave some of it out",
    ]


def test_short_texts_are_the_same_whatever_becomes_of_long_ones():
    texts = texts_of(1, 4, 8)
    plain = encode(TOKENIZER, texts, None, [0, 1, 2], 10)
    for long in Long:
        tokens = encode(TOKENIZER, texts, None, [0, 1, 2], 10, Cutting(long))
        assert documents(tokens) == documents(plain)
        assert tokens.windows is None
        assert tokens.labels.tolist() == [0, 1, 2]


def shape(**more) -> ModelConfig:
    return ModelConfig(n_layers=2, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, **more)


def classifier():
    torch.manual_seed(1)
    return assemble(shape(), vocab_size=15, n_classes=3, max_length=10).eval()


def test_logits_of_a_row_are_the_mean_over_its_windows_read_alone():
    model, texts = classifier(), texts_of(30, 2, 9, 0, 55, 17)
    tokens = encode(TOKENIZER, texts, None, None, 10, Cutting(Long.windows, 3))
    alone = []
    for parts in documents(tokens):
        logits = [model(torch.tensor(ids), Packed.of_lengths([len(ids)])) for ids in parts]
        alone.append(torch.stack(logits).mean(0)[0])
    for n_tokens in (1, 60, 1000):
        found = torch.empty(len(texts), 3)
        for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=n_tokens, rows=4)):
            found[batch.rows_B] = model(batch.ids_N, batch.layout, batch.segments_N).detach()
        torch.testing.assert_close(found, torch.stack(alone).detach(), atol=1e-6, rtol=1e-5)


def test_gradients_are_those_of_the_mean_over_windows():
    model, texts = classifier(), texts_of(30, 2)
    tokens = encode(TOKENIZER, texts, None, [1, 2], 10, Cutting(Long.windows))
    labels = torch.tensor([1, 2])
    batch = gather(tokens, Planned(torch.tensor([0, 1]), 0.5), few_counts=True)
    assert batch.layout.tail > 0
    torch.nn.functional.cross_entropy(model(batch.ids_N, batch.layout), labels).backward()
    found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    logits = [
        torch.cat([model(torch.tensor(ids), Packed.of_lengths([len(ids)])) for ids in parts]).mean(0)
        for parts in documents(tokens)
    ]
    torch.nn.functional.cross_entropy(torch.stack(logits), labels).backward()
    for name, one in model.named_parameters():
        torch.testing.assert_close(found[name], one.grad, atol=1e-6, rtol=1e-4)


def test_a_batch_holds_whole_rows_whatever_their_windows():
    tokens = encode(TOKENIZER, texts_of(30, 2, 9, 20), None, [0, 1, 2, 0], 10, Cutting(Long.windows))
    rows = torch.tensor([3, 1, 0])
    batch = gather(tokens_on(tokens, torch.device("cpu")), Planned(rows, 1.0))
    of_rows = documents(tokens)
    assert batch.ids_N.tolist() == [one for row in rows for part in of_rows[row] for one in part]
    assert batch.layout.counts_R is not None
    assert batch.layout.counts_R.tolist() == [len(of_rows[row]) for row in rows]
    assert batch.layout.rows.lengths_B.tolist() == tokens.lengths[rows].tolist()
    assert batch.labels_B.tolist() == [0, 1, 0]
    assert gather(tokens, Planned(rows[:0], 1.0)).layout.n_documents == 0


def test_the_cache_keeps_each_way_apart_and_windows_whole(tmp_path):
    rows = Rows(texts_of(30, 4), None, [0, 1], "test", [1, 2])
    for long in Long:
        first = cached_tokens(rows, TOKENIZER, 10, tmp_path, cutting=Cutting(long))
        again = cached_tokens(rows, TOKENIZER, 10, tmp_path, cutting=Cutting(long))
        assert documents(first) == documents(again)
        assert documents(again) == documents(encode(TOKENIZER, rows.texts, None, None, 10, Cutting(long)))
        assert again.n_truncated == first.n_truncated
    assert len(list(tmp_path.glob("tokens-*.safetensors"))) == 3


def test_a_run_goes_on_with_the_same_windows_alone():
    tokens = encode(TOKENIZER, texts_of(20, 4), None, [0, 1], 12, Cutting(Long.windows))
    assert tokens.windows is not None
    bounds, _ = tokens.windows
    other = replace(tokens, windows=tokens.windows._replace(bounds=bounds + (bounds == bounds[1])))
    found = [
        hash_tokens({"train": one, "validation": tokens}) for one in (tokens, other, replace(tokens, windows=None))
    ]
    assert len(set(found)) == 3


def test_a_run_goes_on_that_began_when_labels_were_held_in_64_bits():
    tokens = encode(TOKENIZER, texts_of(20, 4), None, [0, 1], 12)
    before = replace(tokens, labels=tokens.labels.long())
    assert tokens.labels.dtype != before.labels.dtype
    assert hash_tokens({"train": tokens, "validation": tokens}) == hash_tokens({"train": before, "validation": before})


def test_a_stride_longer_than_a_window_is_refused():
    with pytest.raises(ValueError, match=r"^data\.stride=65 would leave tokens out between windows"):
        DataConfig(max_length=64, stride=65)


def test_one_window_leaves_the_rest_of_a_text_out():
    for n_windows, is_cut in ((1, True), (2, True), (50, False)):
        cutting = Cutting(Long.windows, 0, n_windows)
        assert kept_tokens([None, *[0] * 60, None], 12, cutting).is_whole is not is_cut
