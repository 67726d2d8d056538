from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core import TokenLogprobs
from mlxcel.text.logprobs import LogprobStream, ReportedToken

TEXT = st.text(st.sampled_from("aé漢🙂\u0301 \n"), min_size=1, max_size=12)


def likely(token: int) -> TokenLogprobs:
    return TokenLogprobs(-1.0 - token, ((token, -1.0 - token), (token + 1, -9.0)))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The text's bytes as tokens, cut anywhere, inside characters too."""
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(at)]


@given(text=TEXT, places=st.lists(st.integers(0, 60), max_size=20), n_shown=st.integers(0, 12))
def test_a_token_is_told_once_some_of_its_text_is_shown_and_with_where_that_begins(
    text: str, places: list[int], n_shown: int
) -> None:
    data = text.encode()
    tokens = cut(data, places)
    vocabulary = [*tokens, b"?"]
    stream = LogprobStream(vocabulary.__getitem__)
    for token in range(len(tokens)):
        stream.add(token, likely(token))
    starts = [len(data[: sum(map(len, tokens[:n]))].decode(errors="ignore")) for n in range(len(tokens))]
    shown = stream.shown(text[:n_shown])
    assert [one.offset for one in shown] == [start for start in starts if start < n_shown]
    rest = stream.shown(text[n_shown:])
    told = [*shown, *rest]
    assert told == [
        ReportedToken(one, start, -1.0 - n, ((one, -1.0 - n), (vocabulary[n + 1], -9.0)))
        for n, (one, start) in enumerate(zip(tokens, starts, strict=True))
    ]
    assert stream.finish() == []


def characters_of(data: bytes) -> list[int]:
    """Which character of the text each byte is of; what no character goes on with is one by itself."""
    owners: list[int] = []
    n_chars = 0
    while len(owners) < len(data):
        rest = data[len(owners) :]
        try:
            size = len(rest.decode()[0].encode())
        except UnicodeDecodeError as error:
            size = error.end if error.start == 0 else len(rest[: error.start].decode()[0].encode())
        owners += [n_chars] * size
        n_chars += 1
    return owners


@given(
    data=st.lists(st.sampled_from([b"a", b"\xc3", b"\xa9", b"\xf0", b"\x9f", b"\xe6", b"\xff"])).map(b"".join),
    places=st.lists(st.integers(0, 60), max_size=20),
)
def test_a_token_after_a_broken_character_begins_after_it(data: bytes, places: list[int]) -> None:
    tokens = cut(data, places)
    owners = characters_of(data)
    text = data.decode(errors="replace")
    starts = [owners[sum(map(len, tokens[:n]))] for n in range(len(tokens))]
    stream = LogprobStream(tokens.__getitem__)
    for token in range(len(tokens)):
        stream.add(token, TokenLogprobs(-1.0, ()))
    assert [one.offset for one in [*stream.shown(text), *stream.finish()]] == starts
    if tokens:
        echoing = LogprobStream(tokens.__getitem__, text)
        prompt = echoing.prompt(range(len(tokens)), [TokenLogprobs(-1.0, ())] * (len(tokens) - 1))
        assert [one.offset for one in prompt] == starts


def test_what_is_never_shown_is_never_told_and_tokens_without_text_are_told_at_the_end() -> None:
    vocabulary = [b"ab", b"c", b"", b"\xc3"]
    stream = LogprobStream(vocabulary.__getitem__)
    for token in range(3):
        stream.add(token, TokenLogprobs(-1.0, ()))
    assert [one.token for one in stream.shown("a")] == [b"ab"]
    assert stream.shown("") == []
    assert [one.token for one in stream.shown("bc")] == [b"c"]
    assert [one.token for one in stream.finish()] == [b""]


def test_the_space_that_a_text_begins_without_is_no_character_of_it() -> None:
    vocabulary = [b" the", b" end"]
    stream, echoing = LogprobStream(vocabulary.__getitem__), LogprobStream(vocabulary.__getitem__, "At")
    for one in (stream, echoing):
        one.add(0, TokenLogprobs(-1.0, ()))
        one.add(1, TokenLogprobs(-1.0, ()))
    assert [one.offset for one in stream.shown("the end")] == [0, 3]
    assert [one.offset for one in echoing.shown(" the end")] == [2, 6]


def test_a_prompts_tokens_have_their_places_in_it_and_the_first_no_logprob() -> None:
    vocabulary = [b"<s>", b" He", b"llo", b"!"]
    stream = LogprobStream(vocabulary.__getitem__, "Hello")
    prompt = stream.prompt([0, 1, 2], [TokenLogprobs(-0.5, ((1, -0.5),)), TokenLogprobs(-2.0, ())])
    assert [(one.token, one.offset, one.logprob) for one in prompt] == [
        (b"<s>", 0, None),
        (b" He", 0, -0.5),
        (b"llo", 2, -2.0),
    ]
    assert prompt[1].top == ((b" He", -0.5),)
    stream.add(3, TokenLogprobs(-3.0, ()))
    assert [one.offset for one in stream.shown("!")] == [5]
