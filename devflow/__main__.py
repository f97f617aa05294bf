"""`python -m devflow`: the same as the `devflow` command."""

import sys

from devflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
