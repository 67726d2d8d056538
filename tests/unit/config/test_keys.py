"""Which keys a server asks for, and which it would rather not start with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlxcel.config.keys import KEYS_VARIABLE, LARGEST_FILE_BYTES, read_keys
from mlxcel.errors import ConfigError


def private(folder: Path, content: str | bytes, mode: int = 0o600) -> str:
    file = folder / "keys"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(mode)
    return str(file)


def test_keys_of_both_places_count_once_each_and_none_means_none(tmp_path: Path) -> None:
    file = private(tmp_path, "# one\r\nsk-1\r\n\n  sk-2  \n#sk-3\n")
    assert read_keys(None, {}) == ()
    assert read_keys(file, {}) == ("sk-1", "sk-2")
    assert read_keys(None, {KEYS_VARIABLE: "a, b ,,"}) == ("a", "b")
    assert read_keys(file, {KEYS_VARIABLE: "sk-2,c"}) == ("sk-1", "sk-2", "c")


def test_a_file_is_found_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path, "sk-1")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_keys("~/keys", {}) == ("sk-1",)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o644, 0o666, 0o777])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"mode {mode:o}.*chmod 600"):
        read_keys(private(tmp_path, "sk-secret", mode), {})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no key"),
        (b"\n # sk-secret\n", "no key"),
        (b"sk secret", "key 1 of"),
        (b"sk-fine\nsk-s\xc3\xa9cret", "key 2 of"),
        (b"sk-\x00secret", "key 1 of"),
        (b"s" * (LARGEST_FILE_BYTES + 1), "larger than"),
    ],
)
def test_a_file_without_keys_that_can_be_sent_is_refused_and_not_shown(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_keys(private(tmp_path, content), {})
    assert "cret" not in refused.value.message
    assert refused.value.param == "api_keys_file"


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for place, reason in [("missing", "cannot be opened"), ("pipe", "is no regular file"), ("", "cannot be opened")]:
        with pytest.raises(ConfigError, match=reason):
            read_keys(str(tmp_path / place), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = private(tmp_path, "sk-secret")
    os.chown(file, 12345, -1)
    with pytest.raises(ConfigError, match="another user"):
        read_keys(file, {})


@pytest.mark.parametrize("listed", ["", " ", ",,"])
def test_a_variable_that_is_set_and_empty_does_not_open_the_server(listed: str) -> None:
    with pytest.raises(ConfigError, match=f"{KEYS_VARIABLE} holds no key"):
        read_keys(None, {KEYS_VARIABLE: listed})
