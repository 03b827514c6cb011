"""Report on a finished run: the same as `manyheads report`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
