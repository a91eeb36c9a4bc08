def test_the_store_is_closed_after_this(shared_store):
    assert shared_store.stock == ["screw", "nail"]
