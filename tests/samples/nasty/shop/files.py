"""Looks at files in every way."""

import os
import pkgutil
from os import stat
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def template():
    with open(DATA / "template.txt") as stream:  # noqa: PTH123
        return stream.read().strip()


def names():
    return sorted(os.listdir(DATA / "folder"))  # noqa: PTH208


def is_on():
    return (DATA / "switch").exists()


def size():
    return os.path.getsize(DATA / "sized.bin")  # noqa: PTH202


def can_be_read():
    return os.access(DATA / "door", os.R_OK)


def weight():
    return stat(DATA / "weighed.bin").st_size  # noqa: PTH116


def in_a_folder():
    folder = os.open(DATA, os.O_RDONLY)
    file = os.open("beside.txt", os.O_RDONLY, dir_fd=folder)
    try:
        return os.read(file, 100).decode().strip()
    finally:
        os.close(file)
        os.close(folder)


def packed():
    return pkgutil.get_data("shop", "packed.txt").decode().strip()


def linked():
    return (DATA / "link.txt").read_text().strip()


def found():
    return sorted(path.name for path in DATA.glob("*.cfg"))
