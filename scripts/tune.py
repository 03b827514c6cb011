"""Try settings, a process each, and rank them by validation: the same as `manyheads tune`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
