"""Compare settings at an equal budget: the same as `manyheads ablate`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["ablate", *sys.argv[1:]]))
