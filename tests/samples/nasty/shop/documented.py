def documented():
    """Says what it does."""
    return 1


def sourced():
    return 1  # as it is written
