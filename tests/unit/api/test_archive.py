"""Responses are kept by id, the newest of them."""

from __future__ import annotations

import pytest

from mlxcel.api.archive import KeptResponse, ResponseArchive
from mlxcel.errors import UnknownResponse


def response(response_id: str, n_chars: int = 0) -> KeptResponse:
    return KeptResponse({"id": response_id, "output": "x" * n_chars}, [])


def kept(archive: ResponseArchive, *response_ids: str) -> list[str]:
    found = []
    for response_id in response_ids:
        try:
            found.append(archive.get(response_id, "id").body["id"])
        except UnknownResponse as error:
            assert error.param == "id"
    return found


def test_the_oldest_gives_way_to_the_newest_by_number_and_by_size() -> None:
    archive = ResponseArchive(most=3, most_bytes=1000)
    for name in "abcd":
        archive.keep(response(name))
    assert kept(archive, *"abcd") == ["b", "c", "d"]
    archive.keep(response("big", 900))
    assert kept(archive, *"bcd", "big") == ["c", "d", "big"]
    archive.keep(response("bigger", 930))
    assert kept(archive, *"cd", "big", "bigger") == ["bigger"]
    archive.keep(response("too big", 5000))
    assert kept(archive, "bigger", "too big") == ["bigger"] and len(archive) == 1


def test_what_is_deleted_is_gone_and_its_room_is_free() -> None:
    archive = ResponseArchive(most=3, most_bytes=1000)
    archive.keep(response("a", 900))
    archive.delete("a")
    with pytest.raises(UnknownResponse):
        archive.delete("a")
    archive.keep(response("b", 400))
    archive.keep(response("c", 400))
    assert kept(archive, "a", "b", "c") == ["b", "c"]
