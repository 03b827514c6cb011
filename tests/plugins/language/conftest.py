"""Small models that answer by texts, and what these tests share with those of the blocks, of data and of processes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from manyheads.config import DataConfig, ModelConfig
from tests.conftest import SPECIAL, WORDS, word_tokenizer
from tests.core.data.conftest import complaint, two_classes, write  # noqa: F401  fixtures
from tests.core.nn.conftest import _seed, _varlen_kernels, choices, flash_on_cpu, small, torchs_layer  # noqa: F401  fixtures
from tests.core.ranks.conftest import folders, start, two  # noqa: F401  fixtures
from tests.core.training.conftest import small_run  # noqa: F401  a fixture


def ship_texts(folder: Path, *, encoder: str = "transformer", data: DataConfig | None = None) -> Path:
    """Save an untrained model that answers texts by texts, whose answers end sooner or later; the same every time."""
    import torch

    from manyheads.inference.folder import save
    from manyheads.plugins.language.networks import assemble_seq2seq

    torch.manual_seed(2)
    data = data or DataConfig(max_length=12, text="source")
    shape = ModelConfig(
        encoder=encoder, n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=4, d_ff=24
    )  # fmt: skip
    seq2seq = assemble_seq2seq(shape, vocab_size=len(SPECIAL) + len(WORDS), max_length=data.max_length)
    torch.nn.init.normal_(seq2seq.head.weight)
    save(folder, seq2seq, task="seq2seq", model=shape, data=data, tokenizer=word_tokenizer())
    return folder


@pytest.fixture(scope="session")
def ship_translator() -> Callable[..., Path]:
    """`ship_translator(folder, encoder=, data=)` saves a small model that answers by texts into `folder`."""
    return ship_texts


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ answers texts by texts; read only."""
    return ship_texts(tmp_path_factory.mktemp("text-run") / "model").parent
