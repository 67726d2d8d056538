"""What a model folder's files may be, before a server is asked anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.snapshot import CONFIG, read_json
from command.errors import InputError


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b"1", b""])
def test_settings_of_a_model_that_are_no_object_are_the_callers_to_mend(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CONFIG).write_bytes(content)
    with pytest.raises(InputError, match=CONFIG.replace(".", r"\.")):
        read_json(tmp_path, CONFIG)


def test_settings_that_are_missing_are_none(tmp_path: Path) -> None:
    assert read_json(tmp_path, CONFIG) == {}
