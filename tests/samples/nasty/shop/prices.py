"""Plain functions, a constant, a default."""

TAX = 20


def gross(net, tax=TAX):
    return net + net * tax // 100


def net(gross):
    # The inverse.
    return gross * 100 // 120


def rounded(price, digits=0):
    return round(price, digits)


def labels():
    return [str(price) for price in (1, 2)]


def undocumented():
    """Nothing to see."""


def annotated(amount: int) -> "int":
    return amount
