"""`python -m manyheads VERB ...`: the command line where no script is on the path, as under torchrun and srun."""

import sys

from manyheads.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
