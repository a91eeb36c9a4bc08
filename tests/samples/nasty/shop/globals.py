STATE = {"mode": "calm"}


def mode():
    return STATE["mode"]


class Settings:
    language = None


SETTINGS = Settings()


def speak(language):
    SETTINGS.language = language


def fall_silent():
    SETTINGS.language = None


def label(text):
    return text


def helper():
    return "real"
