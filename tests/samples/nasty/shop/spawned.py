def far(number):
    return number * 3
