"""prove: only a test that fails for want of the fix, and passes with it, proves anything."""

from __future__ import annotations

import pytest

from tests.git.forge import CLAMP_LOW, EMPTY_MEAN, WORDS_FIXED, Files, Forge, Run


def prove(forge: Forge, *args: str, expect: int) -> Run:
    """A proof as JSON; checkout and refs must be as before, and no worktree may stay behind."""
    before = forge.work.refs(), forge.origin.refs(), forge.work.checkout()
    run = forge.recut("prove", *args, "--json", expect=expect)
    assert (forge.work.refs(), forge.origin.refs(), forge.work.checkout()) == before
    assert len(forge.work.git("worktree", "list").split("\n")) == 1
    return run


def test_a_good_topic_gives_the_before_and_after_table(forge: Forge) -> None:
    notes = forge.work.folder / "notes.txt"
    notes.write_text("an edit that is not committed\n")
    run = prove(forge, "empty-mean", expect=0)
    assert run.json["schema"] == "recut.prove/1"
    assert run.json["verdict"] == "proved"
    assert run.json["fix_files"] == ["tally/stats.py"]
    assert run.json["rows"] == [
        {
            "test": "tests.test_empty_mean::test_the_mean_of_nothing_is_zero",
            "without_fix": "failed",
            "with_fix": "passed",
            "why": "ZeroDivisionError: division by zero",
        }
    ]
    assert notes.read_text() == "an edit that is not committed\n"


def test_a_test_that_does_not_discriminate_is_no_proof(bare_forge: Forge) -> None:
    files = dict(EMPTY_MEAN) | {"tests/test_empty_mean.py": "def test_nothing():\n    assert 1 + 1 == 2\n"}
    bare_forge.add_topic("empty-mean", ("The mean of nothing is zero", files))
    text = bare_forge.recut("prove", "topic/empty-mean", expect=1).out
    assert "does not discriminate: the test passes without the fix too" in text
    assert "without the fix" in text and "with the fix" in text


NEW_NAME: Files = {
    "tally/text.py": "def shout(text):\n    return text.upper()\n",
    "tests/test_text.py": ("from tally.text import shout\n\n\ndef test_shout():\n    assert shout('a') == 'A'\n"),
}
NEW_ATTRIBUTE: Files = {
    "tally/words.py": WORDS_FIXED + "\n\ndef shout(text):\n    return text.upper()\n",
    "tests/test_text.py": ("from tally import words\n\n\ndef test_shout():\n    assert words.shout('a') == 'A'\n"),
}


@pytest.mark.parametrize("files", [NEW_NAME, NEW_ATTRIBUTE])
def test_a_revert_that_breaks_the_import_is_not_a_test_failure(bare_forge: Forge, files: Files) -> None:
    bare_forge.add_topic("shout", ("Shout", files))
    run = prove(bare_forge, "shout", expect=1)
    assert run.json["verdict"] == "not a test failure"
    (row,) = run.json["rows"]
    assert (row["without_fix"], row["with_fix"]) == ("not a test failure", "passed")
    assert "Error" in row["why"]


def test_a_test_that_fails_and_then_breaks_its_fixture_has_failed(bare_forge: Forge) -> None:
    test = (
        "import pytest\nfrom tally.limits import clamp\n\n\n@pytest.fixture\ndef low():\n    yield 0\n"
        "    if clamp(-1, 0, 9) != 0:\n        raise RuntimeError('cannot let go')\n\n\n"
        "def test_low(low):\n    assert clamp(-1, low, 9) == low\n"
    )
    files = {"tally/limits.py": CLAMP_LOW["tally/limits.py"], "tests/test_low.py": test}
    bare_forge.add_topic("clamp-low", ("Clamp at the lower limit", files))
    run = prove(bare_forge, "clamp-low", expect=0)
    (row,) = run.json["rows"]
    assert (row["without_fix"], row["with_fix"]) == ("failed", "passed")
    assert row["why"] == "assert -1 == 0"


