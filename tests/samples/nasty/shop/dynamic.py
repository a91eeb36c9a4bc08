def answer():
    return 42


LIMIT = 7
