def test_a_page(page):
    assert page == "<html>"


def test_a_packet_for_the_web(packet):
    assert packet == "packet"
