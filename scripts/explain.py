"""Measure what is said of attention: the same door as `manyheads explain`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["explain", *sys.argv[1:]]))
