"""What the tests of several rooms share: small shipped models, and runs of several processes."""

import csv
import functools
import gc
import importlib.metadata
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import hypothesis
import pytest
from hypothesis import HealthCheck

import manyheads.plugin as plugin
from manyheads.config import DataConfig, ModelConfig
from manyheads.config import plugins as in_plugins
from manyheads.runs import warm
from tests.browser import chromium  # noqa: F401  a fixture
from tests.pictures import REAL, draw_nothing
from tests.scheduling import LONG, pytest_xdist_make_scheduler  # noqa: F401  a hook

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # not by how busy other tests are at the moment
os.fsync = lambda descriptor: None  # no test takes the power away: a run would wait for the disk twenty times
if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")  # to replace a file is such a wait, too: 5 ms on ext4
# Each Lightning Trainer looks through all installed packages, 16 ms.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `make test &` starts us with it ignored

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["good", "bad", "fine", "awful", "film", "a", "the", "very", "not", "so"]
LABELS = ["bad", "good", "so-so"]
SHAPE = ModelConfig(n_layers=2, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that type a verb of another plugin are marked `verb`."""
    for mark in item.iter_markers("verb"):
        if missing := [name for name in mark.args if name not in plugin.verbs()]:
            pytest.skip(f"no plugin adds the verb {' or '.join(missing)}")


def forget_plugins() -> None:
    """Undo `plugins=[./my_parts.py]` of a command that ran in this process."""
    for name in plugin.given():
        plugin.unregister(name)
    in_plugins._sources.clear()
    os.environ.pop(in_plugins.VARIABLE, None)
    for name in ("my_parts", "more_parts"):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def first_again() -> Iterator[None]:
    """Lightning keeps for good that this process was not the first of several, and a plugin's file its folder in
    sys.path."""
    path = [*sys.path]
    yield
    sys.path[:] = path
    told = sys.modules.get("lightning.pytorch.utilities.rank_zero")
    if told is not None:
        told.rank_zero_only.rank = 0


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take half the time of a short run: they are drawn in tests that are marked `drawn` alone."""
    if "matplotlib.figure" in sys.modules:
        draw_nothing()
        if "drawn" in request.keywords:
            for name, draws in REAL.items():
                monkeypatch.setattr(sys.modules["matplotlib.figure"].Figure, name, draws)


def write_films(folder: Path) -> Path:
    """A csv of sixty rows of two classes."""
    with (folder / "rows.csv").open("w", newline="") as file:
        rows = [(f"the film is {('good', 'so bad')[n % 2]} {n}", ("up", "down")[n % 2]) for n in range(60)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return folder / "rows.csv"


def word_tokenizer() -> Any:
    """One id a known word, [CLS] and [SEP] around."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def ship(
    folder: Path,
    *,
    pairs: bool = False,
    data: DataConfig | None = None,
    shape: ModelConfig = SHAPE,
    thresholds: list[float] | None = None,
) -> Path:
    """Save an untrained model of three classes (bad, good, so-so); the same bytes at every call. With `thresholds` it
    gives any number of them."""
    import torch

    from manyheads.inference.folder import save
    from manyheads.linear.blend import Tuned
    from manyheads.nn import assemble

    torch.manual_seed(1)
    data = data or DataConfig(max_length=12)
    classifier = assemble(
        shape,
        vocab_size=len(SPECIAL) + len(WORDS),
        n_classes=len(LABELS),
        max_length=data.max_length,
        n_segments=2 if pairs else 0,
    )
    torch.nn.init.normal_(classifier.head.weight)  # far apart logits: answers differ from text to text
    made: dict[str, Any] = {"model": shape, "data": data, "tokenizer": word_tokenizer(), "labels": LABELS}
    save(folder, classifier, **made, pairs=pairs, tuned=Tuned(thresholds=thresholds))
    return folder


class Messages(logging.Handler):
    """What the log says, in a list."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """The warnings in our log, as they come. pytest's caplog would look through hundreds of loggers in every test."""
    messages, log = Messages(), logging.getLogger("manyheads")
    level = log.level
    log.addHandler(messages)
    log.setLevel(logging.WARNING)
    yield messages.said
    log.removeHandler(messages)
    log.setLevel(level)


@pytest.fixture(scope="session")
def ship_model() -> Callable[..., Path]:
    """`ship_model(folder, pairs=, data=, shape=, thresholds=)` saves a small model into `folder`."""
    return ship


@pytest.fixture
def drawn(tmp_path: Path) -> Callable[..., Any]:
    """`drawn(shape, pairs=)`: a classifier of texts of at most 16 tokens, whose weights are all drawn anew."""

    def make(shape: ModelConfig = SHAPE, *, pairs: bool = False) -> Any:
        import torch

        from manyheads.inference.folder import load

        model = load(ship(tmp_path / "model", pairs=pairs, data=DataConfig(max_length=16), shape=shape))
        torch.manual_seed(3)
        with torch.no_grad():
            for name, parameter in model.network.named_parameters():
                parameter.normal_(1.0 if "norm" in name or "after.w" in name or "before.w" in name else 0.0, 0.3)
        return model

    return make


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ takes single texts; read only."""
    return ship(tmp_path_factory.mktemp("run") / "model").parent


@pytest.fixture(scope="session")
def label_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ gives any number of labels; read only."""
    return ship(tmp_path_factory.mktemp("label-run") / "model", thresholds=[0.5, 0.35, 0.6]).parent


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model/ takes pairs; read only."""
    return ship(tmp_path_factory.mktemp("pair-run") / "model", pairs=True).parent


CALIBRATED_TEXTS = ["a good film", "so bad", "the awful film", "good fun", "a film", "so awful", "not so good the film"]


@pytest.fixture(params=["classes", "labels", "pairs", "no share"])
def calibrated(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str] | None]:
    """A run whose linear model answers with the network, calibrated so that other classes are the likeliest; and the
    second texts of `CALIBRATED_TEXTS`, where it takes pairs."""
    from manyheads.data.rows import Rows
    from manyheads.inference.folder import load, save
    from manyheads.linear.blend import Blend, Tuned
    from manyheads.linear.fit import fit_linear

    pairs, multi = request.param == "pairs", request.param == "labels"
    own = load(ship(tmp_path / "plain" / "model", pairs=pairs, thresholds=[0.5, 0.35, 0.6] if multi else None))
    seconds = CALIBRATED_TEXTS[::-1] if pairs else None
    linear = fit_linear(Rows(CALIBRATED_TEXTS, seconds, [0, 1, 1, 0, 2, 1, 0], "x.csv", range(7)), 3)
    thresholds = ([0.5, 0.35, 0.6], {"network": [0.2, 0.9, 0.4], "linear": [0.6, 0.3, 0.1]}) if multi else ()
    blend = Blend(linear, 0.0 if request.param == "no share" else 0.45, 1.7)
    about = {"model": own.model, "data": DataConfig(max_length=12), "tokenizer": own.tokenizer, "labels": own.labels}
    save(tmp_path / "run" / "model", own.network, **about, pairs=pairs, tuned=Tuned(blend, *thresholds))
    calibration = {"method": "vector", "scale": [0.4, 2.0, 0.7], "shift": [1.5, -1.0, 0.5]}
    (tmp_path / "run" / "model" / "calibration.json").write_text(json.dumps(calibration))
    return tmp_path / "run", seconds


PATIENCE = 240.0  # seconds; a machine that is shared imports torch in twenty
OF_RANKS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "MANYHEADS_OUTPUT", "MANYHEADS_FAULT",
)  # fmt: skip


ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass
class Job:
    """A command in a session of its own, and whatever it starts, known by a mark in the environment."""

    process: subprocess.Popen[bytes]
    mark: str
    said: Path

    @property
    def out(self) -> str:
        """What it and its processes have written to standard output so far."""
        return self.said.with_suffix(".out").read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it and its processes have written to standard error so far."""
        return self.said.with_suffix(".err").read_text(errors="replace")

    def processes(self) -> dict[int, dict[str, str]]:
        """All that are alive, the command itself among them: number and environment."""
        found = {}
        for one in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                environment = (one / "environ").read_bytes()
                if (
                    self.mark.encode() in environment
                    and (one / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                ):
                    pairs = (pair.partition("=") for pair in environment.decode(errors="replace").split("\0"))
                    found[int(one.name)] = {name: value for name, _, value in pairs}
        return found

    def ranks(self) -> dict[int, int]:
        """Number of the process of each rank that has begun."""
        return {int(env["RANK"]): number for number, env in self.processes().items() if "RANK" in env}

    def until(self, holds: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """Wait until `holds()` does, and return what it says; the command must go on meanwhile."""
        end = time.monotonic() + timeout
        while not (found := holds()):
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.err}"
            assert time.monotonic() < end, f"waited {timeout} s in vain: {self.err}"
            time.sleep(0.05)
        return found

    def code(self, timeout: float = PATIENCE) -> int:
        """Wait for the end of the command; its exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still going after {timeout} s: {self.err}") from None

    def left(self, within: float = 10.0) -> dict[int, dict[str, str]]:
        """What outlives the command by `within` seconds: to be nothing."""
        end = time.monotonic() + within
        while (alive := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        return alive

    def end(self) -> None:
        """Kill all of it."""
        for number in self.processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait()


@dataclass
class Jobs:
    """Starts commands; all that is left of them ends with the test."""

    folder: Path
    jobs: list[Job]

    def start(self, command: Sequence[str], cwd: str = "", **environment: str) -> Job:
        """Any command, in the test's folder unless told, with one thread a process, offline and quiet."""
        mark = f"MANYHEADS_TEST={secrets.token_hex(8)}"
        env = {name: value for name, value in os.environ.items() if name not in OF_RANKS}
        env |= {**ONE_THREAD, "MANYHEADS_CACHE": str(self.folder / "cache")}
        env |= {"MANYHEADS_TEST": mark.partition("=")[2], **environment}
        said = self.folder / f"said-{len(self.jobs)}"
        with said.with_suffix(".out").open("wb") as out, said.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                list(command), cwd=cwd or self.folder, env=env, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self.jobs.append(Job(process, mark, said))
        return self.jobs[-1]

    def manyheads(self, *words: str, **environment: str) -> Job:
        """`manyheads WORDS`: `hardware.devices=2 hardware=cpu` among them starts two processes by our own launcher."""
        return self.start([sys.executable, "-m", "manyheads", *words], **environment)

    def torchrun(self, *words: str, n: int = 2, flags: Sequence[str] = (), **environment: str) -> Job:
        """`torchrun --nproc-per-node=N -m manyheads WORDS`."""
        begin = ["-m", "torch.distributed.run", f"--nproc-per-node={n}", f"--master-port={free_port()}", *flags]
        return self.start([sys.executable, *begin, "-m", "manyheads", *words], **environment)

    def script(self, text: str, *, n: int = 2, **environment: str) -> list[Job]:
        """Python source in `n` processes that find each other by the environment, as `launch.py` sets it."""
        file = self.folder / f"script-{len(self.jobs)}.py"
        file.write_text(text, encoding="utf-8")
        port = str(free_port())
        shared = {"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return [
            self.start([sys.executable, str(file)], **shared, RANK=str(rank), LOCAL_RANK=str(rank), **environment)
            for rank in range(n)
        ]


def free_port() -> int:
    """A port of this machine that nobody uses, below those that outgoing connections take."""
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def ranks_run(tmp_path: Path) -> Iterator[Jobs]:
    """Starts commands of several processes (`manyheads`, `torchrun`, `script`, `start`) and leaves none behind."""
    jobs = Jobs(tmp_path, [])
    yield jobs
    for job in jobs.jobs:
        job.end()


class Connection(warm.Warm):
    """To the server that all processes of this session share: see fork_server.py."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        until = time.monotonic() + 10
        while self._socket.connect_ex(name):  # another process has just bound it, and does not listen yet
            assert time.monotonic() < until
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Callable[[str], Connection]]:
    """`fork_server(kind)` connects to the server; the first process of a session that needs it has started it."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", os.getpid())
    names = {kind: f"\0manyheads-tests-{session}-{kind}" for kind in ("bare", "full")}
    listeners, server = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in names], None
    with suppress(OSError):  # of a name that another process has bound
        for listener, name in zip(listeners, names.values(), strict=True):
            listener.bind(name)
            listener.listen()
        numbers = [listener.fileno() for listener in listeners]
        command = [sys.executable, "-P", str(Path(__file__).with_name("fork_server.py")), *map(str, numbers)]
        environment = os.environ | ONE_THREAD | {"HF_HUB_OFFLINE": "1"}
        environment["PYTHONHASHSEED"] = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # not that of a test
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=numbers, env=environment)
    for listener in listeners:
        listener.close()
    yield lambda kind: Connection(names[kind])
    if server is not None:
        assert server.stdin
        server.stdin.close()
        server.wait()


