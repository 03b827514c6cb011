"""The verb `audit`: one page on labelled texts before anything is trained on them.

Classes, lengths, scripts, repeated and nearly repeated texts, leaks between splits, contradicting and probably wrong
labels, personal data by its patterns (counted, and masked on the page), and what more rows would bring, by a linear
model in place of the classifiers to come. Of a large split a sample is looked at, which the page says.

This file reads the data and writes the files; row_facts.py finds the facts, and audit_report.py puts them together.
"""

from pathlib import Path
from typing import Any

from manyheads.data.sources import read_splits
from manyheads.plugins.judge.config import AuditConfig
from manyheads.runs.files import write_json
from manyheads.runs.folder import start_folder
from manyheads.runs.verb_output import VerbOutput, lock_output, output_folder, refuse_occupied
from manyheads.terminal import say, show_files

AUDITED = VerbOutput("audit", "audit.json", ('"sampled":', '"source":'), ("audit.html", "suspects.csv"))


def audit(config: AuditConfig) -> dict[str, Any]:
    """Look at the data and write audit.html, audit.json and suspects.csv; returns the content of audit.json.

    Raises:
        UserError: the data, as in training; or the output is not an empty folder.
    """
    if config.output:
        refuse_occupied(Path(config.output), AUDITED, overwrite=config.overwrite)
    splits = read_splits(config.data, config.seed, with_unread=True)
    folder = Path(config.output).absolute() if config.overwrite else start_folder(config.output)

    from manyheads.plugins.judge.audit_report import inspect, sentences, write_audit, write_suspects

    names = ["audit.html", "audit.json"]
    with lock_output(folder):
        refuse_occupied(folder, AUDITED, overwrite=config.overwrite)
        found = inspect(splits, config)
        with output_folder(folder, AUDITED, overwrite=config.overwrite) as part:
            write_audit(part / "audit.html", found, config)
            write_json(part / "audit.json", found.content)
            if found.suspects is not None:
                write_suspects(part / "suspects.csv", found.suspects, splits.labels)
                names.append("suspects.csv")
    say(*splits.notes, *sentences(found.content))
    show_files(folder, names)
    return found.content
