"""See what a trained model attends to: the same as `manyheads look`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["look", *sys.argv[1:]]))
