"""What child processes run."""

import sys
from pathlib import Path


def work(number):
    return number * 2


def read(name):
    return (Path(__file__).parents[1] / "data" / name).read_text()


if __name__ == "__main__":
    print(work(int(sys.argv[1])))
