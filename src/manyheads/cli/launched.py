"""The life of a process that `distributed/launch.py` or a search has started:
`python -m manyheads.cli.launched VERB CONFIG REPORT [GRACE]`.

The settings come in by the pipe CONFIG, which its supervisor holds open and which ends with it, even by `kill -9`; a
user's mistake goes out by the pipe REPORT. Without its supervisor the process leaves at once, or is told to end and has
GRACE seconds to save. Standard library only.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from manyheads.cli.main import MISTAKE, answer, call
from manyheads.cli.verbs import VERBS
from manyheads.config.fields import from_plain
from manyheads.distributed.signals import leave_with


def main() -> None:
    """Do the work. A process that ends ill leaves at once: what is tidied up at its end would wait for the others."""
    try:
        code = _work(sys.argv[1:])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BrokenPipeError:
        code = 141
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code:
        logging.shutdown()
        os._exit(code)


def _work(words: Sequence[str]) -> int:
    verb, source, sink = words[0], int(words[1]), int(words[2])
    for end in (source, sink):
        if end > sys.stderr.fileno():  # what it starts itself has the standard ones, too
            os.set_inheritable(end, False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a run listens, it ends at once and says nothing
    config = b""
    while not config.endswith(b"\n"):
        part = os.read(source, 65536)
        if not part:
            return 1
        config += part
    leave_with(source, *map(float, words[3:]))

    def work() -> int:
        call(verb, from_plain(VERBS[verb].config, json.loads(config)))
        return 0

    def report(sentence: str, code: int) -> int:
        if code == MISTAKE:
            os.write(sink, f"{sentence}\n".encode())
        else:
            print(sentence, file=sys.stderr)
        return code

    return answer(work, report)


if __name__ == "__main__":
    main()
