def late():
    from shop import latecomer

    return latecomer.when()
