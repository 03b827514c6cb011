"""What joins the model to the data before a step is made."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from manyheads.config import ModelConfig, PairKind, RunConfig, Segments, TokenizerConfig
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokens import encode
from manyheads.layout import Packed
from manyheads.training.module import assemble_network


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
    for pair in PairKind:
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
    assert not torch.allclose(logits[0], logits[2])
