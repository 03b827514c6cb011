"""Fit how far probabilities may be believed: the same as `manyheads calibrate`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["calibrate", *sys.argv[1:]]))
