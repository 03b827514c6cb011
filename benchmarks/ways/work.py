"""One task in a process of its own, and several of them one after another or side by side."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from machine import machine

from ways.recipes import MULTI, OTHERS, PROTOCOL, WORDS, Task, data_folder, words_of

PACKAGES = ("torch", "lightning", "tokenizers", "scikit-learn", "numpy")
ONE = "one-task"  # the first word of a child's command line
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
PATIENCE = 60  # seconds in which a training may save its state
Recorder = Callable[[Task, dict[str, Any]], None]


@dataclass(frozen=True)
class How:
    """How tasks are run: `threads` each, `jobs` at a time, given up after `minutes`; their folders lie in `homes`."""

    script: Path
    homes: Path
    jobs: int = 1
    threads: int = 1
    minutes: float = 120


def run_all(tasks: Sequence[Task], how: How, done: Recorder) -> None:
    """Run `tasks` in their order; `done` hears of each in this thread. Stopped, it stops them too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    running: set[subprocess.Popen[bytes]] = set()
    with ThreadPoolExecutor(how.jobs) as pool:
        waited = {pool.submit(run_one, task, how, running): task for task in tasks}
        try:
            for one in as_completed(waited):
                done(waited[one], one.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                end(process)
            raise


def run_one(task: Task, how: How, running: set[subprocess.Popen[bytes]]) -> dict[str, Any]:
    """What was measured, or why it failed, by which protocol, words and commit."""
    home = how.homes / task.title.replace(" ", "-").replace("=", "")
    home.mkdir(parents=True, exist_ok=True)
    result, log = home / "result.json", home / "log"
    result.unlink(missing_ok=True)
    made_by = {"protocol": PROTOCOL, "words": words_of(task), **source(how.script)}
    same_recipe(home, made_by)
    threads = dict.fromkeys(THREADS, str(how.threads))
    words = [sys.executable, str(how.script), ONE, task.name, task.size, task.way, str(task.seed), str(home)]
    with log.open("ab") as said:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=said, stderr=said, env=os.environ | threads, start_new_session=True
        )
        running.add(process)
        try:
            process.wait(how.minutes * 60)
        except subprocess.TimeoutExpired:
            return {**made_by, "failed": f"not done after {how.minutes:g} minutes"}
        finally:
            end(process)
            running.discard(process)
    if not result.exists():
        return {**made_by, "failed": f"it ended with {process.returncode}"}
    found = json.loads(result.read_text(encoding="utf-8"))
    if "failed" in found:
        return {**made_by, **found}
    shutil.rmtree(home)
    return {**made_by, **found, **where(how)}


def run_here(task: Task, how: How, test_rows: int = 0) -> dict[str, Any]:
    """`run_one` in this process: for ways that answer in less time than a process takes to start."""
    home = how.homes / task.title.replace(" ", "-").replace("=", "")
    made_by = {"protocol": PROTOCOL, "words": words_of(task), **source(how.script)}
    try:
        found = measure(task, home, test_rows)
    except Exception as error:  # whatever it is, the other tasks continue
        return {**made_by, "failed": f"{type(error).__name__}: {error}"}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return {**made_by, **found, **where(how)}


def where(how: How) -> dict[str, Any]:
    """On what something was measured."""
    versions = {name: version(name) for name in PACKAGES}
    return {"threads": how.threads, "side_by_side": how.jobs, **machine(), "versions": versions}


def same_recipe(home: Path, made_by: dict[str, Any]) -> None:
    """Forget a run that was begun by another protocol, other words or another commit."""
    note = home / "made_by.json"
    if note.exists() and json.loads(note.read_text()) != made_by:
        shutil.rmtree(home / "run", ignore_errors=True)
    note.write_text(json.dumps(made_by))


def source(script: Path) -> dict[str, Any]:
    """The commit of the code that is measured, and whether that code differs from it; the tables and figures that a
    measurement writes do not count."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(script.parent), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    code = [
        ":/src",
        ":/conf",
        ":/benchmarks",
        ":/constraints.txt",
        *(f":(top,exclude)*.{end}" for end in ("json", "part")),
    ]
    return {"commit": git("rev-parse", "HEAD")[:12] or "none", "dirty": bool(git("status", "--porcelain", "--", *code))}


def end(process: subprocess.Popen[bytes]) -> None:
    """And all that it started; a training saves its state first."""
    patient_until = time.monotonic() + PATIENCE
    try:
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < patient_until:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # none of them is left
        pass
    process.wait()
    if process.stdin:
        process.stdin.close()


def child(words: list[str], test_rows: int = 0) -> None:
    """The process of one task; it ends with whoever started it."""
    threading.Thread(target=follow_parent, daemon=True).start()
    name, size, way, seed, home = words
    task = Task(name, size, way, int(seed))
    try:
        found = measure(task, Path(home), test_rows)
    except Exception as error:  # whatever it is, the other tasks continue
        traceback.print_exc()
        found = {"failed": f"{type(error).__name__}: {error}"}
    part = Path(home) / "result.part"
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(Path(home) / "result.json")


def follow_parent() -> None:
    """The other end of standard input closes when the parent is gone, however it went."""
    os.read(sys.stdin.fileno(), 1)
    os.killpg(0, signal.SIGTERM)


def measure(task: Task, home: Path, test_rows: int = 0) -> dict[str, Any]:
    """Train, answer the test rows, or `test_rows` of them, judge the answers."""
    import manyheads
    from ways.judging import of_answers, of_labels
    from ways.ours import train_and_judge
    from ways.rows import data_of

    script = Path(__file__)
    checkouts = {script.absolute().parents[2], script.resolve().parents[2]}  # benchmarks/ may be a link
    if Path(manyheads.__file__).parents[2] not in checkouts:
        raise RuntimeError(f"manyheads is imported from {manyheads.__file__}, which is not the checkout of this script")
    folder = data_of(task, data_folder(), home, test_rows)
    if task.way in WORDS:
        found = train_and_judge(task, folder, home)
        given = found.pop("given")
        judge = of_labels if task.name in MULTI else of_answers
        return {**found, **judge([one for one, _ in given], [one for _, one in given])}
    from ways import cheap
    from ways.rows import splits_of

    started = time.perf_counter()
    if task.name in MULTI:
        best = cheap.answer_labels(folder)
        chosen = {"validation": {"micro_f1": round(best["validation"], 5)}, "chosen": best["chosen"]}
        judged = of_labels(best["truth"], best["answers"])
        return {"wall_seconds": round(time.perf_counter() - started, 1), **chosen, **judged}
    splits, everything = splits_of(folder)
    assert splits.test is not None
    if task.way in OTHERS:
        from ways import others

        validation, test, chosen = others.answers(task.way, splits, everything, task.seed, home)
    else:
        validation, test, chosen = cheap.answers(task.way, splits, everything, task.seed)
    right = [given == label for given, label in zip(validation, splits.validation.labels, strict=bool(validation))]
    return {
        "wall_seconds": round(time.perf_counter() - started, 1),
        **({"validation": {"accuracy": round(sum(right) / len(right), 5)}} if right else {}),
        **({"chosen": chosen} if chosen else {}),
        **of_answers(splits.test.labels, test),
    }
