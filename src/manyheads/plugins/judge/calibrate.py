"""The verb `calibrate`: calibrate the probabilities of a finished classifier on rows that it has not learnt from.

This file checks the model, the rows and the output, without torch; calibration_fit.py fits, judges and writes.
"""

from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import find_data
from manyheads.evaluation.held_out import require_new
from manyheads.inference.download import OF_HUB
from manyheads.inference.format import CALIBRATION, CARD, MORE, enclosing_run, open_folder
from manyheads.plugins.judge.config import FEWEST, CalibrateConfig
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.runs.summary import Interval, words_of
from manyheads.runs.verb_output import VerbOutput, refuse_occupied
from manyheads.terminal import say, typed_path

CALIBRATED = VerbOutput("calibrate", CALIBRATION, ('"method":', '"copy": true'), (CARD, *OF_HUB, *MORE))


def calibrate(config: CalibrateConfig) -> dict[str, Any]:
    """Fit calibration.json and write it into the model folder, in place of one that is there; returns its content.

    Raises:
        UserError: one sentence; the run, the data, or rows that the model learnt from.
    """
    folder = open_folder(config.run, "classify")
    labels, home = folder.labels(), enclosing_run(folder.path)
    asked = EvaluateConfig(run=config.run, split=config.split, data=config.data)
    data = find_data(asked, home, folder.settings, labels)
    if config.output and Path(config.output).exists():
        if not config.overwrite:
            raise UserError(
                f"output={config.output} is there already: name a new folder, or remove output to calibrate that of run"
                ", or add overwrite=true to replace what calibrate wrote there"
            )
        if Path(config.output).resolve() == folder.path.resolve():
            raise UserError(f"output={config.output} is the model of run: remove output to calibrate it where it is")
        refuse_occupied(Path(config.output), CALIBRATED, overwrite=True)
    target = Path(config.output or folder.path)
    refuse_unwritable_output(str(target), target.resolve())
    if data.role == "train":
        raise UserError(
            f"{data.rows.source} holds rows that the model learnt from, which it is too sure of: calibrate it on others"
        )
    warnings = []
    if data.run is None:  # rows of the user's, which may hold texts of the training
        warnings = require_new(folder.path, data.rows, labels, "calibrate it on others")
    if len(data.rows) < FEWEST:
        raise UserError(
            f"{data.rows.source} has {len(data.rows)} rows, too few to fit anything that holds: give {FEWEST} or more"
        )

    from manyheads.plugins.judge.calibration_fit import fit_and_write

    found = fit_and_write(config, folder, data, target, CALIBRATED)
    drawn = f" of {found['of']:,}, drawn" if found["rows"] < found["of"] else ""
    say(
        f"{found['method']} on {found['rows']:,} rows{drawn}; "
        "after: of five folds, each mapped by what the others fitted"
    )
    for name, before in found["before"].items():
        after = found["after"][name]
        say(f"  {words_of(name)}: {Interval(**before).words} before, {Interval(**after).words} after")
    if found["after"]["loss"]["value"] > found["before"]["loss"]["value"]:
        warnings.append(
            f"the loss is higher after {found['method']} than before it, so it does not help here: delete "
            f"{typed_path(target / CALIBRATION)}, or fit another method, or to more rows"
        )
    say(typed_path(target / CALIBRATION), *(f"warning: {one}" for one in warnings))
    return found
