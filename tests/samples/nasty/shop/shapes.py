"""Functions in functions, lambdas, generators, coroutines."""

import asyncio
import contextlib

by_size = {"small": lambda: 1, "large": lambda: 10}


def adder(amount):
    def add(value):
        return value + amount

    return add


def countdown(start):
    while start:
        yield start
        start -= 1


async def fetch():
    await asyncio.sleep(0)
    return "fetched"


@contextlib.contextmanager
def opened():
    yield "opened"


def squares(limit):
    return [number * number for number in range(limit)]


def ways():
    return (lambda: "here", lambda: "there")
