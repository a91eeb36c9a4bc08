HOW_OFTEN = 1


class Rare:
    worth = 100


def seldom():
    return "seldom"
