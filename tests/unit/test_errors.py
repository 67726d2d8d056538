from __future__ import annotations

import inspect

import pytest

from mlxcel import errors
from mlxcel.api.statuses import status_of
from mlxcel.cli.exits import exit_code_of
from mlxcel.errors import BugError, InputError, MlxcelError, StateError

KINDS = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, MlxcelError) and kind is not MlxcelError
]
"""Every error class there is."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_of_one_kind_with_a_status_an_exit_code_and_a_code_of_its_own(kind: type[MlxcelError]) -> None:
    assert sum(issubclass(kind, one) for one in (InputError, StateError, BugError)) == 1
    error = kind("what happened")
    lowest = 500 if not isinstance(error, InputError) else 400
    assert lowest <= status_of(error) < lowest + 100 and exit_code_of(error) > 0
    assert error.message == str(error) == "what happened"


def test_codes_are_stable_and_tell_errors_apart() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert {"context_length_exceeded", "model_not_found", "server_busy"} <= set(codes)


def test_a_code_can_be_given_and_does_not_stick_to_the_class() -> None:
    assert InputError("m", code="special").code == "special" and InputError("m").code == "invalid_value"


def test_another_librarys_error_is_told_in_one_line_of_bounded_length() -> None:
    assert errors.reason_of(ValueError("a\n  b")) == "a b"
    assert errors.reason_of(ValueError()) == "ValueError"
    assert len(errors.reason_of(ValueError("x" * 10_000))) <= 300
