"""How log-probabilities are worded, in completions and in chats."""

from __future__ import annotations

import json
import math

from mlxcel.api.wire.answers import Piece
from mlxcel.api.wire.logprobs import chat_logprobs, completion_logprobs
from mlxcel.api.wire.responses import ChatShape, CompletionShape
from mlxcel.text.deltas import Content
from mlxcel.text.logprobs import ReportedToken

FIRST = ReportedToken(b"He", 0, None)
LIKELY = ReportedToken(b"llo", 2, -0.5, ((b"llo", -0.5), (b"\xf0\x9f", -1.0)))
UNLIKELY = ReportedToken(b"\x99", 5, -math.inf, ((b"!", -0.25), (b"\xf0\x9e", -2.0)))


def test_a_completion_has_four_lists_and_the_chosen_token_among_its_alternatives() -> None:
    assert completion_logprobs([FIRST, LIKELY, UNLIKELY]) == {
        "tokens": ["He", "llo", "bytes:\\x99"],
        "token_logprobs": [None, -0.5, -9999.0],
        "top_logprobs": [
            None,
            {"llo": -0.5, "bytes:\\xf0\\x9f": -1.0},
            {"!": -0.25, "bytes:\\xf0\\x9e": -2.0, "bytes:\\x99": -9999.0},
        ],
        "text_offset": [0, 2, 5],
    }


def test_a_chat_has_each_tokens_bytes_and_its_alternatives_apart() -> None:
    (token,) = chat_logprobs([LIKELY])["content"]
    assert (token["token"], token["logprob"], bytes(token["bytes"])) == ("llo", -0.5, b"llo")
    assert token["top_logprobs"] == [
        {"token": "llo", "logprob": -0.5, "bytes": [0x6C, 0x6C, 0x6F]},
        {"token": "bytes:\\xf0\\x9f", "logprob": -1.0, "bytes": [0xF0, 0x9F]},
    ]


def test_a_chunk_reports_the_tokens_that_it_has_and_nothing_where_it_has_none() -> None:
    for shape, some in ((CompletionShape, completion_logprobs([LIKELY])), (ChatShape, chat_logprobs([LIKELY]))):
        made = shape("7", 5, "tiny")
        for tokens, logprobs in ((None, None), ([], None), ([LIKELY], some)):
            chunk = made.chunk(3, Piece([Content("llo")], tokens=tokens))
            (choice,) = json.loads(chunk.removeprefix(b"data: "))["choices"]
            assert (choice["index"], choice["logprobs"]) == (3, logprobs)


def test_a_streamed_chat_of_several_choices_opens_each_with_the_role() -> None:
    opening = ChatShape("7", 5, "tiny", n_choices=3).opening(9)
    choices = [json.loads(frame[6:])["choices"][0] for frame in opening.decode().split("\n\n")[:-1]]
    assert [(choice["index"], choice["delta"]["role"]) for choice in choices] == [
        (index, "assistant") for index in range(3)
    ]
