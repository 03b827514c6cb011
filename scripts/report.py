"""Tell what a finished run is worth: the same door as `manyheads report`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
