"""Train a classifier: the same as `manyheads train`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
