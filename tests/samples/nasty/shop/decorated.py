import functools


def loud(function):
    @functools.wraps(function)
    def louder(*arguments):
        return function(*arguments).upper()

    return louder


def counted(cls):
    cls.count = len([name for name in vars(cls) if not name.startswith("_")])
    return cls


@loud
def shout(word):
    return word


@counted
class Box:
    def open(self):
        return "open"