def test_a_fix_that_does_not_work_and_a_missing_fix_are_named(bare_forge: Forge) -> None:
    broken = dict(CLAMP_LOW) | {"tally/limits.py": "def clamp(value, low, high):\n    return low - 1\n"}
    bare_forge.add_topic("clamp-low", ("Clamp at the lower limit", broken))
    bare_forge.add_topic("only-test", ("Test", {"tests/test_one.py": "def test():\n    assert 1 == 1\n"}))
    bare_forge.add_topic("only-fix", ("Fix", {"tally/limits.py": "clamp = None\n"}))
    assert prove(bare_forge, "clamp-low", expect=1).json["verdict"] == "fails with the fix"
    assert prove(bare_forge, "only-test", expect=1).json["verdict"] == "no fix"
    run = prove(bare_forge, "only-fix", expect=5)
    assert "only-fix changes no test file" in run.json["reasons"][0]
    assert prove(bare_forge, "nothing", expect=2).json["outcome"] == "usage"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("python -m unittest discover -q -s tests -p 'check_*.py'", "proved"),
        ("python tests/check_clamp.py", "proved"),
        ("python -c 'import tally.limits'", "does not discriminate"),
        ("no-such-program", "fails with the fix"),
        ("python -c 'from tally.limits import clamp; exit(clamp(-1, 0, 9) != 0)'", "not a test failure"),
    ],
)
def test_other_test_commands_are_read_by_what_they_print(bare_forge: Forge, command: str, verdict: str) -> None:
    check = (
        "import unittest\nfrom tally.limits import clamp\n\n\n"
        "class Clamp(unittest.TestCase):\n    def test_low(self):\n        assert clamp(-1, 0, 9) == 0\n\n\n"
        "if __name__ == '__main__':\n    assert clamp(-1, 0, 9) == 0\n"
    )
    files = {"tally/limits.py": CLAMP_LOW["tally/limits.py"], "tests/check_clamp.py": check}
    bare_forge.add_topic("clamp-low", ("Clamp at the lower limit", files))
    run = prove(bare_forge, "clamp-low", "--test", command, expect=0 if verdict == "proved" else 1)
    assert run.json["verdict"] == verdict


def test_a_fix_of_several_commits_and_odd_names_is_taken_back_whole(bare_forge: Forge) -> None:
    odd, data = "tests/test_odd näme.py", "tests/data/expected.json"
    test = (
        "import pathlib\n\n\ndef test_it():\n"
        "    assert pathlib.Path('data set/ü.txt').exists()\n    assert open('tally/two').read() == 'b'\n"
    )
    bare_forge.add_topic(
        "odd",
        ("One", {"data set/ü.txt": b"\x00\xff\x00", "tally/two": "a", odd: test, data: "{}"}),
        ("Two", {"tally/two": "b"}),
    )
    run = prove(bare_forge, "odd", expect=0)
    assert run.json["fix_files"] == ["data set/ü.txt", "tally/two"]
    assert run.json["test_files"] == [data, odd]
    assert data not in run.json["command"]


def test_a_fix_under_later_changes_of_the_same_lines_cannot_be_taken_back_alone(forge: Forge) -> None:
    message = "The mean of nothing is zero\n\nRecut-Topic: empty-mean"
    landed = forge.work.commit("local", message, EMPTY_MEAN)
    forge.work.commit("local", "Rewrite mean", {"tally/stats.py": "def mean(values):\n    return 0.0\n"})
    run = prove(forge, "empty-mean", expect=5)
    assert "later commits changed the same lines" in run.json["reasons"][0]
    assert f"tools/recut prove {landed}" in run.json["next"][0]
    assert prove(forge, landed, expect=0).json["verdict"] == "proved"


def test_a_commit_is_proved_in_a_clone_that_has_no_local_and_no_upstream(forge: Forge) -> None:
    fix = forge.work.sha("refs/remotes/origin/topic/empty-mean")
    forge.work.git("remote", "remove", "upstream")
    forge.work.git("remote", "remove", "origin")
    forge.work.git("checkout", "--detach", fix)
    for branch in forge.work.branches():
        forge.work.git("branch", "-D", branch.removeprefix("refs/heads/"))
    settings = forge.work.folder / "recut.toml"
    settings.write_text(forge.origin.show("local", "recut.toml"))
    run = prove(forge, fix, expect=0)
    assert (run.json["verdict"], run.json["subject"]["patches"]) == ("proved", [fix])
    assert "there is no remote 'upstream'" in forge.recut("prove", "nothing-here", expect=5).err
