"""Label texts with a trained model: the same as `manyheads predict`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["predict", *sys.argv[1:]]))
