"""What joins the model to the data before a step is made."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from manyheads.config import ModelConfig, RunConfig, TokenizerConfig
from manyheads.config.model import PairKind
from manyheads.data.rows import Rows, Splits
from manyheads.fit.session import assemble_classifier


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


def run(pair: PairKind) -> RunConfig:
    return RunConfig(
        model=ModelConfig(n_layers=1, d_model=8, d_ff=8, pair=pair), tokenizer=TokenizerConfig(path=str(Path("t.json")))
    )


def test_a_tokenizer_that_does_not_tell_texts_apart_is_one_sentence():
    assert assemble_classifier(run(PairKind.cross), splits(), tokenizer(1)).cross is not None
    assert assemble_classifier(run(PairKind.joint), splits(), tokenizer(0)).cross is None
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        assemble_classifier(run(PairKind.cross), splits(), tokenizer(0))
    assert str(caught.value) == (
        "tokenizer.path=t.json gives both texts of a pair the segment 0, by which model.pair=cross tells them apart: "
        "give another tokenizer, or use model.pair=joint"
    )
