"""A classifier as a folder of transformers: weights, config.json and tokenizer, as one of its own families has them, or
as `manyheads.transformers` does. And how such a folder answers.

P positions . D width of the tables
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Encoding, Tokenizer, processors
from torch import Tensor

from manyheads.config.conversion import to_plain
from manyheads.data.tokenizer import MARKS, PROBE, copy_tokenizer
from manyheads.data.tokens import segments_of, texts_of_marks
from manyheads.inference.classifier import TextClassifier
from manyheads.nn import Classifier
from manyheads.nn.embeddings import SinusoidalPositions
from manyheads.plugins.hub.families import FAMILIES, MarkIds
from manyheads.plugins.hub.graph import quietly
from manyheads.plugins.hub.parity import Ask
from manyheads.plugins.hub.shapes import Described, describe_as_family
from manyheads.plugins.hub.weights import KEYS, NEW, theirs
from manyheads.runs.files import write_json
from manyheads.training.weights import POSITIONS, SEGMENTS, WORDS

OWN_CLASS = "ManyheadsForSequenceClassification"
"""The class of `manyheads.transformers` for shapes of no family."""
ENCODERS_WITH_POOLER = ("bert", "roberta", "xlm-roberta")
"""Their encoders have a pooler in transformers, which nothing here reads: without weights it warns of random ones."""


def family_of(predictor: TextClassifier) -> Described | None:
    """The classifier as a family of transformers describes it; None: no family has its shape."""
    try:
        return described_as(predictor)
    except ValueError:
        return None


def described_as(predictor: TextClassifier, *, pooled: bool = True) -> Described:
    """The classifier as a family describes it, or its encoder alone where `pooled` is false."""
    embeddings, vocabulary = predictor.network.embeddings, predictor.tokenizer.get_vocab()
    marks = {mark: vocabulary[token] for mark, token in mark_tokens(predictor.tokenizer).items()}
    is_unigram = json.loads(predictor.tokenizer.to_str())["model"]["type"] == "Unigram"
    return describe_as_family(
        replace(predictor.model, matches=embeddings.matches is not None),  # single texts have none, whatever is set
        vocab_size=embeddings.words.num_embeddings,
        max_length=predictor.max_length,
        has_segments=embeddings.segments is not None,
        marks=MarkIds(marks, is_unigram),
        pooled=pooled,
    )


def class_of(described: Described | None, *, pooled: bool = True) -> str:
    """Its class in transformers: a classifier, or an encoder alone."""
    if described is None:
        return OWN_CLASS
    return FAMILIES[described.kind].classes + ("ForSequenceClassification" if pooled else "Model")


def mark_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """The marks that a tokenizer has, `pad`, `cls` and others, each to its token."""
    found = {}
    for mark, tokens in MARKS.items():
        for token in tokens:
            if tokenizer.token_to_id(token) is not None:
                found[mark] = token
    return found


def write_family(folder: Path, predictor: TextClassifier, described: Described | None, *, pooled: bool = True) -> None:
    """Weights, config.json and the tokenizer; the same classifier gives the same bytes.

    Args:
        described: as its family describes it; None: it is written as one of `manyheads.transformers`.
        pooled: whether it is a classifier of the family, or an encoder alone.
    """
    tokenizer = copy_tokenizer(predictor.tokenizer)
    if described is None:
        architecture = {
            "model_type": "manyheads",
            "model": to_plain(predictor.model),
            "pairs": predictor.pairs,
            "vocab_size": predictor.settings.vocab_size,
            "max_position_embeddings": predictor.max_length,
        }
        has_segments, tensors = predictor.pairs, {}
        for name, tensor in predictor.network.state_dict().items():
            theirs_name = f"model.network.{name}"
            if name in ("head.weight", "head.bias"):
                theirs_name = name.replace("head", "classifier")
            tensors[theirs_name] = tensor.detach().float().cpu().clone()
        if predictor.pairs:
            separate_texts(tokenizer)
    else:
        architecture, has_segments = described.config, described.shape.n_segments == 2
        tensors = family_tensors(predictor.network, described, pooled=pooled)
    config = {
        "architectures": [class_of(described, pooled=pooled)],
        **architecture,
        "id2label": {str(at): label for at, label in enumerate(predictor.labels)},
        "label2id": {label: at for at, label in enumerate(predictor.labels)},
        "problem_type": "multi_label_classification" if predictor.multi else "single_label_classification",
        "dtype": "float32",
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": predictor.max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": tokenizer.encode_special_tokens,  # so that marks that are typed in a text are text
    }
    if has_segments:
        tokenizer_config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    for mark, token in mark_tokens(predictor.tokenizer).items():
        tokenizer_config[f"{mark}_token"] = token
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    write_json(folder / "config.json", config)
    if predictor.thresholds is not None:
        write_json(folder / "thresholds.json", predictor.member_thresholds.get("network", predictor.thresholds))


def separate_texts(tokenizer: Tokenizer) -> None:
    """Let the type ids of a pair be the segments that our network reads.

    With a tokenizer of RoBERTa's kind they are 0 in both texts, but a model of transformers gets nothing else that
    says of which text a token is.
    """
    single, pair = tokenizer.encode(PROBE), tokenizer.encode(PROBE, PROBE)
    segments = segments_of(pair, texts_of_marks(tokenizer))
    if segments == pair.type_ids:
        return
    marks = {}
    for token, at, text in zip(pair.tokens, pair.ids, pair.sequence_ids, strict=True):
        if text is None:
            marks[token] = at
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template(single, single.type_ids), pair=template(pair, segments), special_tokens=list(marks.items())
    )


def template(encoding: Encoding, type_ids: list[int]) -> list[str]:
    """The marks around the texts, as a `TemplateProcessing` has it: `<s>:0`, `$A:0`, `</s>:0`."""
    pieces: list[str] = []
    for token, text, type_id in zip(encoding.tokens, encoding.sequence_ids, type_ids, strict=True):
        if text is None:
            pieces.append(f"{token}:{type_id}")
            continue
        piece = f"${'AB'[text]}:{type_id}"
        if piece not in pieces:  # one for all tokens of a text
            pieces.append(piece)
    return pieces


def family_tensors(classifier: Classifier, described: Described, *, pooled: bool = True) -> dict[str, Tensor]:
    """All tensors by the family's names, or those of the encoder alone: `read_family` backwards."""
    shape = described.shape
    keys = KEYS[shape.family]
    ours = {}
    for name, tensor in classifier.state_dict().items():
        if pooled or not name.startswith(NEW):
            ours[name] = tensor.detach().float().cpu()
    width = ours[WORDS].size(1)
    ours[WORDS] = ours[WORDS] * math.sqrt(width)  # ours are multiplied by it when read
    if shape.config().positions == "learned":
        positions = classifier.embeddings.positions
        if positions is None:  # a model without positions is one whose table of positions is zero
            table_PD = torch.zeros(shape.max_length, width)
        elif isinstance(positions, SinusoidalPositions):
            table_PD = positions.table_PD
        else:
            table_PD = positions.weight
        ours[POSITIONS] = torch.cat([torch.zeros(shape.first_position, width), table_PD.detach().float().cpu()])
    found: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        parts = theirs(name, shape)
        if name == POSITIONS:
            parts = parts[:1]  # the second is of segments
        for part, piece in zip(parts, tensor.chunk(len(parts)), strict=True):
            found[part] = piece.clone()
    if shape.n_segments and SEGMENTS not in ours:
        found[keys.segments] = torch.zeros(shape.n_segments, width)
    if pooled:
        return found
    if described.kind in ENCODERS_WITH_POOLER:
        width = classifier.head.in_features
        found["pooler.dense.weight"], found["pooler.dense.bias"] = torch.eye(width), torch.zeros(width)
    return {name.removeprefix(keys.inside): tensor for name, tensor in found.items()}


def answer_by_transformers(folder: Path) -> Ask:
    """The logits by the folder's own model and tokenizer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    import manyheads.transformers  # noqa: F401 - registers shapes of no family; it needs transformers, which is an extra

    with quietly():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    @torch.no_grad()
    def answer(texts: list[str], pairs: list[str] | None) -> Tensor:
        given = tokenizer(texts, pairs, padding=True, truncation="longest_first", return_tensors="pt")
        return model(**given).logits

    return answer
