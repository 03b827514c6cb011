"""From a run to the folder of an export: written as its format has it, compared with the run, described in a README.

What a family of transformers has is written as one of it; any other shape opens after `import manyheads.transformers`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from manyheads.config import Long
from manyheads.config.sentences import list_names
from manyheads.data.formats.fields import FIELD
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.download import OUTLIERS
from manyheads.inference.folder import load
from manyheads.inference.format import CALIBRATION, ModelFolder, read_thresholds
from manyheads.plugins.hub.config import EXPORTED, ExportConfig, Format, Members
from manyheads.plugins.hub.graph_folder import READERS, TYPED, carries_linear, write_graph_folder
from manyheads.plugins.hub.parity import hold_to_run, rows_to_compare
from manyheads.plugins.hub.sentence_folder import (
    HEAD,
    Module,
    answer_by_sentence_transformers,
    modules_of,
    write_sentence_folder,
)
from manyheads.plugins.hub.shapes import Described
from manyheads.plugins.hub.transformers_folder import (
    OWN_CLASS,
    answer_by_transformers,
    class_of,
    described_as,
    family_of,
    write_family,
)
from manyheads.runs.files import refuse_unwritable, replace_folder
from manyheads.runs.verb_output import refuse_occupied
from manyheads.terminal import typed_path

README = "# A text classifier\n\n{opens}.\n\n{typed}\n\nCompared with the run on {said}.\n"
TO_SET = (
    "\ntransformers reads it so by `split_special_tokens` in tokenizer_config.json; what opens tokenizer.json alone "
    "has to set `encode_special_tokens`."
)


def write_export(config: ExportConfig, opened: ModelFolder, folder: Path) -> None:
    """Write `folder`, whole or not at all, and print how it is opened."""
    predictor = load_uncalibrated(opened)
    is_graph = config.format in READERS
    described, modules = None, list[Module]()
    with naming(config.run):
        if is_graph:
            has_linear = carries_linear(predictor, config.members)
            opens = f"predict.py in it answers by {READERS[config.format]}"
            if config.format is Format.browser:
                opens = f"index.html in it answers in a browser, once a server of files shows it, and {opens}"
        else:
            has_linear = False
            described, modules = describe(predictor, config)
            opens = how_it_opens(described, modules)
    say_what_is_left_out(predictor, config, has_linear=has_linear)
    with refuse_unwritable(folder), replace_folder(folder) as part:
        with naming(config.run):
            if is_graph:
                said = write_graph_folder(part, predictor, opened.path, config)
            else:
                said = write_transformers_folder(part, predictor, opened.path, config, described, modules, opens)
        refuse_occupied(folder, EXPORTED, overwrite=config.overwrite)  # something may have come in between
    print(f"{typed_path(folder)}: {opens}\ncompared with the run on {said}")


@contextmanager
def naming(run: str) -> Iterator[None]:
    """Within it a UserError is the rest of a sentence about the run: "has ...", "answers otherwise ..."."""
    try:
        yield
    except UserError as error:
        raise UserError(f"run={run} {error}") from error


def load_uncalibrated(opened: ModelFolder) -> TextClassifier:
    """The classifier as it answered before `manyheads calibrate`: no format can carry a calibration, or what marks
    texts that are unlike the training."""
    predictor, model = load(opened, TextClassifier), opened.path
    if predictor.calibration is not None:
        print(f"{CALIBRATION} of {model} is left out: the export answers as the run did before `manyheads calibrate`")
        of_members = {}
        if predictor.multi:
            of_members = read_thresholds(model / "thresholds.json", opened.settings)
        of_both = of_members.pop("both", None)
        predictor = replace(predictor, calibration=None, thresholds=of_both, member_thresholds=of_members)
    if (model / OUTLIERS).is_file():
        print(f"{OUTLIERS} of {model} is left out: the export answers, but marks no text as unlike the training")
    return predictor


def describe(predictor: TextClassifier, config: ExportConfig) -> tuple[Described | None, list[Module]]:
    """As which family the network is written (None: as none), and the modules of sentence-transformers after it.

    Raises:
        UserError: the format cannot carry the run.
    """
    if predictor.share and config.members is Members.all:
        raise UserError(
            f"has a linear model, which format={config.format.name} cannot carry: use members=network, or format=onnx"
        )
    if config.format is Format.sentence_transformers:
        return described_as(predictor, pooled=False), modules_of(predictor)
    described = family_of(predictor)
    if described is None:
        print(
            "No class of transformers has the shape of the run, so that its export opens only where manyheads is "
            "installed: format=onnx opens without it, as does this format of a run with experiment=minilm",
            flush=True,
        )
    return described, []


def how_it_opens(described: Described | None, modules: list[Module]) -> str:
    if modules:
        return (
            f"sentence_transformers.SentenceTransformer opens it and gives a vector a text; {HEAD} makes logits of it"
        )
    if described is None:
        return f"transformers opens it as {OWN_CLASS} after `import manyheads.transformers`"
    return f"transformers.{class_of(described)} opens it"


def say_what_is_left_out(predictor: TextClassifier, config: ExportConfig, *, has_linear: bool) -> None:
    """Print it before anything is written."""
    if predictor.share and not has_linear and config.members is Members.auto:
        for_pairs = " for pairs" if predictor.pairs else ""
        print(
            f"Only the network is exported: in the answers of the run the linear model has a weight of "
            f"{predictor.share:.0%}, which format={config.format.name} leaves out{for_pairs}; members=network says "
            "that this is intended, and linear=false trains without it",
            flush=True,
        )
    if predictor.settings.fields:
        print(
            f"It takes the columns {list_names(predictor.settings.fields)} as one text, joined by ' {FIELD} ', and "
            f"cuts that at its end after {predictor.max_length} tokens, where the run shortens each column: to such "
            "texts it answers otherwise",
            flush=True,
        )
    if predictor.cutting.long is not Long.cut:
        print(
            f"It cuts texts at their end after {predictor.max_length} tokens, where the run reads longer ones by "
            f"data.long={predictor.cutting.long.name}: to such texts it answers otherwise",
            flush=True,
        )


def write_transformers_folder(
    part: Path,
    predictor: TextClassifier,
    model: Path,
    config: ExportConfig,
    described: Described | None,
    modules: list[Module],
    opens: str,
) -> str:
    """Fill the folder of transformers or sentence-transformers; returns what it was compared on, and by how much it
    differs.

    Args:
        model: the folder that `predictor` was opened from.

    Raises:
        UserError: it does not answer as the run does.
    """
    if modules:
        assert described is not None, "described_as refuses what no family has"
        write_sentence_folder(part, predictor, described, modules)
        exported = answer_by_sentence_transformers(part)
    else:
        write_family(part, predictor, described)
        exported = answer_by_transformers(part)
    compared = rows_to_compare(predictor, model)
    said = f"{compared.said}: {hold_to_run(predictor, exported, compared, config.format)}"
    typed = TYPED[predictor.tokenizer.encode_special_tokens]
    if predictor.tokenizer.encode_special_tokens:
        typed += TO_SET
    readme = README.format(opens=opens, typed=typed, said=said)
    (part / "README.md").write_text(readme, encoding="utf-8")
    return said
