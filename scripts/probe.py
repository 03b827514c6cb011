"""Try how a classifier behaves: the same as `manyheads probe`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["probe", *sys.argv[1:]]))
