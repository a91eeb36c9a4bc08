"""Cases that tests are made of."""

PAIRS = [(1, 1), (2, 4)]


def cubes():
    return [(1, 1), (2, 8)]


def letters():
    return ["a", "b"]
