from shop import atimport


def test_a_table_made_at_import():
    assert atimport.TABLE == {"one": 1}


def test_words_read_at_import():
    assert atimport.WORDS == ["apple", "pear"]
