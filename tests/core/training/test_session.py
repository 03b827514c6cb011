"""What joins the model to the data before a step is made."""

from dataclasses import replace

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from manyheads.config import (
    Accelerator,
    HardwareConfig,
    ModelConfig,
    PairKind,
    Precision,
    RunConfig,
    Segments,
    TokenizerConfig,
)
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokens import encode
from manyheads.layout import Packed
from manyheads.training.build import assemble_network
from manyheads.training.trainer import run_trainer


def splits() -> Splits:
    rows = Rows(["a b", "b"], ["b", "a"], [0, 1], "rows.csv", [2, 3])
    return Splits(rows, rows, None, ["no", "yes"], [])


def tokenizer(second: int) -> Tokenizer:
    """Words a and b; the second text of a pair is marked by segment `second`."""
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return made


def run(pair: PairKind, segments: Segments) -> RunConfig:
    model = ModelConfig(n_layers=1, d_model=8, d_ff=8, pair=pair, segments=segments, matches=True)
    return RunConfig(model=model, tokenizer=TokenizerConfig(path="t.json"))


def test_texts_are_told_apart_also_where_the_tokenizer_gives_both_one_type_id():
    """RoBERTa, CamemBERT and XLM-R do so: by the type ids alone no token would occur in the other text."""
    logits = []
    for pair in (PairKind.joint, PairKind.cross, PairKind.compare):
        for second in (1, 0):
            classifier = assemble_network(run(pair, segments=Segments.never), splits(), tokenizer(second)).eval()
            nn.init.normal_(classifier.head.weight, generator=torch.Generator().manual_seed(0))
            assert classifier.embeddings.matches is not None
            classifier.embeddings.matches.weight.data[1] += 1
            tokens = encode(tokenizer(second), ["a b", "b"], ["b", ""], None, 8)
            assert tokens.segments_N is not None
            layout = Packed(tokens.offsets, 6)
            logits.append(classifier(tokens.ids_N.long(), layout, tokens.segments_N.long()))
    torch.testing.assert_close(logits[0], logits[1])
    torch.testing.assert_close(logits[2], logits[3])
    torch.testing.assert_close(logits[4], logits[5])
    assert not any(torch.allclose(logits[one], logits[other]) for one, other in ((0, 2), (0, 4), (2, 4)))


@pytest.mark.parametrize(("precision", "found"), [(Precision.fp32, "ieee"), (Precision.bf16, "tf32")])
def test_fp32_is_fp32_for_recurrent_layers_too_while_a_run_trains_and_no_longer(precision, found, monkeypatch):
    cudnn, seen = torch.backends.cudnn, []
    monkeypatch.setattr(cudnn.rnn, "fp32_precision", "tf32")  # torch's default

    def note(*_: object) -> None:
        seen.append(cudnn.rnn.fp32_precision)
        raise KeyError("on purpose")

    hardware = HardwareConfig(accelerator=Accelerator.cpu, precision=precision)
    one = replace(run(PairKind.joint, Segments.never), hardware=hardware, trainer={"max_steps": 1})
    network, rows = assemble_network(one, splits(), tokenizer(1)), encode(tokenizer(1), ["a b"], ["b"], [0], 8)
    with pytest.raises(KeyError, match="on purpose"):
        run_trainer(
            one,
            network,
            dict.fromkeys(("train", "validation"), rows),
            ["no", "yes"],
            [LambdaCallback(on_train_start=note)],
        )
    assert (seen, cudnn.rnn.fp32_precision) == ([found], "tf32")
    with cudnn.flags(enabled=False):  # an error where a run has left them apart
        assert cudnn.allow_tf32
