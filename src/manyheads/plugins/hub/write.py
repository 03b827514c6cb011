"""`manyheads export`: a classifier of ours as a folder of transformers, of sentence-transformers, or as a graph.

What a family of transformers has is written as one of it; any other shape opens after `import manyheads.transformers`.

P positions . D d_model, or width of the tables . C classes
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Encoding, Tokenizer, processors
from torch import Tensor, nn

from manyheads.config import Long, Pooler
from manyheads.config.conversion import to_plain
from manyheads.config.sentences import format_value, install_extra
from manyheads.data.tokens import MARKS, PROBE, copied, segments_of, texts_of_marks
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.download import OUTLIERS
from manyheads.inference.folder import load
from manyheads.inference.format import CALIBRATION, TYPED, home_of, open_folder, read_thresholds
from manyheads.nn import Classifier
from manyheads.nn.classifier import Pooler as PoolerLayer
from manyheads.nn.embeddings import SinusoidalPositions
from manyheads.plugins.hub.config import ExportConfig, Format, Members
from manyheads.plugins.hub.families import FAMILIES, MarkIds
from manyheads.plugins.hub.graph import READERS, carries_linear, check_packages, export_graph, quietly
from manyheads.plugins.hub.parity import Ask, hold_to_run, rows_to_compare
from manyheads.plugins.hub.shapes import Described, describe_as_family
from manyheads.plugins.hub.weights import KEYS, NEW, theirs
from manyheads.runs.files import refuse_unwritable, replace_folder
from manyheads.runs.verb_output import VerbOutput, refuse_occupied
from manyheads.training.weights import POSITIONS, SEGMENTS, WORDS

MODULES = "sentence_transformers.models"
HEAD = "head.safetensors"
"""`weight` `(C, D)` and `bias` `(C,)`: a text's vector to the logits of its classes, which config.json names."""
POOLINGS = {"first": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}
ACTIVATIONS = {
    Pooler.tanh: "torch.nn.modules.activation.Tanh",
    Pooler.relu: "torch.nn.modules.activation.ReLU",
    Pooler.gelu: "torch.nn.modules.activation.GELU",
}
OWN = "ManyheadsForSequenceClassification"
"""The class of `manyheads.transformers` for shapes of no family."""
EXPORTED = VerbOutput(
    "export",
    "README.md",
    ("Compared with the run on",),
    (
        *("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "thresholds.json", HEAD),
        *("modules.json", "sentence_bert_config.json", "?_*/config.json", "?_*/model.safetensors"),
        *("labels.json", "predict.py", "model.onnx", "model.pt2"),
    ),
)
README = "# A text classifier\n\n{opens}.\n\n{typed}\n\nCompared with the run on {said}.\n"
TO_SET = (
    "\ntransformers reads it so by `split_special_tokens` in tokenizer_config.json; what opens tokenizer.json alone "
    "has to set `encode_special_tokens`."
)
OWN_POOLERS = ("bert", "roberta", "xlm-roberta")
"""Encoders to which transformers adds a layer that nothing here reads: without weights it would warn of random ones."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of sentence-transformers: its class, its config.json, its weights if it has any."""

    kind: str
    config: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def export(config: ExportConfig) -> Path:
    """Write the folder that `config` asks for, whole or not at all, and say how it is opened.

    Raises:
        UserError: the run is no classifier, or of a shape that the format does not have; what is written answers
            otherwise; the folder holds something.
    """
    opened = open_folder(config.run, "classify")
    model = opened.path
    typed = Path(config.output).expanduser().resolve() if config.output else None  # what a link leads to is filled
    folder = typed or home_of(config.run, model) / config.format.name
    refuse_occupied(folder, EXPORTED, overwrite=config.overwrite)
    predictor = load(opened, TextClassifier)
    if predictor.calibration is not None:
        print(f"{CALIBRATION} of {model} is left out: the export answers as the run did before `manyheads calibrate`")
        own = read_thresholds(model / "thresholds.json", opened.settings) if predictor.multi else {}
        own = {"thresholds": own.pop("both", None), "member_thresholds": own}
        predictor = replace(predictor, calibration=None, **own)
    if (model / OUTLIERS).is_file():
        print(f"{OUTLIERS} of {model} is left out: the export answers, but marks no text as unlike the training")
    try:
        fill, opens, whole = writer(predictor, config, model)
        say_what_is_left_out(predictor, config, whole=whole)
    except UserError as error:
        raise UserError(f"run={config.run} {error}") from error
    with refuse_unwritable(folder), replace_folder(folder) as part:
        try:
            said = fill(part)
        except UserError as error:
            raise UserError(f"run={config.run} {error}") from error
        refuse_occupied(folder, EXPORTED, overwrite=config.overwrite)  # something may have come in between
    print(f"{folder}: {opens}; compared with the run on {said}")
    return folder


def writer(predictor: TextClassifier, config: ExportConfig, model: Path) -> tuple[Callable[[Path], str], str, bool]:
    """What fills the folder and says how it compares, how the folder is opened, and whether it holds all members.

    Raises:
        UserError: the rest of a sentence about the run: the format cannot carry it.
    """
    if config.format in READERS:
        check_packages(config.format)
        fill = partial(export_graph, predictor=predictor, model=model, config=config)
        opens = f"predict.py in it answers by {READERS[config.format]}"
        return fill, opens, carries_linear(predictor, config.members)
    if predictor.share and config.members is Members.all:
        raise UserError(
            f"has a linear model, which format={config.format.name} cannot carry: use members=network, or format=onnx"
        )
    if config.format is Format.transformers:
        described, modules = family_of(predictor), list[Module]()
        package, answer_by = "transformers", by_transformers
    else:
        described, modules = described_as(predictor, pooled=False), modules_of(predictor)
        package, answer_by = "sentence_transformers", by_sentence_transformers
    if find_spec(package) is None:
        raise UserError(f"cannot be exported without the package {package}: {install_extra('hf')}")

    def family(part: Path) -> str:
        write_family(part, predictor, described, modules)
        compared = rows_to_compare(predictor, model)
        said = f"{compared.said}: {hold_to_run(predictor, answer_by(part), compared, config.format)}"
        typed = TYPED[predictor.tokenizer.encode_special_tokens]
        if predictor.tokenizer.encode_special_tokens:
            typed += TO_SET
        readme = README.format(opens=opens, typed=typed, said=said)
        (part / "README.md").write_text(readme, encoding="utf-8")
        return said

    opens = f"transformers.{class_of(described)} opens it"
    if described is None:
        print(
            "No class of transformers has the shape of the run, so that its export opens only where manyheads is "
            "installed: format=onnx opens without it, and so does this format of a run from MiniLM or other weights of "
            "BERT's family with experiment=minilm",
            flush=True,
        )
        opens = f"transformers opens it as {OWN} after `import manyheads.transformers`"
    elif modules:
        opens = (
            f"sentence_transformers.SentenceTransformer opens it and gives a vector a text; {HEAD} makes logits of it"
        )
    return family, opens, False


def say_what_is_left_out(predictor: TextClassifier, config: ExportConfig, *, whole: bool) -> None:
    """Of the run, before anything is written."""
    if predictor.share and not whole and config.members is Members.auto:
        print(
            f"Only the network is exported: in the answers of the run the linear model has a weight of "
            f"{predictor.share:.0%}, and format={config.format.name} does not contain it"
            f"{' for pairs' * predictor.pairs}; add members=network to say that this is intended, or train with "
            "linear=false for an export that answers alike",
            flush=True,
        )
    if predictor.cutting.long is not Long.cut:
        print(
            f"It cuts texts at their end after {predictor.max_length} tokens, where the run reads longer ones by "
            f"data.long={predictor.cutting.long.name}: to such texts it answers otherwise",
            flush=True,
        )


def by_transformers(folder: Path) -> Ask:
    """Logits by the folder's own model and tokenizer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    import manyheads.transformers  # noqa: F401 (registers shapes of no family)

    with quietly():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    @torch.no_grad()
    def answer(texts: list[str], pairs: list[str] | None) -> Tensor:
        given = tokenizer(texts, pairs, padding=True, truncation="longest_first", return_tensors="pt")
        return model(**given).logits

    return answer


def by_sentence_transformers(folder: Path) -> Ask:
    """Logits by the vectors of the folder's own model and the head in it."""
    from sentence_transformers import SentenceTransformer

    with quietly():
        model, head = SentenceTransformer(str(folder), device="cpu"), load_file(folder / HEAD)

    def answer(texts: list[str], pairs: list[str] | None) -> Tensor:
        given = texts if pairs is None else list(zip(texts, pairs, strict=True))
        vectors_nD = model.encode(given, convert_to_tensor=True, show_progress_bar=False)
        return vectors_nD.clone() @ head["weight"].T + head["bias"]

    return answer


def family_of(predictor: TextClassifier) -> Described | None:
    """What a family of transformers says of it; None: no family has its shape."""
    try:
        return described_as(predictor)
    except ValueError:
        return None


def class_of(described: Described | None, *, pooled: bool = True) -> str:
    """Its class in transformers: a classifier, or an encoder alone."""
    if described is None:
        return OWN
    return FAMILIES[described.kind].classes + ("ForSequenceClassification" if pooled else "Model")


def described_as(predictor: TextClassifier, *, pooled: bool = True) -> Described:
    """What a family says of it.

    Raises:
        UserError: see `describe_as_family`.
    """
    embeddings = predictor.network.embeddings
    return describe_as_family(
        replace(predictor.model, matches=embeddings.matches is not None),  # single texts have none, whatever is set
        vocab_size=embeddings.words.num_embeddings,
        max_length=predictor.max_length,
        has_segments=embeddings.segments is not None,
        marks=marks_of(predictor.tokenizer),
        pooled=pooled,
    )


def marks_of(tokenizer: Tokenizer) -> MarkIds:
    """The marks that a tokenizer has, by the names that such have."""
    vocabulary = tokenizer.get_vocab()
    ids = {mark: vocabulary[name] for mark, name in mark_names(tokenizer).items()}
    return MarkIds(ids, is_unigram=json.loads(tokenizer.to_str())["model"]["type"] == "Unigram")


def mark_names(tokenizer: Tokenizer) -> dict[str, str]:
    """`pad`, `cls` and others, to the token itself."""
    return {mark: name for mark, names in MARKS.items() for name in names if tokenizer.token_to_id(name) is not None}


def write_family(
    folder: Path, predictor: TextClassifier, described: Described | None, modules: Sequence[Module] = ()
) -> None:
    """The weights, config.json and the tokenizer; the same classifier gives the same bytes.

    Args:
        described: what its family says of it; None: it is written as one of `manyheads.transformers`.
        modules: what follows the encoder, which is then written alone; none: it is a classifier of the family.
    """
    plain = copied(predictor.tokenizer)
    pooled, labels = not modules, predictor.labels
    if described is None:
        architecture, tensors, has_segments = own_config(predictor), own_tensors(predictor), predictor.pairs
        if predictor.pairs:
            tell_apart(plain)
    else:
        architecture, has_segments = described.config, described.shape.n_segments == 2
        tensors = family_tensors(predictor.network, described, pooled=pooled)
    config = {
        "architectures": [class_of(described, pooled=pooled)],
        **architecture,
        "id2label": {str(at): label for at, label in enumerate(labels)},
        "label2id": {label: at for at, label in enumerate(labels)},
        "problem_type": "multi_label_classification" if predictor.multi else "single_label_classification",
        "dtype": "float32",
    }
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if has_segments else ["input_ids", "attention_mask"]
    of_tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": predictor.max_length,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": plain.encode_special_tokens,  # so that marks that are typed in a text are text
        **{f"{mark}_token": name for mark, name in mark_names(predictor.tokenizer).items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if modules:
        write_modules(folder, modules, predictor)
    (folder / "tokenizer.json").write_text(plain.to_str(pretty=True), encoding="utf-8")
    dump_json(folder / "tokenizer_config.json", of_tokenizer)
    dump_json(folder / "config.json", config)
    if predictor.thresholds is not None:
        dump_json(folder / "thresholds.json", predictor.member_thresholds.get("network", predictor.thresholds))


def own_config(predictor: TextClassifier) -> dict[str, Any]:
    """What `manyheads.transformers.ManyheadsConfig` reads."""
    sizes = {"vocab_size": predictor.settings.vocab_size, "max_position_embeddings": predictor.max_length}
    return {"model_type": "manyheads", "model": to_plain(predictor.model), "pairs": predictor.pairs, **sizes}


def own_tensors(predictor: TextClassifier) -> dict[str, Tensor]:
    """All tensors by the names of `manyheads.transformers`."""
    tensors = {}
    for name, tensor in predictor.network.state_dict().items():
        is_head = name in ("head.weight", "head.bias")
        theirs_name = name.replace("head", "classifier") if is_head else f"model.network.{name}"
        tensors[theirs_name] = tensor.detach().float().cpu().clone()
    return tensors


def tell_apart(tokenizer: Tokenizer) -> None:
    """Let the type ids of a pair be the segments that our network reads: of RoBERTa's kin they do not tell two texts
    apart, and `token_type_ids` are all that a model of transformers is given."""
    single, pair = tokenizer.encode(PROBE), tokenizer.encode(PROBE, PROBE)
    segments = segments_of(pair, texts_of_marks(tokenizer))
    if segments == pair.type_ids:
        return
    places = zip(pair.tokens, pair.ids, pair.sequence_ids, strict=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template(single, single.type_ids),
        pair=template(pair, segments),
        special_tokens=list({token: at for token, at, text in places if text is None}.items()),
    )


def template(encoding: Encoding, type_ids: list[int]) -> list[str]:
    """The marks around the texts, as a `TemplateProcessing` has it: `<s>:0`, `$A:0`, `</s>:0`."""
    pieces: list[str] = []
    for token, text, type_id in zip(encoding.tokens, encoding.sequence_ids, type_ids, strict=True):
        piece = f"{token if text is None else '$' + 'AB'[text]}:{type_id}"
        if text is None or piece not in pieces:
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
        if positions is None:  # without positions all are zero, and sines are written down
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
        found |= {part: piece.clone() for part, piece in zip(parts, tensor.chunk(len(parts)), strict=True)}
    if shape.n_segments and SEGMENTS not in ours:
        found[keys.segments] = torch.zeros(shape.n_segments, width)
    if pooled:
        return found
    if described.kind in OWN_POOLERS:
        width = classifier.head.in_features
        found |= {"pooler.dense.weight": torch.eye(width), "pooler.dense.bias": torch.zeros(width)}
    return {name.removeprefix(keys.inside): tensor for name, tensor in found.items()}


def modules_of(predictor: TextClassifier) -> list[Module]:
    """The modules from token vectors `(..., D)` to the vector `(..., D)` of a text that the head of the run sees.

    Raises:
        UserError: it pools as none of them does.
    """
    model, classifier = predictor.model, predictor.network
    if model.pooling not in POOLINGS or (model.pooler is not Pooler.none and model.pooler not in ACTIVATIONS):
        name = "pooling" if model.pooling not in POOLINGS else "pooler"
        raise UserError(
            f"has model.{name}={format_value(getattr(model, name))}, which sentence-transformers has no module for: "
            f"train one with model.{name}={'mean' if name == 'pooling' else 'tanh'}"
        )
    modes = {f"pooling_mode_{mode}": kind == model.pooling for kind, mode in POOLINGS.items()}
    modules = [Module("Pooling", {"word_embedding_dimension": model.d_model, **modes})]
    if isinstance(classifier.pooling, PoolerLayer):
        layer = classifier.pooling.dense
        sizes = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None}
        config = {**sizes, "activation_function": ACTIVATIONS[model.pooler]}
        modules.append(Module("Dense", config, in_fp32(layer, "linear.")))
    return modules


def in_fp32(layer: nn.Linear, prefix: str = "") -> dict[str, Tensor]:
    """Its weight and bias by name."""
    return {f"{prefix}{name}": one.detach().float().cpu().clone() for name, one in layer.named_parameters()}


def write_modules(folder: Path, modules: Sequence[Module], predictor: TextClassifier) -> None:
    """A folder for each, the list of them, and the run's head."""
    save_file(in_fp32(predictor.network.head), folder / HEAD, {"format": "pt"})
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}.Transformer"}]
    for at, module in enumerate(modules, 1):
        place = folder / f"{at}_{module.kind}"
        place.mkdir()
        dump_json(place / "config.json", module.config)
        if module.tensors:
            save_file(module.tensors, place / "model.safetensors", {"format": "pt"})
        listed.append({"idx": at, "name": str(at), "path": place.name, "type": f"{MODULES}.{module.kind}"})
    dump_json(folder / "modules.json", listed)
    dump_json(folder / "sentence_bert_config.json", {"max_seq_length": predictor.max_length, "do_lower_case": False})


def dump_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
