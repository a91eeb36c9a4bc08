def when():
    return "late"


ONLY_ONCE = "once"
