"""Classes of all kinds: metaclass, dataclass, enumeration, property, inheritance, named tuple."""

import dataclasses
import enum
import typing

REGISTRY = {}


class Registered(type):
    def __new__(cls, name, bases, members):
        made = super().__new__(cls, name, bases, members)
        REGISTRY[name.lower()] = made
        return made


class Thing(metaclass=Registered):
    legs = 4

    def noise(self):
        return "silence"


class Dog(Thing):
    def noise(self):
        return "bark"


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@dataclasses.dataclass
class Order:
    amount: int = 1
    note: str = ""

    @property
    def total(self):
        return self.amount * 10

    @staticmethod
    def currency():
        return "EUR"

    @classmethod
    def double(cls):
        return cls(amount=2)

    def __eq__(self, other):
        return self.amount == other.amount


class Point(typing.NamedTuple):
    x: int = 0
    y: int = 0


class Described:
    def __set_name__(self, owner, name):
        self.name = name + "!"

    def __get__(self, instance, owner):
        return self.name


class Holder:
    field = Described()

    def __init_subclass__(cls):
        cls.mark = "sub"


class Held(Holder):
    pass
