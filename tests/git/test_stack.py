"""The nouns of the patch stack and the pure parts of a plan, without a repository."""

from __future__ import annotations

import pytest

from command.errors import EXIT_CODES, InputError, Outcome, ToolError
from patchstack.forecast import changed_lines
from patchstack.pick import add_trailer
from patchstack.recording import pull_request
from patchstack.remote import without_credentials
from patchstack.schema import OUTCOMES
from patchstack.settings import Settings, parse_settings, render_settings
from patchstack.stack import (
    ArchiveTag,
    DevelRelease,
    Lease,
    LocalRelease,
    Sha,
    archive_label,
    is_upstream_release,
    parse_archive_name,
    parse_release,
    sha,
    version_key,
)
from patchstack.status import next_local_release

ONE, TWO = Sha("1" * 40), Sha("2" * 40)


def test_every_outcome_has_the_exit_code_of_the_contract() -> None:
    assert set(EXIT_CODES) == set(Outcome)
    assert sorted(EXIT_CODES[outcome] for outcome in OUTCOMES) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 70]


def test_releases_parse_order_and_refuse_the_mixed_form() -> None:
    assert parse_release("v0.7.0-local01") == LocalRelease(base="v0.7.0", number=1)
    assert parse_release("v0.7.0-local100").name == "v0.7.0-local100"
    assert parse_release("v0.7.0.20260801") == DevelRelease(base="v0.7.0", date="20260801")
    names = ["v0.10.0-local01", "v0.7.0-local02", "v0.7.0-local10", "v0.7.0-local01"]
    ordered = sorted(LocalRelease(base=n.split("-")[0], number=int(n[-2:])) for n in names)
    assert [release.name for release in ordered] == [
        "v0.7.0-local01",
        "v0.7.0-local02",
        "v0.7.0-local10",
        "v0.10.0-local01",
    ]
    for name in (
        "v0.7.0.20260801-local01",
        "v0.7.0-local1",
        "v0.7.0-local00",
        "v0.7.0",
        "0.7.0-local01",
        "v0.7.0-local01-1",
    ):
        with pytest.raises(ToolError):
            parse_release(name)


def test_upstream_releases_are_told_from_the_forks_own_and_sorted_as_versions() -> None:
    assert [
        t for t in ("v1.2", "v1.2rc1", "v1.2-local01", "archive/x-1234567", "v1.2.20260801") if is_upstream_release(t)
    ] == [
        "v1.2",
        "v1.2rc1",
    ]
    assert sorted(["v0.10.0", "v0.9.0", "v0.10.0rc1"], key=version_key) == ["v0.9.0", "v0.10.0rc1", "v0.10.0"]


def test_the_next_number_follows_the_highest_whatever_else_is_tagged() -> None:
    tags = {f"refs/tags/{n}": None for n in ("v1.0-local01", "v1.0-local09", "v2.0-local50", "v1.0", "nonsense")}
    assert next_local_release("v1.0", tags) == "v1.0-local10"
    assert next_local_release("v3.0", tags) == "v3.0-local01"


def test_archive_names_hold_a_label_and_seven_digits() -> None:
    tag = ArchiveTag(label="topic-no-batch-500", commit=Sha("b9f2ed8" + "0" * 33))
    assert tag.name == "archive/topic-no-batch-500-b9f2ed8"
    assert parse_archive_name(tag.name) == ("topic-no-batch-500", "b9f2ed8")
    assert archive_label("topic/größe..x") == "topic-gr-e.x"
    for name in ("archive/x", "archive/x-123456", "archive/-1234567", "archive/a..b-1234567", "x-1234567"):
        with pytest.raises(ToolError):
            parse_archive_name(name)


def test_a_lease_names_the_full_ref_and_the_full_id() -> None:
    assert Lease(ref="refs/heads/x", expect=ONE).option == f"--force-with-lease=refs/heads/x:{ONE}"
    assert Lease(ref="refs/tags/x", expect=None).option == "--force-with-lease=refs/tags/x:"
    with pytest.raises(InputError):
        sha("1234567")


def test_a_landed_trailer_joins_trailers_and_never_a_text() -> None:
    assert add_trailer(b"Fix\n\nWhy.\n", "t") == b"Fix\n\nWhy.\n\nRecut-Topic: t\n"
    assert add_trailer(b"Fix\n\nWhy.\n\nFixes: #1\n", "t") == b"Fix\n\nWhy.\n\nFixes: #1\nRecut-Topic: t\n"
    assert add_trailer(b"Fix: this\n", "t") == b"Fix: this\n\nRecut-Topic: t\n"


def test_changed_lines_are_read_by_the_hunks_counts() -> None:
    diff = (
        f"{ONE}\ndiff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n--- x\n-y\n+{TWO}\n"
        f"{TWO}\ndiff --git a/g b/g\nnew file mode 100644\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+z\n"
    )
    lines = changed_lines(diff.encode())
    assert lines[ONE] == {
        (b"f", b""): 1,
        (b"f", b"--- x"): 1,
        (b"f", b"-y"): 1,
        (b"f", b"+" + TWO.encode()): 1,
    }
    assert lines[TWO] == {(b"g", b""): 1, (b"g", b"new file mode 100644"): 1, (b"g", b"+z"): 1}


def test_a_pull_request_is_read_where_forges_write_it() -> None:
    assert pull_request("Clamp (#42)") == "#42"
    assert pull_request("See (#42) there") == pull_request("Clamp (42)") == ""


def test_a_written_url_has_no_credentials() -> None:
    assert without_credentials("https://me:secret@forge.example/x.git") == "https://forge.example/x.git"
    assert without_credentials("git@forge.example:x.git") == "git@forge.example:x.git"
    assert without_credentials("/srv/x.git") == "/srv/x.git"


def test_settings_round_trip_and_every_refusal_names_the_key() -> None:
    assert parse_settings(render_settings(Settings())) == Settings()
    for text, key in (
        ("schema = 2", "schema"),
        ("[fork]\ntopics = 'topic'", "fork.topics"),
        ("[fork]\nlocal = 'main'", "fork.local"),
        ("[fork]\nlocl = 'x'", "locl"),
        ("[[release.edits]]\nfile = 'x'\nfind = '('\nreplace = ''", "release.edits"),
        ("not toml", "TOML"),
    ):
        with pytest.raises(InputError, match=key):
            parse_settings(text)
