"""The tool at its edges: what it refuses, what it waits for, what it leaves untouched."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path

import pytest

from acceptance.cli import run
from acceptance.report import Ending, Result, render
from acceptance.server import Launch, parse_target
from acceptance.snapshot import PLACES, copy_snapshot, declare_eos, set_bos
from tests.acceptance.conftest import ROOT
from tests.acceptance.test_report import a_report


def evidence(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ROOT / "tools/evidence"), *words], capture_output=True, text=True, timeout=60)


def test_the_matrices_are_listed_with_what_each_shows_and_needs() -> None:
    listed = json.loads(evidence("matrices", "--json").stdout)
    assert [matrix["name"] for matrix in listed["matrices"]] == [
        "length", "no-batch", "batch", "abort", "eos", "bos", "queue",
    ]  # fmt: skip
    assert all(matrix["shows"] and matrix["needs"] for matrix in listed["matrices"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "serve {model}"], "has no {port}"),
        (["--server", "serve {port}", "--flag", "no_batch=-n"], "has no word {args}"),
        (["--server", "serve {port} {args}", "--flag", "colour=-c"], "names none of no_batch"),
        (["--server", "serve {port} {args}", "--flag", "queue_depth=-q 3"], "needs a place {n}"),
        (["--server", "serve {port}", "--matrix", "length,colour"], "there is no matrix 'colour'"),
        (["--server", "serve {port}", "--lengths", "1,x"], "is no list of numbers"),
        (["--server", "serve {port}"], "is no model folder"),
        ([], "--server"),
    ],
)
def test_wrong_input_is_refused_by_name_with_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    given = ["--model", str(tmp_path), "-o", str(tmp_path / "out"), "--lock-file", str(tmp_path / "lock")]
    assert run(["run", *given, *words]) == 2
    out, err = capsys.readouterr()
    assert said in err and not out
    assert not list(tmp_path.glob("out/evidence*"))


def test_a_run_waits_for_another_only_so_long_and_names_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as held:
        held.write("4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        done = evidence(
            "run", "--server", "serve {port}", "--model", str(tmp_path), "-o", str(tmp_path / "out"), "--lock-file",
            str(lock), "--lock-wait", "0.3", "--json",
        )  # fmt: skip
    assert done.returncode == 8
    error = json.loads(done.stdout)
    assert error["outcome"] == "locked" and "process 4711" in error["reasons"][0] and error["next"]
    assert not list((tmp_path / "out").iterdir())


def test_compare_exits_1_where_a_row_that_passed_does_not_any_more(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(render(a_report()))
    bad.write_text(render(a_report(after=Result(ending=Ending.FAILED, detail="why"))))
    worse = evidence("compare", str(good), str(bad))
    assert worse.returncode == 1 and "33 tokens" in worse.stdout and "why" in worse.stdout
    assert evidence("compare", str(bad), str(good), "--json").returncode == 0
    assert evidence("compare", str(good), str(tmp_path / "none")).returncode == 2


def test_a_command_gets_its_port_its_model_and_only_the_flags_that_a_row_needs() -> None:
    target = parse_target("serve --at={port} {args} '{model}'", {"queue_depth": "--depth {n}", "no_batch": "-1 -x"})
    launch = Launch(Path("/models/a b"), (("no_batch", None), ("queue_depth", 3)))
    assert target.argv(launch, 80) == ["serve", "--at=80", "-1", "-x", "--depth", "3", "/models/a b"]
    assert target.argv(Launch(Path("m")), 80) == ["serve", "--at=80", "m"]
    assert target.why_not(launch, launch.model) == ""
    assert "no flag for max_batch" in target.why_not(Launch(Path("m"), (("max_batch", 2),)), Path("m"))


@pytest.mark.parametrize("place", PLACES)
def test_a_copy_declares_an_end_token_in_one_place_and_the_snapshot_stays_as_it_is(
    tiny_model: Path, tmp_path: Path, place: str
) -> None:
    before = {path.name: path.read_bytes() for path in tiny_model.iterdir()}
    copy = copy_snapshot(tiny_model, tmp_path / "copy")
    declare_eos(copy, place, [77, 2], ["seventy", "two"])
    changed = {name for name, content in before.items() if (copy / name).read_bytes() != content}
    file = {"generation_config": "generation_config.json", "tokenizer": "tokenizer_config.json"}.get(
        place, "config.json"
    )
    assert changed == {file}
    assert (copy / "model.safetensors").is_symlink()
    assert {path.name: path.read_bytes() for path in tiny_model.iterdir()} == before
    if place == "generation_config":
        assert json.loads((copy / file).read_text())["eos_token_id"] == [2, 0, 77]


def test_a_copy_can_be_told_who_writes_the_first_token(tiny_model: Path, tmp_path: Path) -> None:
    from tests.support.numpy_llama import NumpyLlama

    def ids(*, adds: bool, templates: bool) -> tuple[list[int], list[int]]:
        copy = copy_snapshot(tiny_model, tmp_path / "copy")
        set_bos(copy, token="<|bos|>", adds=adds, templates=templates)
        model = NumpyLlama(copy)
        return model.encode("Hello"), model.encode_chat([{"role": "user", "content": "Hello"}])

    text, chat = ids(adds=False, templates=False)
    assert 3 not in text and 3 not in chat
    assert ids(adds=True, templates=False) == ([3, *text], chat)
    assert ids(adds=False, templates=True) == (text, [3, *chat])
    assert ids(adds=True, templates=True) == ([3, *text], [3, *chat])
