"""Writing checkpoints to disk, in the foreground or by a thread while training goes forward."""

import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from manyheads.runs.checkpoints import Write, write_checkpoint
from manyheads.runs.files import hardlink_or_copy


class CheckpointWriter:
    """Writes one checkpoint at a time; used by the first process alone.

    Args:
        best: the file of the best weights, of which each checkpoint holds a copy. Checkpoints are written next to it.
        keep: how many checkpoints are kept.

    Attributes:
        seconds: that the last checkpoint took, from the moment its files were gathered.
        n_bytes: its size.
    """

    def __init__(self, best: Path, keep: int) -> None:
        self.best, self.keep = best, keep
        self.seconds, self.n_bytes = 0.0, 0
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._step = 0

    def write(self, step: int, files: dict[str, Write], began: float, *, has_best: bool, background: bool) -> str:
        """Write the checkpoint of `step`.

        Args:
            files: what writes each file, by name.
            began: `perf_counter()` when it was begun.
            has_best: the file of the best weights exists.
            background: leave the writing to the thread, and return at once.

        Returns:
            Why it could not be written, in a sentence, or "". What fails in the background is returned by `wait`.
        """
        self._step = step
        copies = {self.best.name: self.best} if has_best else {}

        def write() -> None:
            try:
                folder = write_checkpoint(self.best.parent, step, files, copies, keep=self.keep)
            finally:
                for copy in copies.values():
                    if copy != self.best:
                        copy.unlink(missing_ok=True)
            self.seconds = perf_counter() - began
            self.n_bytes = sum(file.stat().st_size for file in folder.iterdir())

        try:
            if not background:
                write()
                return ""
            if has_best:  # better weights may replace the file before the thread comes to it
                copies = {self.best.name: self.best.with_name(f".{self.best.name}.{secrets.token_hex(8)}.part")}
                hardlink_or_copy(self.best, copies[self.best.name])
            self._writing = self._thread.submit(write)
        except (OSError, ValueError) as problem:
            return self._refusal(problem)
        return ""

    def has_failed(self) -> bool:
        """Whether the background has ended with an error."""
        return self._writing is not None and self._writing.done() and self._writing.exception() is not None

    def wait(self) -> str:
        """Wait for the background; returns why it could not write, in a sentence, or ""."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except (OSError, ValueError) as problem:
            return self._refusal(problem)
        return ""

    def close(self) -> str:
        """`wait`, and end the thread."""
        refusal = self.wait()
        self._thread.shutdown()
        return refusal

    def _refusal(self, problem: OSError | ValueError) -> str:
        if isinstance(problem, ValueError):  # the state of a callback that no checkpoint can hold
            return str(problem)
        return (
            f"the checkpoint of step {self._step} cannot be written to {self.best.parent} "
            f"({problem.strerror or problem}): make room there or let it be written to, then continue by resume=auto"
        )