@pytest.fixture(scope="session")
def forks(fork_server: Callable[[str], Connection]) -> Iterator[warm.Warm]:
    """A server of processes that have imported all that trains and judges; forked.py has what they do."""
    with fork_server("full") as server:
        yield server


class Trainings:
    """As the server of a search, which its trainings share with all tests, and draw no pictures."""

    def __init__(self, server: warm.Warm) -> None:
        self.server = server

    def start(self, words: Sequence[str], stdin: int, output: int, env: dict[str, str]) -> warm.WarmProcess:
        return self.server.start(["training", *words], stdin, output, env)


@pytest.fixture
def trainings(forks: warm.Warm) -> Trainings:
    return Trainings(forks)


@dataclass
class ForkedPython:
    """Commands of Python that begin at once, for tests that are not about how one starts: the server, which has
    imported torch, Lightning and ours, forks them."""

    server: warm.Warm
    started: list[warm.WarmProcess] = field(default_factory=list)

    def start(
        self, *words: str | Path, stdin: IO[Any], stdout: IO[Any], stderr: IO[Any], cwd: str | Path = "",
        env: dict[str, str] | None = None,
    ) -> warm.WarmProcess:  # fmt: skip
        """`python WORDS`."""
        error = str(stderr.name)
        if not isinstance(stderr.name, str):  # a file without a name, which has to be open until the command ends
            error = f"/proc/{os.getpid()}/fd/{stderr.fileno()}"
        given = ["python", str(cwd or Path.cwd()), error, *map(str, words)]
        self.started.append(self.server.start(given, stdin.fileno(), stdout.fileno(), dict(env or os.environ)))
        return self.started[-1]

    def end(self) -> None:
        """Kill what is left, as of a test that has failed."""
        for process in self.started:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def run(
        self, *words: str | Path, given: str = "", cwd: str | Path = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`python WORDS`, which is `given` a standard input; what it says is captured."""
        with TemporaryFile("w+") as stdin, TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
            stdin.write(given)
            stdin.seek(0)
            process = self.start(*words, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
            code = process.wait(PATIENCE)
            for said in (stdout, stderr):
                said.seek(0)
            return subprocess.CompletedProcess([*map(str, words)], code, stdout.read(), stderr.read())


@pytest.fixture(scope="session")
def python(forks: warm.Warm) -> Iterator[ForkedPython]:
    """`python.run(*words)` is `python WORDS`, captured, and `python.start(*words)` does not wait for its end."""
    made = ForkedPython(forks)
    yield made
    made.end()


@pytest.fixture(scope="session")
def bare(fork_server: Callable[[str], Connection]) -> Iterator[ForkedPython]:
    """As `python`, but nothing of ours has been imported."""
    with fork_server("bare") as server:
        made = ForkedPython(server)
        yield made
        made.end()


def pytest_configure(config: pytest.Config) -> None:
    """Importing and collecting make millions of objects and hardly any garbage.

    Examples are few and the same in each run, so that a change fails by what it changed; a seed, as every night, draws
    others, and more.
    """
    gc.disable()
    is_drawn = config.getoption("--hypothesis-seed") is not None
    hypothesis.settings.register_profile(
        "any machine",
        deadline=None,  # a busy one is no mistake
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not is_drawn,
        max_examples=100 if is_drawn else 15,
    )
    hypothesis.settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    """What they made stays to the end: the garbage collector need not walk it again and again."""
    if "hydra" in sys.modules:
        from tests.quick_hydra import quicken

        quicken()
    if "matplotlib.figure" in sys.modules:
        draw_nothing()  # what fixtures of a module make, too
    if "lightning.pytorch" in sys.modules and sys.modules["torch"].version.cuda is None:
        from lightning.pytorch.trainer.connectors.logger_connector import result

        result._ResultMetric.to = lambda metric, *_, **__: metric  # each figure looks for tensors not yet on the CPU
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)
