"""The verb `probe`: behavioural tests of a classifier, on texts whose answer is known beforehand.

This file checks the model, the tests and the output, without torch; probe_tests.py holds the tests and the changes of
texts, and behaviour.py tries the model on them and writes the report.
"""

from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.data.formats.fields import reader_of
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import find_data
from manyheads.inference.format import enclosing_run, home_of, open_folder
from manyheads.plugins.judge.config import ProbeConfig
from manyheads.plugins.judge.probe_tests import CHANGES, BehaviourTest, cases_of, read_tests
from manyheads.runs.folder import refuse_unwritable_output, within
from manyheads.runs.verb_output import VerbOutput, lock_output, refuse_occupied

PROBED = VerbOutput("probe", "probe.json", ('"tests":', '"run":'), ("report.html",))


def probe(config: ProbeConfig) -> dict[str, Any]:
    """Try a classifier on the tests of a file, or on the default ones; returns the content of probe.json.

    Writes probe.json and report.html to `output`, else <run>/probe/<data>-<split>.

    Raises:
        UserError: one sentence; the run, the data, a test, or the output.
    """
    folder = open_folder(config.run, "classify", graph=True)
    labels = folder.labels()
    tests = [BehaviourTest(name, name) for name in CHANGES]
    if config.tests:
        tests = read_tests(Path(config.tests), labels)
    data, name = None, "templates"
    if any(not test.template for test in tests):
        asked = EvaluateConfig(run=config.run, split=config.split, data=config.data)
        data = find_data(asked, enclosing_run(folder.path), folder.settings, labels)
        name = data.folder
    output = Path(config.output or within(home_of(config.run, folder.path), "probe", name))
    if config.output or config.overwrite:
        refuse_occupied(output, PROBED, overwrite=config.overwrite)
    refuse_unwritable_output(str(output))
    read = reader_of(folder.settings.kept)
    cases = [cases_of(test, data.rows if data else None, config, read) for test in tests]
    for test, of_test in zip(tests, cases, strict=True):
        if any((len(case.texts) == 2) != folder.settings.pairs for case in of_test):
            kind = "pairs of texts, with a tab between them" if folder.settings.pairs else "single texts, without a tab"
            raise UserError(f"{config.tests}: the template of '{test.name}' must make {kind}, as the run reads them")

    from manyheads.plugins.judge.behaviour import run_tests, write_behaviour

    with lock_output(output):
        if config.output or config.overwrite:
            refuse_occupied(output, PROBED, overwrite=config.overwrite)
        results = run_tests(tests, cases, folder, config)
        return write_behaviour(output, PROBED, results, data, config)
