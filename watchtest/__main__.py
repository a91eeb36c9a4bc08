"""`python -m watchtest`."""

import os
import sys

# `-m` puts the current folder first, in which a repository may have a module of any name, even `__future__`.
if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):  # noqa: PTH100, PTH109, PTH120
    del sys.path[0]

from watchtest.cli import main

if __name__ == "__main__":
    sys.exit(main())
