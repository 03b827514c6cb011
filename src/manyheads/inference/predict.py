"""The verb `predict`: finds mistakes before torch is imported; answering.py does the work."""

from operator import attrgetter
from pathlib import Path

import manyheads.plugin as plugin
from manyheads.config import Member, PredictConfig
from manyheads.config.facts import settings_where
from manyheads.distributed.launch import n_to_start, run_on_all_ranks
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.inference.answers import check_output, n_written
from manyheads.inference.format import ModelFolder, open_folder, refuse_other_task
from manyheads.inference.reading import check_input


def predict(config: PredictConfig) -> int:
    """Answer every text and write a row for each: JSON lines, or a .csv, .tsv or .parquet if the name of `output` ends
    so. Rows without a text have a null answer, and a line on standard error says how many there are: see
    `data.on_bad_row`.

    A row holds the columns of its input (`text`, and `text_pair`, if the input is lines), among them any that tells
    rows apart. Then come `label`, or the list `labels` if the model gives any number of them, and `probabilities`; or
    `generated` if it answers by texts. A file whose name ends in .csv, .tsv or .jsonl has columns, any other holds
    lines. A column of the input with the name of one that is added is kept as `input_label` and so on.

    Only answers go to standard output. An output file appears once it is whole, and a line on standard error then says
    where. The same command, repeated after a kill, resumes if it reads a file: see `opened_answers`.

    Returns:
        The number of rows, 0 in processes that help the first.

    Raises:
        UserError: one sentence; the run, the input, the line in it, or the output.
        BrokenPipeError: the reader of standard output has gone.
    """
    n_local = n_to_start(config.hardware)
    if n_local:
        check_predict(config)
        run_on_all_ranks("predict", config, n_local=n_local, timeout=config.hardware.timeout)
        return n_written(config.output)  # 0 if the rows went to standard output
    is_alone = this_process().n_ranks == 1
    folder = check_predict(config) if is_alone else None

    from manyheads.inference.answering import answer_on_ranks, answer_texts

    if folder is None:
        return answer_on_ranks(config, check_predict)
    return answer_texts(config, folder)


def check_predict(config: PredictConfig) -> ModelFolder:
    """Find mistakes in the settings, the input, the model and the output."""
    check_input(config.text, config.input)
    folder = open_folder(config.run, graph=True)
    refuse_other_task(config, folder.settings)
    plugin.asked("answer_rule", config, folder)
    if config.top_k and folder.settings.task != "classify":
        model = plugin.task(folder.settings.task).model
        raise UserError(f"top_k={config.top_k} does nothing, as the model of run {model}: remove it")
    check_members(config.members, folder)
    check_output(config.output, overwrite=config.overwrite)
    if config.overwrite:
        for name in settings_where(type(config), path=True):
            read = Path(attrgetter(name)(config))
            if name != "output" and read.is_file() and Path(config.output).resolve() == read.resolve():
                raise UserError(f"output={config.output} is what {name} names, which is read: name another file")
    return folder


def check_members(members: Member, folder: ModelFolder) -> None:
    """Raise UserError if the model has no such member."""
    if members is not Member.all and folder.settings.task != "classify":
        model = plugin.task(folder.settings.task).model
        raise UserError(f"members={members.name} does nothing, as the model of run {model}: remove it")
    if members is Member.linear and folder.settings.terms is None:
        raise UserError(
            "members=linear asks the linear model, but the model of run has none: name a run trained with linear=true, "
            "or remove it"
        )
