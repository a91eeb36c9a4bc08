"""Whatever is found out once and kept in ways that people have of their own."""


def memoize(function):
    known = {}

    def wrapper(*args):
        if args not in known:
            known[args] = function(*args)
        return known[args]

    return wrapper


@memoize
def weight(name):
    return weighed(name)


def weighed(name):
    return len(name)


class Shelf:
    def __init__(self):
        self.prices = {}

    @property
    def label(self):
        if not hasattr(self, "_label"):
            self._label = written()
        return self._label

    def price(self, name):
        prices = self.prices
        if name not in prices:
            prices[name] = priced(name)
        return prices[name]


def written():
    return "for sale"


def priced(name):
    return 10 * len(name)


WORDS = []


def words():
    if not WORDS:
        WORDS.extend(spelled())
    return WORDS


def spelled():
    return ["s", "t"]


_shelf = None


def shelf():
    global _shelf
    if _shelf is None:
        _shelf = Shelf()
    return _shelf
