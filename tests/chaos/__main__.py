"""Lets `python tests/chaos …` run the driver from a bare checkout."""

import sys
from pathlib import Path

# Python puts this folder itself on the path; the package `chaos` lies one level up.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from chaos.main import main  # noqa: E402 - found only now

sys.exit(main(sys.argv[1:]))
