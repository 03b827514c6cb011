"""A process that opens what strangers sent: it runs command lines one after the other and says what came of each.

It watches itself (PEP 578): what starts a process, opens a connection, unpickles, or writes outside of the folder of
the case is an act. Rests of torch and Lightning that act when they are first imported are imported before.
"""

import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

NEVER = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn", "subprocess.Popen", "pickle.find_class",
         "socket.connect", "socket.getaddrinfo", "urllib.Request")  # fmt: skip
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate",
           "shutil.rmtree")  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ROOM = 3 * 2**30  # bytes of address space beyond what the libraries take
inside: list[str] = []  # where the case may write; empty: nobody is watching
acts: list[str] = []


def watch(event: str, arguments: tuple) -> None:
    if not inside:
        return
    if event in NEVER:
        acts.append(f"{event} {arguments!r:.200}")
    elif event in CHANGES or (event == "open" and (arguments[2] or 0) & WRITES):
        for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
            if isinstance(path, str | bytes | os.PathLike):
                real = os.path.realpath(os.fsdecode(path))
                if real != "/dev/null" and not any(real.startswith(f"{one}{os.sep}") for one in inside):
                    acts.append(f"{event} {real}")


def status(name: str) -> int:
    """Kilobytes, of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@contextlib.contextmanager
def kept(descriptor: int):
    """What is written to the descriptor, by Python or not, kept in a file."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        try:
            yield file
        finally:
            os.dup2(before, descriptor)
            os.close(before)


def run(words: list[str], folder: str) -> dict:
    from manyheads.cli.main import main

    os.chdir(folder)
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory is measured from here
    before, began = status("VmRSS"), time.perf_counter()
    with kept(1) as out, kept(2) as err:
        inside[:], acts[:] = [os.path.realpath(folder)], []
        try:
            code = main(words)
        except BaseException as left:
            code = f"{type(left).__name__}: {left}"
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            inside.clear()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    return {
        "code": code,
        "out": said[0],
        "err": said[1],
        "acts": list(acts),
        "grown": (status("VmHWM") - before) // 1024,
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    sys.dont_write_bytecode = True  # which would be an act
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with contextlib.chdir(tempfile.gettempdir()):
        warm = json.loads(sys.stdin.readline())
        for words in warm["words"]:
            print(run(words, warm["folder"])["code"], file=sys.stderr)
    room = status("VmSize") * 1024 + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    sys.addaudithook(watch)
    print("{}", file=answers)
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(run(case["words"], case["folder"])), file=answers)


if __name__ == "__main__":
    main()
