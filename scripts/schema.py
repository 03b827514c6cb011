"""Print a JSON schema of the settings: the same as `manyheads schema`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["schema", *sys.argv[1:]]))
