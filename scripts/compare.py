"""Compare models on the same rows: the same as `manyheads compare`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
