STATE = {"mode": "calm"}


def mode():
    return STATE["mode"]


def label(text):
    return text


def helper():
    return "real"
