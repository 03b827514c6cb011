"""Look at texts and labels before training on them: the same as `manyheads audit`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["audit", *sys.argv[1:]]))
