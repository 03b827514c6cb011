"""Write a trained model for other programs: the same as `manyheads export`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
