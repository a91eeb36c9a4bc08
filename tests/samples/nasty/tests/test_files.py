import subprocess
import sys
from pathlib import Path

import pytest
from shop import files

ROOT = Path(__file__).parents[1]


def test_a_template():
    assert files.template() == "hello"


def test_a_listing():
    assert files.names() == ["ten"]


def test_a_switch():
    assert not files.is_on()


def test_a_size():
    assert files.size() == 5


def test_a_door():
    assert files.can_be_read()


def test_a_door_again():
    assert files.can_be_read() is True


def test_a_weight():
    assert files.weight() == 4


def test_a_file_in_an_open_folder():
    assert files.in_a_folder() == "beside"


def test_data_of_a_package():
    assert files.packed() == "packed"


def test_a_link():
    assert files.linked() == "target"


def test_a_pattern():
    assert files.found() == ["one.cfg"]


@pytest.mark.parametrize("number", (ROOT / "data" / "numbers.txt").read_text().split())
def test_numbers(number):
    assert int(number) < 10


def test_a_program():
    done = subprocess.run([sys.executable, ROOT / "tools" / "print_program.py"], capture_output=True, text=True)
    assert done.stdout.strip() == "2"
