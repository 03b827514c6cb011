"""Answer texts over HTTP: the same as `manyheads serve`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
