from shop import globals as state


def test_speaking():
    state.speak("en")
    assert state.SETTINGS.language == "en"
    state.fall_silent()


def test_nobody_speaks():
    assert state.SETTINGS.language is None
