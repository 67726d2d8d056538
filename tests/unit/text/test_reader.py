"""Deltas of an answer: content, thinking and calls, whole or in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.text.calls import CallForm, ForcedCalls, ParsedCall
from mlxcel.text.deltas import Call, CallArguments, Content, Message, Part, Reasoning
from mlxcel.text.reader import MessageReader, PlainReader, Reader
from mlxcel.text.segments import Markers

MARKERS = Markers("<think>", "</think>", "<call>", "</call>")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\{}[] é\n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"{', max_size=3), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text('k"\\}', max_size=3), VALUES, max_size=3)
FORMS = (CallForm(), CallForm("<call>\n", "\n</call>\n<call>\n", "\n</call>"))


def new_ids() -> Callable[[], str]:
    numbers = count()
    return lambda: f"call_{next(numbers)}"


def parse(text: str) -> list[ParsedCall] | None:
    try:
        call = json.loads(text)
        return [ParsedCall(call["name"], call["arguments"], call.get("id"))]
    except (ValueError, KeyError):
        return None


def read(reader: Reader, text: str, size: int) -> Message:
    message = Message()
    for start in range(0, len(text), size):
        message.add(reader.feed(text[start : start + size]))
    message.add(reader.finish())
    return message


@given(calls=st.lists(ARGUMENTS, min_size=1, max_size=3), form=st.sampled_from(FORMS), size=st.integers(1, 9))
def test_forced_calls_come_out_to_the_letter_however_they_are_cut(
    calls: list[dict[str, object]], form: CallForm, size: int
) -> None:
    texts = [json.dumps(arguments, separators=(",", ":")) for arguments in calls]
    bodies = [f'{{"name":"f{index}","arguments":{text}}}' for index, text in enumerate(texts)]
    text = form.opening + form.between.join(bodies) + form.closing
    reader = MessageReader(Markers(), new_id=new_ids(), forced=ForcedCalls(form, new_ids()))
    message = read(reader, text, size)
    assert message == Message([Call(f"call_{i}", f"f{i}", text) for i, text in enumerate(texts)])
    assert reader.has_calls


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_of_a_forced_call_that_is_cut_before_its_name_is_whole_nothing_is_lost(form: CallForm, size: int) -> None:
    whole, cut = '{"name":"f","arguments":{}}', '{"name":"g'
    first = MessageReader(Markers(), new_id=new_ids(), forced=ForcedCalls(form, new_ids()))
    assert read(first, form.opening + cut, size) == Message([Content(form.opening + cut)])
    second = MessageReader(Markers(), new_id=new_ids(), forced=ForcedCalls(form, new_ids()))
    assert read(second, form.opening + whole + form.between + cut, size) == Message(
        [Call("call_0", "f", "{}"), Content(cut)]
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_words_around_forced_calls_are_never_shown_wherever_they_are_cut(form: CallForm) -> None:
    whole = form.opening + '{"name":"f","arguments":{}}'
    for words in (form.between, form.closing):
        for cut in range(len(words) + 1):
            reader = MessageReader(Markers(), new_id=new_ids(), forced=ForcedCalls(form, new_ids()))
            assert read(reader, whole + words[:cut], 4) == Message([Call("call_0", "f", "{}")])


def test_parts_stay_in_the_order_in_which_they_came() -> None:
    reader = MessageReader(MARKERS, new_id=new_ids(), parse=parse)
    text = 'a<call>{"name":"f","arguments":{}}</call>b<think>c</think>d'
    parts: list[Part] = [Content("a"), Call("call_0", "f", "{}"), Content("b"), Reasoning("c"), Content("d")]
    message = read(reader, text, 3)
    assert message == Message(parts)
    again = Message()
    again.add(message.deltas)
    assert again == message and (message.text, message.reasoning) == ("abd", "c")


def test_forced_arguments_are_shown_as_they_come() -> None:
    reader = MessageReader(Markers(), new_id=new_ids(), forced=ForcedCalls(CallForm(), new_ids()))
    reader.feed('[{"name":"f","arguments":{"te')
    assert not reader.has_calls
    assert reader.feed('xt":"}') == [CallArguments(0, 'xt":"}')]
    assert reader.feed('"}}]') == [CallArguments(0, '"}')]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_models_own_calls_are_parsed_when_whole_and_its_content_and_thinking_stay(size: int) -> None:
    first, second = '{"name":"f","arguments":{"a":1},"id":"own"}', '{"name":"g","arguments":"x"}'
    text = f"<think>hm</think>Well: <call>{first}</call><call>{second}"
    reader = MessageReader(MARKERS, new_id=new_ids(), parse=parse)
    message = read(reader, text, size)
    calls = [Call("own", "f", '{"a": 1}'), Call("call_0", "g", "x")]
    assert message == Message([Reasoning("hm"), Content("Well: "), *calls])
    assert not reader.is_done


@pytest.mark.parametrize("text", ["a<call>no call</call>b", 'a<call>{"name":"f","arg'])
def test_what_no_parser_can_read_stays_content_and_nothing_is_lost(text: str) -> None:
    reader = MessageReader(MARKERS, new_id=new_ids(), parse=parse)
    assert read(reader, text, 2) == Message([Content(text)])
    assert not reader.has_calls


def test_without_parallel_calls_the_answer_is_done_with_the_first() -> None:
    reader = MessageReader(MARKERS, new_id=new_ids(), parse=parse, is_parallel=False)
    call = '<call>{"name":"f","arguments":{}}</call>'
    assert read(reader, call * 2 + "more", 5) == Message([Call("call_0", "f", "{}")])
    assert reader.is_done


@given(text=st.text())
def test_plain_text_is_content_whatever_it_holds(text: str) -> None:
    assert read(PlainReader(), text, 3) == Message([Content(text)] if text else [])
