"""Upload a trained model to the Hugging Face hub: the same as `manyheads push`."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["push", *sys.argv[1:]]))
