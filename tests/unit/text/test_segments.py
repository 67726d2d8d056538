"""Thinking, calls and content are told apart wherever the pieces are cut, and no character is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.text.segments import Kind, Markers, Segment, Segmenter

MARKERS = Markers("<think>", "</think>", "<call>", "</call>", noise=("<eom>",))
TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<call>", "</call>", "<eom>", "<", "a", "</", "think>"]), max_size=14
).map("".join)


def split(text: str, cuts: Iterable[int], *, is_thinking: bool = False) -> list[Segment]:
    segmenter = Segmenter(MARKERS, is_thinking=is_thinking)
    segments: list[Segment] = []
    for start, end in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]):
        segments += segmenter.feed(text[start:end])
    return [*segments, *segmenter.finish()]


def joined(segments: Iterable[Segment]) -> list[tuple[Kind, str]]:
    """Parts with their whole texts; parts without text are left out."""
    parts: list[tuple[Kind, str]] = []
    is_new = True
    for segment in segments:
        if is_new or parts[-1][0] is not segment.kind:
            parts.append((segment.kind, segment.text))
        else:
            parts[-1] = (segment.kind, parts[-1][1] + segment.text)
        is_new = segment.is_end
    return [part for part in parts if part[1]]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", [(Kind.CONTENT, "plain")]),
        ("<think>why</think>so", [(Kind.REASONING, "why"), (Kind.CONTENT, "so")]),
        ("a<call>f</call>b", [(Kind.CONTENT, "a"), (Kind.CALL, "f"), (Kind.CONTENT, "b")]),
        ("<call>f</call><call>g", [(Kind.CALL, "f"), (Kind.CALL, "g")]),
        ("<think>x<call>f</call>y", [(Kind.REASONING, "x"), (Kind.CALL, "f"), (Kind.CONTENT, "y")]),
        ("a<eom>b</think>", [(Kind.CONTENT, "a"), (Kind.CONTENT, "b</think>")]),
        ("a<thi", [(Kind.CONTENT, "a<thi")]),
    ],
)
def test_parts_are_what_stands_between_the_markers(text: str, parts: list[tuple[Kind, str]]) -> None:
    assert joined(split(text, range(len(text)))) == parts
    assert joined(split(text, [])) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"<think>a</think><eom>"', [(Kind.CONTENT, '"<think>a</think><eom>"')]),
        ("<think>a</think><think>b</think>", [(Kind.REASONING, "a"), (Kind.CONTENT, "<think>b</think>")]),
        ("<think>a<think></think>b<thi", [(Kind.REASONING, "a<think>"), (Kind.CONTENT, "b<thi")]),
        ('"<<think>', [(Kind.CONTENT, '"<<think>')]),
        ("<thi", [(Kind.CONTENT, "<thi")]),
    ],
)
def test_where_thinking_only_comes_first_the_content_may_spell_markers(
    text: str, parts: list[tuple[Kind, str]]
) -> None:
    markers = replace(MARKERS, call_start=None, call_end=None, thinks_first=True)
    for size in range(1, len(text) + 1):
        segmenter = Segmenter(markers)
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        segments = [segment for piece in pieces for segment in segmenter.feed(piece)]
        assert joined([*segments, *segmenter.finish()]) == parts


def test_thinking_that_the_prompt_began_needs_no_marker() -> None:
    assert joined(split("why</think>so", [3], is_thinking=True)) == [(Kind.REASONING, "why"), (Kind.CONTENT, "so")]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 60), max_size=10), is_thinking=st.booleans())
def test_where_the_pieces_are_cut_changes_nothing(text: str, cuts: list[int], is_thinking: bool) -> None:
    assert joined(split(text, cuts, is_thinking=is_thinking)) == joined(split(text, [], is_thinking=is_thinking))


@given(text=TEXTS)
def test_a_model_without_markers_has_content_alone(text: str) -> None:
    segmenter = Segmenter(Markers())
    assert "".join(segment.text for segment in [*segmenter.feed(text), *segmenter.finish()]) == text
