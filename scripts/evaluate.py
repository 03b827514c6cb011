"""Judge a trained model: the same as `manyheads evaluate`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
