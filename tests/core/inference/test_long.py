"""A model that reads long texts in windows, or their head and tail, does so wherever it is asked."""

import json

import pytest
import torch
from safetensors.torch import load as loads
from safetensors.torch import save

from manyheads.config import Cutting, DataConfig, Long
from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import encode
from manyheads.evaluation.answered import answer_rows
from manyheads.evaluation.evaluation import Setup
from manyheads.inference.folder import load
from manyheads.inference.format import read_settings
from manyheads.inference.workers import to_tensors, to_tokens
from manyheads.layout import Packed

TEXTS = ["good bad " * 12, "a film", "so " * 11 + "fine", "the very awful film not good " * 9]


@pytest.fixture(scope="module", params=list(Long), ids=lambda long: long.name)
def model(request, ship_model, tmp_path_factory):
    data = DataConfig(max_length=12, long=request.param, stride=4, windows=5)
    return load(ship_model(tmp_path_factory.mktemp("long") / "model", data=data))


def read_alone(model, text):
    """Logits by plain Python: the words of each part between their marks, a document at a time."""
    words, room = model.tokenizer.encode(text, add_special_tokens=False).ids, 10
    parts = [words]
    if len(words) > room:
        n = min(1 + -(-(len(words) - room) // 4), 5)
        parts = {
            Long.cut: [words[:room]],
            Long.both: [words[:2] + words[-8:]],
            Long.windows: [words[at : at + room] for at in ((len(words) - room) * i // (n - 1) for i in range(n))],
        }[model.cutting.long]
    with torch.no_grad():
        logits = [model.network(torch.tensor([2, *part, 3]), Packed.of_lengths([len(part) + 2]))[0] for part in parts]
    return torch.stack(logits).mean(0)


def test_answers_are_those_of_parts_read_alone(model):
    expected_nC = torch.stack([read_alone(model, text) for text in TEXTS])
    for tokens in (1, 30, 2048):
        torch.testing.assert_close(model.logits(TEXTS, tokens=tokens), expected_nC, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(model.logits(TEXTS[3:]), expected_nC[3:], atol=1e-6, rtol=1e-5)  # a text alone
    rows = Rows(TEXTS, None, [0] * 4, "test", range(1, 5))
    judged_nC = torch.tensor(next(answer_rows(model, rows, Setup()).answers()).probabilities_nC)
    torch.testing.assert_close(judged_nC, expected_nC.double().softmax(-1), atol=1e-6, rtol=1e-5)


def test_folders_say_how_and_older_ones_cut(model, ship_model, tmp_path):
    assert model.cutting == Cutting(model.cutting.long, 4, 5)
    folder = ship_model(tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    for key in ("long", "stride", "windows"):
        del content[key]
    (folder / "config.json").write_text(json.dumps(content))
    assert read_settings(folder / "config.json").cutting == Cutting()


def test_windows_go_to_other_processes_whole(model):
    encoded = encode(model.tokenizer, TEXTS, None, [0] * 4, model.max_length, model.cutting)
    sent = to_tokens(loads(save(to_tensors(encoded))))
    plan = plan_evaluation(encoded.lengths, tokens=60, rows=9)
    for here, there in zip(Batches(encoded, plan), Batches(sent, plan), strict=True):
        assert torch.equal(here.ids_N, there.ids_N)
        assert torch.equal(here.layout.offsets, there.layout.offsets)
        assert (here.layout.counts_R is None) == (there.layout.counts_R is None)
    assert torch.equal(model.run(sent, tokens=60).values, model.run(encoded, tokens=60).values)
