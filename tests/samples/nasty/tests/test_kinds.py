from shop import decorated, kinds


def test_the_registry():
    assert sorted(kinds.REGISTRY) == ["dog", "thing"]


def test_a_class_attribute():
    assert kinds.Dog.legs == 4


def test_an_override():
    assert kinds.Dog().noise() == "bark"


def test_an_enumeration():
    assert kinds.Colour(2) is kinds.Colour.GREEN


def test_fields():
    assert kinds.Order() == kinds.Order(1, "")


def test_a_property():
    assert kinds.Order(2).total == 20


def test_static_and_class_methods():
    assert (kinds.Order.currency(), kinds.Order.double().amount) == ("EUR", 2)


def test_a_named_tuple():
    assert kinds.Point() == (0, 0)


def test_a_descriptor():
    assert kinds.Holder.field == "field!"


def test_a_subclass_that_was_marked():
    assert kinds.Held.mark == "sub"


def test_a_decorated_function():
    assert decorated.shout("hey") == "HEY"


def test_a_decorated_class():
    assert decorated.Box.count == 1
