"""Run by test_shares.py: one process answers and judges, then N do, and the first writes what came out.

    python sharing.py FOLDER N CLASSIFIER CLASSIFIER_OF_PAIRS

All is imported once, then processes are forked, joined by gloo.
"""

import contextlib
import io
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch  # noqa: F401 - once, before the processes part
import torch
import torch.distributed as dist
from torch import Tensor

from manyheads.config import (
    Accelerator,
    BatchConfig,
    EvaluateConfig,
    InferenceHardware,
    ModelConfig,
    OptimConfig,
    PredictConfig,
    run_data,
)
from manyheads.config.inference import InferenceBatch
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed.heartbeat import PeerLost
from manyheads.distributed.ranks import this_process
from manyheads.evaluation.evaluate import evaluate
from manyheads.inference.batching import RowValues
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.inference.workers import work_together
from manyheads.nn import assemble
from manyheads.training.module import LitModule
from manyheads.training.objectives import Classify

MOST_ROWS, TOKENS, LATE = 17, 20, 300
ROWS = (1, 2, 3, 4, 7, MOST_ROWS)
WORDS = ["good", "bad", "fine", "awful", "film", "very", "not", "so"]
TEXTS = [" ".join(WORDS[(at + step) % 8] for step in range(1 + at * 5 % 9)) for at in range(MOST_ROWS)]
PAIRS = TEXTS[::-1]
CPU = InferenceHardware(accelerator=Accelerator.cpu, timeout=LATE)
MISTAKES: dict[str, dict[str, Any]] = {
    "a line": {"input": "broken.txt"},
    "no run": {"run": "nowhere", "text": "good"},
    "no folder": {"text": "good", "output": "nowhere/out"},
}


class Watched:
    """A model, or the processes together, that notes the rows which this process answers."""

    def __init__(self, own: Any, seen: list[list[int]]) -> None:
        self.own, self.seen = own, seen

    def run(self, asked: Any, *question: Any, **numbers: Any) -> RowValues:
        if not isinstance(asked, Tokens):  # the processes, given a model
            return self.own.run(Watched(asked, self.seen), *question)
        found = self.own.run(asked, *question, **numbers)
        self.seen.append(found.rows_m.tolist())
        return found


def answer_together(verb: Callable[[Any], Any], opened: Callable[[], Any], timeout: float) -> Any:
    """What `verb` returns in the first process, which is given the workers if there are several; None in the others."""
    ranks = this_process()
    if ranks.n_ranks == 1:
        return verb(None)
    with work_together(ranks, timeout) as workers:
        if ranks.is_first:
            return verb(workers)
        workers.serve_requests(opened)
    return None


def answers(folder: Path, of_rows: Callable[[Any, int], Any], seen: list[list[int]]) -> list[Any] | None:
    """What the model says of the first rows, as many as each of ROWS."""

    def verb(workers: Any) -> list[Any]:
        model = replace(load(folder), workers=workers and Watched(workers, seen))
        return [of_rows(model, n) for n in ROWS]

    return answer_together(verb, lambda: Watched(load(folder), seen), CPU.timeout)


def logits(model: Any, n: int) -> list[Any]:
    return model.logits(TEXTS[:n], tokens=TOKENS).tolist()


def logits_of_pairs(model: Any, n: int) -> list[Any]:
    return model.logits(TEXTS[:n], PAIRS[:n], tokens=TOKENS).tolist()


def predictions(classifier: Path, rank: int) -> None:
    """Files of answers, in the current folder."""
    lines = [TEXTS[at % MOST_ROWS] for at in range(1100)]
    Path("in.txt").write_text("".join(f"{line}\n" for line in lines))
    few = {"batch": InferenceBatch(tokens=200), "hardware": CPU}
    n_rows = predict(PredictConfig(run=str(classifier), input="in.txt", output="classes.jsonl", **few))
    assert n_rows == (0 if rank else 1100)
    read, write = os.pipe()
    sys.stdin = None if rank else io.TextIOWrapper(os.fdopen(read, "rb"))
    typing = threading.Thread(target=type_slowly, args=(write,))
    typing.start()
    predict(PredictConfig(run=str(classifier), output="typed.jsonl", **few))
    typing.join()


def type_slowly(write: int) -> None:
    """To standard input, which the first process alone reads."""
    with os.fdopen(write, "wb") as typed:
        for text in TEXTS[:3]:
            typed.write(f"{text}\n".encode())
            typed.flush()
            time.sleep(0.05)


def evaluation(run: Path, output: str) -> None:
    """A folder of results, in the current folder."""
    rows = [f'"{text}","{text}",{("bad", "good", "so-so")[at % 3]},"{text[:5]}"' for at, text in enumerate(TEXTS)]
    Path("rows.csv").write_text("\n".join(["text,source,label,target", *rows]))
    data = run_data(path="rows.csv")
    shared: dict[str, Any] = {"batch": InferenceBatch(tokens=TOKENS), "hardware": CPU}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        evaluate(EvaluateConfig(run=str(run), data=data, output=output, **shared))
    Path("said.txt").write_text(said.getvalue())


