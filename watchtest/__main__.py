"""`python -m watchtest`."""

import sys

from watchtest.cli import main

if __name__ == "__main__":
    sys.exit(main())
