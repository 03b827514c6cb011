"""What the tests of several rooms share: small shipped models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import DataConfig, ModelConfig

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["good", "bad", "fine", "awful", "film", "a", "the", "very", "not", "so"]
LABELS = ["bad", "good", "so-so"]
SHAPE = ModelConfig(n_layers=2, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24)


def word_tokenizer() -> Any:
    """One id a known word, [CLS] and [SEP] around."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def ship(folder: Path, *, pairs: bool = False, data: DataConfig | None = None, shape: ModelConfig = SHAPE) -> Path:
    """Save an untrained model of three classes (bad, good, so-so); the same bytes at every call."""
    import torch

    from manyheads.nn import assemble
    from manyheads.ship.card import write_card
    from manyheads.ship.deliverable import save_deliverable

    torch.manual_seed(1)
    data = data or DataConfig(max_length=12)
    classifier = assemble(
        shape,
        vocab_size=len(SPECIAL) + len(WORDS),
        n_classes=len(LABELS),
        max_length=data.max_length,
        n_segments=2 if pairs else 0,
    )
    torch.nn.init.normal_(classifier.head.weight)  # far apart logits: answers differ from text to text
    card = write_card(shape, labels=LABELS, pairs=pairs, n_parameters=sum(p.numel() for p in classifier.parameters()))
    save_deliverable(
        folder,
        classifier,
        model=shape,
        data=data,
        tokenizer=word_tokenizer(),
        labels=LABELS,
        pairs=pairs,
        card=card,
    )
    return folder


@pytest.fixture(scope="session")
def ship_model() -> Callable[..., Path]:
    """`ship_model(folder, pairs=, data=, shape=)` saves a small model into `folder`."""
    return ship


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ takes single texts; read only."""
    return ship(tmp_path_factory.mktemp("run") / "model").parent


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ takes pairs; read only."""
    return ship(tmp_path_factory.mktemp("pair-run") / "model", pairs=True).parent


def ship_texts(folder: Path, *, encoder: str = "transformer", data: DataConfig | None = None) -> Path:
    """Save an untrained model that answers texts by texts, whose answers end sooner or later; the same every time."""
    import torch

    from manyheads.config import EncoderKind
    from manyheads.nn.seq2seq import assemble_seq2seq
    from manyheads.ship.card import write_translator_card
    from manyheads.ship.translator import save_translator

    torch.manual_seed(2)
    data = data or DataConfig(max_length=12, text="source")
    shape = ModelConfig(
        encoder=EncoderKind[encoder], n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=4, d_ff=24
    )  # fmt: skip
    seq2seq = assemble_seq2seq(shape, vocab_size=len(SPECIAL) + len(WORDS), max_length=data.max_length)
    torch.nn.init.normal_(seq2seq.head.weight)
    card = write_translator_card(shape, n_parameters=sum(p.numel() for p in seq2seq.parameters()))
    save_translator(folder, seq2seq, model=shape, data=data, tokenizer=word_tokenizer(), card=card)
    return folder


@pytest.fixture(scope="session")
def ship_translator() -> Callable[..., Path]:
    """`ship_translator(folder, encoder=, data=)` saves a small model that answers by texts into `folder`."""
    return ship_texts


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ answers texts by texts; read only."""
    return ship_texts(tmp_path_factory.mktemp("text-run") / "model").parent
