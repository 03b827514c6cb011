"""Learn from texts without labels: the same as `manyheads pretrain`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["pretrain", *sys.argv[1:]]))
