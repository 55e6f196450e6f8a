"""`python -m visiontrain` is the command line."""

import sys

from visiontrain.cli import main

if __name__ == "__main__":
    sys.exit(main())
