import os
import pickle

import shop


def test_a_page(page):
    assert page == "<html>"


def test_a_packet_for_the_web(packet):
    assert packet == "packet"


def test_the_mode_of_all_tests():
    assert os.environ["SHOP_MODE"] == "open"


def test_a_module_that_was_loaded_when_others_asked_for_it():
    assert shop.rarely.HOW_OFTEN == 1


def test_a_class_by_its_name():
    assert pickle.loads(b"cshop.rarely\nRare\n.").worth == 100
