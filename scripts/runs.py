"""List runs and compare them: the same as `manyheads runs`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["runs", *sys.argv[1:]]))
