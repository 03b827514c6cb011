"""`manyheads export`: a classifier of ours as a folder of transformers, of sentence-transformers, or as a graph.

This file finds mistakes before torch is imported; `write.py` does the work.
"""

from importlib.util import find_spec
from pathlib import Path

from manyheads.config.sentences import install_extra
from manyheads.data.formats.fields import reader_of
from manyheads.errors import UserError
from manyheads.inference.format import home_of, open_folder
from manyheads.plugins.hub.config import EXPORTED, ExportConfig, Format
from manyheads.runs.files import refuse_irreplaceable
from manyheads.runs.verb_output import refuse_occupied

PACKAGES = {  # that write and read each format, and the extra that installs them
    Format.transformers: (("transformers",), "hf"),
    Format.sentence_transformers: (("sentence_transformers",), "hf"),
    Format.torch: ((), ""),
    Format.onnx: (("onnx", "onnxscript", "onnxruntime"), "onnx"),
    Format.browser: (("onnx", "onnxscript", "onnxruntime"), "onnx"),
}


def export(config: ExportConfig) -> Path:
    """Write the folder that `config` asks for, whole or not at all, and say how it is opened; returns it.

    Raises:
        UserError: the run is no classifier, or of a shape that the format does not have; a package is missing; what is
            written answers otherwise; the folder holds something.
    """
    opened = open_folder(config.run, "classify")
    is_graph = config.format in (Format.onnx, Format.torch)
    if reader_of(opened.settings.kept) is not None and not is_graph:
        raise UserError(
            f"run={config.run} reads columns by their names, which format={config.format.name} does not: use "
            "format=onnx or format=torch"
        )
    if config.output:
        folder = Path(config.output).expanduser().resolve()  # of a link: the folder that it leads to is filled
    else:
        folder = home_of(config.run, opened.path) / config.format.name
    refuse_occupied(folder, EXPORTED, overwrite=config.overwrite)
    refuse_irreplaceable(folder)
    packages, extra = PACKAGES[config.format]
    for package in packages:
        if find_spec(package) is None:
            raise UserError(
                f"run={config.run} cannot be exported without the package {package}: {install_extra(extra)}"
            )

    from manyheads.plugins.hub.write import write_export

    write_export(config, opened, folder)
    return folder