def mistakes(classifier: Path) -> dict[str, str]:
    """What is said of each, by the first process alone."""
    Path("broken.txt").write_bytes(b"good\n" * 1100 + b"b\xe9d\n")
    said = {}
    for name, typed in MISTAKES.items():
        try:
            predict(PredictConfig(**{"run": str(classifier), "output": "mistake", "hardware": CPU} | typed))
        except ValueError as error:
            said[name] = str(error)
    return said


def validations(rank: int, n_ranks: int) -> list[dict[str, float]]:
    """Figures of the first rows, as many as each of ROWS, as training has them, in the processes of a run."""
    torch.manual_seed(0)
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=4, d_ff=24)
    network = assemble(shape, vocab_size=20, n_classes=3, max_length=16).eval()
    found = []
    for n in ROWS:
        lengths = torch.tensor([1 + at * 5 % 9 for at in range(n)])
        generator = torch.Generator().manual_seed(n)
        ids_N = torch.randint(0, 20, (int(lengths.sum()),), generator=generator, dtype=torch.int32)
        tokens = Tokens(ids_N, torch.cat([torch.zeros(1), lengths.cumsum(0)]).long(), None, torch.arange(n) % 3)
        data = TextData({"validation": tokens}, BatchConfig(tokens=TOKENS, rows=4), 0)
        place = SimpleNamespace(root_device=torch.device("cpu"))
        data.trainer = SimpleNamespace(current_epoch=0, world_size=n_ranks, global_rank=rank, strategy=place)  # pyright: ignore
        module = LitModule(network, Classify(torch.ones(3), label_smoothing=0.0), optim=OptimConfig(), n_steps=1)
        logged: dict[str, Tensor] = {}
        module.log_dict = logged.update  # pyright: ignore[reportAttributeAccessIssue]
        with torch.no_grad():
            for index, batch in enumerate(data.val_dataloader()):
                module.validation_step(batch, index)
        rows = module.objective.validation_metrics.rows_C.sum().item()
        module.on_validation_epoch_end()
        found.append({name: one.item() for name, one in logged.items()} | {"rows of this process": rows})
    return found


def lost(classifier: Path, how: str) -> str:
    """What is said in the first process where the second is silent for too long, or ends, in the middle of its part."""

    class Leaves:
        def run(self, *question: Any, **numbers: Any) -> RowValues:
            if how == "ended":
                os._exit(9)
            time.sleep(1.5)
            return RowValues(torch.empty(0), torch.empty(0))

    def verb(workers: Any) -> None:
        replace(load(classifier), workers=workers).logits(TEXTS, tokens=TOKENS)

    try:
        answer_together(verb, Leaves, 1 if how == "silent" else CPU.timeout)
    except PeerLost as error:
        return error.why
    return ""


@contextlib.contextmanager
def side_by_side(rank: int, n_ranks: int, port: int, here: Path) -> Any:
    """This process as one of several, as `torchrun` says it, once the first is `here`: who calls it in vain, calls ever
    more seldom."""
    while rank and not here.exists():
        time.sleep(0.02)
    words = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n_ranks, "LOCAL_WORLD_SIZE": n_ranks}
    words |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(word) for name, word in words.items()} if n_ranks > 1 else {})
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


Do = Callable[[int, int], dict[str, Any]]


def alone_and_together(do: Do, folder: Path, rank: int, several: int, port: int) -> None:
    """What `do(rank, n_ranks)` finds in the first process alone and in each of several, in folders of their own."""
    for n_ranks in (several,) if rank else (1, several):
        own = folder / str(n_ranks) / str(rank)
        own.mkdir(parents=True)
        os.chdir(own)
        with side_by_side(rank, n_ranks, port, folder / str(n_ranks) / "0"):
            (own / "found.json").write_text(json.dumps(do(rank, n_ranks)))


def fork(do: Do, folder: Path, several: int, classifier: Path | None = None) -> None:
    """`do` in one process, then in several; and how the first ends without the second, if there is a classifier."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()

    def work(rank: int) -> None:
        alone_and_together(do, folder, rank, several, ports[0])
        for how, port in zip(("silent", "ended"), ports[1:], strict=True) if classifier and rank < 2 else ():
            (folder / f"{how}-{rank}.txt").touch()
            with side_by_side(rank, 2, port, folder / f"{how}-0.txt"):
                (folder / f"{how}-{rank}.txt").write_text(lost(classifier, how))

    children = []
    for rank in range(1, several):
        if not (child := os.fork()):
            work(rank)
            os._exit(0)
        children.append(child)
    try:
        work(0)
    except BaseException:
        for child in children:
            os.kill(child, signal.SIGKILL)
        raise
    for child in children:
        os.waitpid(child, 0)


def main() -> None:
    folder, classifier, of_pairs = map(Path, (sys.argv[1], *sys.argv[3:]))

    def do(rank: int, n_ranks: int) -> dict[str, Any]:
        seen: dict[str, list[list[int]]] = {"classes": [], "pairs": []}
        said = {
            "classes": answers(classifier, logits, seen["classes"]),
            "pairs": answers(of_pairs, logits_of_pairs, seen["pairs"]),
        }
        predictions(classifier, rank)
        evaluation(classifier, "classes")
        found = {"answers": said, "seen": seen, "mistakes": mistakes(classifier)}
        return found | {"validations": validations(rank, n_ranks)}

    fork(do, folder, int(sys.argv[2]), classifier)


if __name__ == "__main__":
    main()
