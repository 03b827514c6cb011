"""Figures by the number of training rows: the same as `manyheads curve`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["curve", *sys.argv[1:]]))
