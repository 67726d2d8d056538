"""Stop strings in text that arrives in pieces: cut where the whole text would be, nothing kept back."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxcel.errors import InputError
from mlxcel.text.stop import StopMatcher
from tests.unit.text.reference import cut

# Few letters, so that stops overlap, repeat and nest; one of them needs two UTF-16 units and one combines.
LETTERS = st.sampled_from("ab🙂\u0301")
TEXTS = st.text(LETTERS, max_size=40)
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=6), max_size=5)
CUTS = st.lists(st.integers(0, 40), max_size=12)


def pieces(text: str, cuts: Sequence[int]) -> Iterator[str]:
    borders = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    for start, end in pairwise(borders):
        yield text[start:end]


def open_length(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of the text that properly begins a stop."""
    ends = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(ends, default=0)


@given(text=TEXTS, stops=STOPS, cuts=CUTS)
@example(text="abc", stops=["bc", "abcd"], cuts=[1, 2, 3])
@example(text="abca", stops=["bc", "abcd"], cuts=[1, 2, 3])
@example(text="abcd", stops=["bc", "abcd"], cuts=[1, 2, 3])
@example(text="ab", stops=["abc", "ab"], cuts=[1])
def test_streamed_text_is_the_whole_text_cut_at_the_first_match(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join([matcher.feed(piece) for piece in pieces(text, cuts)]) + matcher.flush()
    assert (shown, matcher.matched) == cut(text, stops)


@given(text=TEXTS, stops=STOPS, cuts=CUTS)
def test_only_the_longest_open_end_is_held_back(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher, shown, fed = StopMatcher(stops), "", ""
    for piece in pieces(text, cuts):
        shown += matcher.feed(piece)
        fed += piece
        if matcher.matched is not None:
            break
        assert shown == fed[: len(fed) - open_length(fed, stops)]


@given(text=TEXTS, stops=STOPS)
def test_a_match_is_told_with_the_first_character_that_settles_it(text: str, stops: list[str]) -> None:
    """Settled: every way the text could go on gives the same cut."""
    matcher = StopMatcher(stops)
    for n in range(1, len(text) + 1):
        matcher.feed(text[n - 1])
        futures = {cut(text[:n] + rest, stops) for rest in ["", *continuations(text[:n], stops)]}
        settled = len(futures) == 1 and cut(text[:n], stops)[1] is not None
        assert (matcher.matched is not None) == settled
        if settled:
            return


def continuations(text: str, stops: Sequence[str]) -> Iterator[str]:
    for stop in stops:
        for n in range(1, len(stop)):
            if text.endswith(stop[:n]):
                yield stop[n:]


@given(stops=STOPS.filter(bool), before=TEXTS, after=TEXTS)
def test_nothing_is_shown_after_a_match(stops: list[str], before: str, after: str) -> None:
    matcher = StopMatcher(stops)
    matcher.feed(before + stops[0])
    if matcher.matched is None:
        matcher.flush()
        return
    matched = matcher.matched
    assert [matcher.feed(after), matcher.flush(), matcher.matched] == ["", "", matched]


def test_of_stops_that_start_together_the_first_listed_wins() -> None:
    for stops, matched in (["ab", "abc"], "ab"), (["abc", "ab"], "abc"), (["b", "b"], "b"):
        matcher = StopMatcher(stops)
        assert matcher.feed("xabc" if matched != "b" else "xb") == "x"
        assert matcher.matched == matched


@pytest.mark.parametrize("stop", ["\n\nUser:", "]", "^", "a-b", "\\", "&&", "[[", "~~", "||", ".*", "\ufffd", "\0"])
def test_a_stop_is_plain_text_and_never_a_pattern(stop: str) -> None:
    matcher = StopMatcher([stop])
    assert matcher.feed(f"a1 {stop} b") == "a1 "
    assert matcher.matched == stop


def test_without_stops_text_passes_through() -> None:
    matcher = StopMatcher([])
    assert [matcher.feed("ab"), matcher.feed(""), matcher.flush(), matcher.matched] == ["ab", "", "", None]


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(InputError, match="must not be empty"):
        StopMatcher(["a", ""])


@pytest.mark.timeout(20)
def test_cost_does_not_grow_with_the_length_of_a_stop_that_almost_matches() -> None:
    """Looking at every end of a 20,000-character tail for each character would take hours here."""
    matcher = StopMatcher(["a" * 20_000 + "b", "a" * 19_000 + "c"])
    n_shown = sum(len(matcher.feed("a")) for _ in range(200_000))
    assert n_shown == 180_000
    assert len(matcher.flush()) == 20_000
    assert matcher.matched is None


@given(text=TEXTS, stops=STOPS, cuts=CUTS)
@example(text="abcdx", stops=["bc", "abcdef"], cuts=[4])
@example(text="abcd", stops=["bc", "abcdef"], cuts=[])
def test_the_rest_is_what_follows_the_match(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher, shown, fed = StopMatcher(stops), "", ""
    for piece in pieces(text, cuts):
        shown += matcher.feed(piece)
        fed += piece
        if matcher.matched is not None:
            break
    shown += matcher.flush()
    assert shown + (matcher.matched or "") + matcher.rest == fed
