"""Why llguidance follows a grammar no further, in a caller's words.

Source: llguidance 1.9's messages, whose grammar lines, parser state and option names are not the caller's.
"""

from __future__ import annotations

import re

from mlxcel.errors import reason_of

_INTERNALS = re.compile(
    r"\n {3}1 \|.*|<state>.*|<non-verbose/>|; applying '[^']*'|^.*: failed to compile JSON schema: ", re.S
)

_PLAIN = (
    (
        re.compile(r"NoExtension"),
        "nothing that can be written fits the schema: its bounds leave no value, or it only refers to itself",
    ),
    (
        re.compile(r"Unsatisfiable schema: Regex is empty"),
        "Unsatisfiable schema: no text fits its pattern, format and lengths together",
    ),
    (
        re.compile(r"oneOf constraints are not supported"),
        "oneOf is followed only where no value can fit two of its schemas; use anyOf",
    ),
    (
        re.compile(r"Unable to determine if regex is empty"),
        "its pattern, format and lengths together are more than can be worked out",
    ),
    (
        re.compile(r'failed to parse "%json": recursion limit'),
        "it is nested too deep",
    ),
    (
        re.compile(r"(?:Parser Error: )?(?:Current row has|Too many items)"),
        "at one place there is more that may come than can be kept track of",
    ),
    (re.compile(r"Parser Error: token "), "a token came that does not fit it"),
)


def cause_of(error: str) -> str:
    """The cause alone, as one line of bounded length.

    Only what a message begins with tells what it is: further on may be the caller's own words.
    """
    told = _INTERNALS.sub("", error)
    return next((words for pattern, words in _PLAIN if pattern.match(told)), reason_of(told))
