"""What a session's text may do to the terminal that shows it."""

from edgeprof.report.printable import printable


def test_escape_sequences_lose_their_power() -> None:
    assert printable("\x1b[2Jgone\x07") == "\ufffd[2Jgone\ufffd"
    assert printable("a\x9bK\x7f\x00") == "a\ufffdK\ufffd\ufffd"


def test_text_stays_as_it_is() -> None:
    assert printable("µs, 通义\tno\n") == "µs, 通义\tno\n"
