"""Server-sent events: the same payloads however the bytes are cut, and no event without end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.load.events import MAX_EVENT_BYTES, EventStream

LINE_ENDS = st.sampled_from([b"\n", b"\r\n"])
PAYLOADS = st.lists(st.sampled_from([b"{}", b"[DONE]", '{"text": "🙂"}'.encode(), b"a: b"]), max_size=6)


@given(payloads=PAYLOADS, end=LINE_ENDS, cuts=st.lists(st.integers(0, 200), max_size=8), space=st.booleans())
def test_cuts_do_not_change_the_payloads(payloads: list[bytes], end: bytes, cuts: list[int], space: bool) -> None:
    mark = b"data: " if space else b"data:"
    wire = b"".join(b": comment" + end + end + mark + payload + end + end for payload in payloads)
    stream, seen = EventStream(), []
    borders = [0, *sorted(min(at, len(wire)) for at in cuts), len(wire)]
    for start, stop in pairwise(borders):
        seen += stream.feed(wire[start:stop])
    assert seen == payloads


def test_data_lines_of_one_event_are_joined_and_other_fields_ignored() -> None:
    stream = EventStream()
    assert stream.feed(b"event: x\nid: 1\ndata: a\ndata: b\nretry: 5\n\n\n\n") == [b"a\nb"]


def test_an_unfinished_event_is_no_event() -> None:
    assert EventStream().feed(b"data: {}\n") == []


@pytest.mark.parametrize("endless", [b"data: " + b"x" * 4096, b"data: x\n" * 512])
def test_an_event_without_end_is_refused(endless: bytes) -> None:
    stream = EventStream()
    with pytest.raises(ValueError, match="more than"):
        for _ in range(2 * MAX_EVENT_BYTES // len(endless)):
            stream.feed(endless)
