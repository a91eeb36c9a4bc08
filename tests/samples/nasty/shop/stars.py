__all__ = ["starred"]


def starred():
    return "star"


def hidden():
    return "hidden"
