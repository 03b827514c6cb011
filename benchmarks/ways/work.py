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
from pathlib import Path
from typing import Any

from machine import machine

from ways.recipes import MULTI, OURS, Task, data_folder, words_of

ONE = "one-task"  # the first word of a child's command line
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
PATIENCE = 60  # seconds in which a training may save its state
Recorder = Callable[[Task, dict[str, Any]], None]


def run_all(tasks: Sequence[Task], script: Path, homes: Path, jobs: int, minutes: float, done: Recorder) -> None:
    """Run `tasks` in their order, `jobs` at a time; `done` hears of each in this thread. Stopped, it stops them too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    running: set[subprocess.Popen[bytes]] = set()
    with ThreadPoolExecutor(jobs) as pool:
        waited = {pool.submit(run_one, task, script, homes, jobs, minutes, running): task for task in tasks}
        try:
            for one in as_completed(waited):
                done(waited[one], one.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                end(process)
            raise


def run_one(
    task: Task, script: Path, homes: Path, jobs: int, minutes: float, running: set[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """What was measured, or why it failed."""
    home = homes / task.title.replace(" ", "-").replace("=", "")
    home.mkdir(parents=True, exist_ok=True)
    result, log = home / "result.json", home / "log"
    result.unlink(missing_ok=True)
    same_recipe(home, words_of(task))
    threads = dict.fromkeys(THREADS, "1") if jobs > 1 else {}
    unset = {name: value for name, value in os.environ.items() if name not in THREADS}  # so that one alone has all
    words = [sys.executable, str(script), ONE, task.name, task.size, task.way, str(task.seed), str(home)]
    with log.open("ab") as said:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=said, stderr=said, env=unset | threads, start_new_session=True
        )
        running.add(process)
        try:
            process.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {minutes:g} minutes"}
        finally:
            end(process)
            running.discard(process)
    if not result.exists():
        return {"failed": f"it ended with {process.returncode}"}
    found = json.loads(result.read_text(encoding="utf-8"))
    if "failed" in found:
        return found
    shutil.rmtree(home)
    side = {"threads": 1 if jobs > 1 or task.way not in OURS else len(os.sched_getaffinity(0)), "side_by_side": jobs}
    return {"words": words_of(task), **found, **side, **machine()}


def same_recipe(home: Path, words: list[str]) -> None:
    """Forget a run that was begun by another recipe."""
    note = home / "words.json"
    if note.exists() and json.loads(note.read_text()) != words:
        shutil.rmtree(home / "run", ignore_errors=True)
    note.write_text(json.dumps(words))


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


def child(words: list[str]) -> None:
    """The process of one task; it ends with whoever started it."""
    threading.Thread(target=follow_parent, daemon=True).start()
    name, size, way, seed, home = words
    task = Task(name, size, way, int(seed))
    try:
        found = measure(task, Path(home))
    except Exception as error:  # whatever it is, the other tasks go on
        traceback.print_exc()
        found = {"failed": f"{type(error).__name__}: {error}"}
    part = Path(home) / "result.part"
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(Path(home) / "result.json")


def follow_parent() -> None:
    """The other end of standard input closes when the parent is gone, however it went."""
    os.read(sys.stdin.fileno(), 1)
    os.killpg(0, signal.SIGTERM)


def measure(task: Task, home: Path) -> dict[str, Any]:
    """Train, answer the test rows, judge the answers."""
    from ways.judging import of_answers, of_labels
    from ways.ours import train_and_judge
    from ways.rows import data_of, splits_of

    folder = data_of(task, data_folder(), home)
    if task.way in OURS:
        found = train_and_judge(task, folder, home)
        given = found.pop("given")
        if task.name in MULTI:
            return {**found, **of_labels([one for one, _ in given], [one for _, one in given])}
        return {**found, **of_answers([one for one, _ in given], [one for _, one in given])}
    from ways import cheap

    started = time.perf_counter()
    if task.name in MULTI:
        best = cheap.answer_labels(folder)
        chosen = {"validation": {"micro_f1": round(best["validation"], 5)}, "chosen": best["chosen"]}
        judged = of_labels(best["truth"], best["answers"])
        return {"wall_seconds": round(time.perf_counter() - started, 1), **chosen, **judged}
    splits, everything = splits_of(task, folder)
    assert splits.test is not None
    validation, test, chosen = cheap.answers(task.way, splits, everything, task.seed)
    right = [given == label for given, label in zip(validation, splits.validation.labels, strict=True)]
    return {
        "wall_seconds": round(time.perf_counter() - started, 1),
        "validation": {"accuracy": round(sum(right) / len(right), 5)},
        **({"chosen": chosen} if chosen else {}),
        **of_answers(splits.test.labels, test),
    }
