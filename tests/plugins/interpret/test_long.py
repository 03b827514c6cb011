"""Pages and figures of a model that reads long texts in windows, or their head and tail."""

from itertools import pairwise

import pytest
import torch

from manyheads.config import DataConfig, Long
from manyheads.data.rows import Rows
from manyheads.inference.folder import load
from manyheads.plugins.interpret.attribution import from_word_vectors
from manyheads.plugins.interpret.maps import answer_batch, batches, look_at_batch, tokens_of
from manyheads.plugins.interpret.page import look_at, read_words
from manyheads.plugins.interpret.shown import Chosen
from manyheads.plugins.interpret.statistics import head_statistics, noise, received

TEXTS = ["good bad " * 12, "a film", "so " * 11 + "fine", "the very awful film not good " * 9]


@pytest.fixture(scope="module", params=list(Long), ids=lambda long: long.name)
def model(request, ship_model, tmp_path_factory):
    data = DataConfig(max_length=12, long=request.param, stride=4, windows=5)
    return load(ship_model(tmp_path_factory.mktemp("long") / "model", data=data))


def test_batches_of_windows_have_the_answers_of_the_model(model):
    rows = Rows(TEXTS, None, [0] * 4, "test", range(1, 5))
    for batch in batches(model, tokens_of(model, rows), budget=40):
        with torch.no_grad():
            found_BC = answer_batch(model, batch)
        torch.testing.assert_close(found_BC, model.logits(TEXTS)[batch.rows_B], atol=1e-6, rtol=1e-5)


def test_a_page_shows_what_is_read(model, tmp_path):
    rows = Rows(TEXTS, None, [0] * 4, "test", range(1, 5))
    encoded = tokens_of(model, rows)
    for row, text in enumerate(TEXTS):
        reading = read_words(model.tokenizer, text, None, model.max_length, model.cutting)
        ids = encoded.ids_N[encoded.offsets[row] : encoded.offsets[row + 1]].tolist()
        assert [word.read for word in reading.words] == [model.tokenizer.id_to_token(at) for at in ids]
        looked = look_at(model, text, None, Chosen([1], [0]), folder=tmp_path, source="run")
        (expected,) = model.predict([text])
        assert looked.label == expected.label
        assert looked.probability == pytest.approx(expected.probabilities[expected.label], abs=1e-6)
        named = [f"Layer 2, window {at + 1}" for at in range(len(reading.lengths))]
        assert list(looked.errors) == (named if len(named) > 1 else ["Layer 2"])
        assert max(looked.errors.values()) < 1e-5


def test_studies_of_heads_count_rows_and_their_windows(model):
    rows = Rows(TEXTS, None, [0] * 4, "test", range(1, 5))
    encoded = tokens_of(model, rows)
    found = head_statistics(model, encoded)
    assert found.n_texts == len(encoded.documents)
    assert found.n_tokens == len(encoded.ids_N)
    (batch,) = batches(model, encoded, budget=10_000, maps=True)
    for drawn_N in noise(batch, 2, seed=0):
        assert len(drawn_N) == len(batch.ids_N)
    got_N = received(look_at_batch(model, batch), len(batch.ids_N))
    for a, b in pairwise(batch.layout.offsets.tolist()):  # each query gives away one in all
        assert float(got_N[a:b].sum()) == pytest.approx(1.0, abs=1e-5)


def test_word_vectors_lead_to_the_same_logits(model):
    rows = Rows(TEXTS[3:], None, [0], "test", [1])
    (batch,) = batches(model, tokens_of(model, rows), budget=10_000)
    with torch.no_grad():
        words_LD = model.network.embeddings.words(batch.ids_N)
        found = from_word_vectors(model.network, batch)(torch.stack([words_LD, words_LD]))
    torch.testing.assert_close(found, model.logits(TEXTS[3:]).expand(2, -1), atol=1e-6, rtol=1e-5)
