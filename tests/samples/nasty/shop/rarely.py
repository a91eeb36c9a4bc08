def seldom():
    return "seldom"
