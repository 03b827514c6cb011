"""Which tests run in the same process of xdist: what the tests of a file share is made once in each process that runs
one of them, so that each file runs in one process, and so do all files of each group in `SHARED`."""

from typing import Any

import pytest

SHARED = (
    ("tests/core/hostile/",),  # its tests share a process that has trained, judged and answered
    ("tests/plugins/hub/test_graph.py", "tests/test_extending.py"),  # torch's first export takes twice as long
    (
        "tests/core/nn/test_layer_calls.py",
        "tests/plugins/language/test_layer_calls.py",
    ),  # so does what it compiles first
    (  # one browser
        *("tests/plugins/serving/test_serve.py", "tests/plugins/interpret/test_viewer.py"),
        "tests/core/evaluation/test_report.py",
    ),
)
LONG = (  # files that take 10 seconds and more begin first, so that no process waits for one in the end
    *("tests/core/ranks/", "tests/core/hostile/", "tests/plugins/sweep/", "tests/plugins/serving/test_serve.py"),
    *("tests/plugins/multirun/test_sweeps.py", "tests/core/runs/test_warm.py", "tests/plugins/hub/test_graph.py"),
    *("tests/core/nn/test_layer_calls.py", "tests/core/inference/test_shares.py", "tests/core/test_resume.py"),
    *("tests/core/cli/test_cli.py", "tests/plugins/test_deleted.py", "tests/test_extending.py"),
    *("tests/test_readme.py", "tests/test_examples.py"),
)


def scope_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return next((group[0] for group in SHARED if file.startswith(group)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For --dist loadfile. With pytest 9.2, --dist loadgroup of xdist 3.8 does nothing: it renames tests in vain."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None
