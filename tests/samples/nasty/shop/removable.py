class Base:
    def greet(self):
        return "base"


class Child(Base):
    def greet(self):
        return "child"


def doomed():
    return "here"
