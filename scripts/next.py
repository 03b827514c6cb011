"""Choose which texts to label next: the same as `manyheads next`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["next", *sys.argv[1:]]))
