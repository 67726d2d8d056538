"""`mlxcel pull`, `list`, `rm`, `inspect` and `config check` as a person types them, against a small hub."""

from __future__ import annotations

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from tests.support.gguf_llama import write_llama_gguf
from tests.support.reference import reference_texts
from tests.support.server_process import serving
from tests.support.small_hub import Hold, SmallHub, small_hub

WEIGHTS = "model.safetensors"
REPO = "acme/tiny"


@pytest.fixture
def hub(tiny_model: Path) -> Iterator[SmallHub]:
    with small_hub() as hub:
        hub.add(REPO, tiny_model)
        yield hub


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


class CommandLine:
    """`mlxcel` with this hub and this models folder."""

    def __init__(self, hub_url: str, models: Path) -> None:
        sealed = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        self.environ = {**sealed, "HF_ENDPOINT": hub_url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_secret"}
        self.environ["MLXCEL_MODELS_DIR"] = str(models)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "mlxcel", *arguments]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=self.environ, **{**pipes, **options})

    def __call__(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **options)
        stdout, stderr = process.communicate(timeout=60)
        assert "Traceback" not in stderr, stderr
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def pull(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self("pull", REPO, "--retries", "0", *arguments, **options)


@pytest.fixture
def mlxcel(hub: SmallHub, models: Path) -> CommandLine:
    return CommandLine(hub.url, models)


def same_files(folder: Path, other: Path) -> bool:
    names = {path.name for path in other.iterdir()}
    return {path.name for path in folder.iterdir()} - {"mlxcel-source.json"} == names and all(
        (folder / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def identity(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


def sharded(model: Path, folder: Path) -> Path:
    """The model in two files with an index."""
    shutil.copytree(model, folder)
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(weights)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:4], names[4:]), 1):
        shard = f"model-{number:05}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / shard, metadata={"format": "mlx"})
        weight_map |= dict.fromkeys(part, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def draft_of(models: Path) -> Path:
    return next((models / "acme").glob(".tiny.draft-*"))


def test_a_pulled_model_is_listed_inspected_and_run_by_its_name_and_nothing_else_is_fetched(
    tiny_model: Path, tmp_path: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    repository = sharded(tiny_model, tmp_path / "repository")
    wanted = {path.name for path in repository.iterdir()}
    for name in ("README.md", "modeling_tiny.py", "pytorch_model.bin", ".gitattributes", "original/model.safetensors"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(b"not for us")
    commit = hub.add(REPO, repository)
    done = mlxcel.pull("--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["commit"] == commit
    assert report["n_bytes"] == report["fetched_bytes"] == sum((repository / name).stat().st_size for name in wanted)
    assert {path.name for path in (models / REPO).iterdir()} == wanted | {"mlxcel-source.json"}
    assert [path.name for path in (models / "acme").iterdir()] == ["tiny"]
    assert {asked.file for asked in hub.asked} == wanted | {""}
    assert {asked.has_token for asked in hub.asked if not asked.is_redirected} == {True}
    assert {asked.has_token for asked in hub.asked if asked.is_redirected} == {False}

    n_asked = len(hub.asked)
    (listed,) = json.loads(mlxcel("list", "--json").stdout)
    assert (listed["name"], listed["commit"], listed["revision"], listed["fault"]) == (REPO, commit, "main", None)
    by_name = mlxcel("generate", REPO, "--prompt", "Once upon a time", "--max-tokens", "9", "--temperature", "0")
    assert by_name.stdout == reference_texts(tiny_model, ["Once upon a time"], 9)[0] + "\n", by_name.stderr
    assert len(hub.asked) == n_asked


def test_a_revision_is_pinned_a_second_pull_of_it_changes_nothing_and_another_one_is_refused(
    tiny_model: Path, tmp_path: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    first = hub.commits[REPO, "main"]
    assert mlxcel.pull().returncode == 0
    changed = shutil.copytree(tiny_model, tmp_path / "changed")
    (changed / "generation_config.json").write_text("{}")
    second = hub.add(REPO, changed)
    before = identity(models / REPO)
    again = mlxcel.pull("--revision", first, "--json")
    assert (again.returncode, json.loads(again.stdout)["fetched_bytes"]) == (0, 0)
    refused = mlxcel.pull()
    assert refused.returncode == 73
    assert first[:12] in refused.stderr and second[:12] in refused.stderr
    assert identity(models / REPO) == before
    assert mlxcel.pull("--name", "tiny-2").returncode == 0
    assert same_files(models / "tiny-2", changed)
    assert same_files(models / REPO, tiny_model)


def test_a_connection_that_is_cut_is_taken_up_where_it_broke(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    hub.cuts[WEIGHTS] = [100_000, 1, 0, 200_000]
    hub.cuts["tokenizer.json"], hub.without_ranges = [10_000], {"tokenizer.json"}
    done = mlxcel("pull", REPO, "--retries", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert same_files(models / REPO, tiny_model)
    assert hub.fetches(WEIGHTS) == [0, 100_000, 100_001, 100_001, 300_001]
    assert hub.fetches("tokenizer.json") == [0, 10_000]
    report = json.loads(done.stdout)
    assert report["fetched_bytes"] == report["n_bytes"]


def test_a_damaged_file_is_thrown_away_and_fetched_anew_by_the_next_pull(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    hub.damaged = {WEIGHTS}
    done = mlxcel.pull()
    assert done.returncode == 75
    assert "not what the hub names by its digest" in done.stderr and WEIGHTS in done.stderr
    assert not (models / REPO).exists()
    hub.damaged = {"tokenizer.json"}  # which is there already
    assert mlxcel.pull().returncode == 0
    assert same_files(models / REPO, tiny_model)
    assert hub.fetches(WEIGHTS) == [0, 0]
    assert hub.fetches("tokenizer.json") == [0]


def test_a_hub_that_dies_midway_ends_the_pull_with_75_and_the_next_one_goes_on(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    hub.cuts[WEIGHTS], hub.dies_with_next_cut = [150_000], True
    done = mlxcel.pull()
    assert done.returncode == 75
    assert "what arrived is kept" in done.stderr
    assert not (models / REPO).exists()
    (left,) = json.loads(mlxcel("list", "--json").stdout)
    assert (left["name"], left["is_finished"], left["is_in_use"]) == (REPO, False, False)
    hub.is_dead = hub.dies_with_next_cut = False
    hub.statuses = {WEIGHTS: (429, {"Retry-After": "5"}, b"")}
    done = mlxcel.pull()
    assert (done.returncode, "Try again in 5 s" in done.stderr) == (75, True)
    hub.statuses = {}
    done = mlxcel.pull("--json")
    assert json.loads(done.stdout)["fetched_bytes"] == (tiny_model / WEIGHTS).stat().st_size - 150_000
    assert hub.fetches(WEIGHTS) == [0, 150_000]
    assert hub.fetches("tokenizer.json") == [0]
    assert same_files(models / REPO, tiny_model)
    assert [path.name for path in (models / "acme").iterdir()] == ["tiny"]


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_pull_that_is_killed_leaves_no_model_and_the_next_one_goes_on(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine, signal_number: int
) -> None:
    hold = hub.holds[WEIGHTS] = Hold(300_000)
    process = mlxcel.start("pull", REPO)
    assert hold.reached.wait(30)
    wait_for_size(models, 200_000)
    process.send_signal(signal_number)
    _, stderr = process.communicate(timeout=30)
    hold.go.set()
    assert process.returncode == (-9 if signal_number == signal.SIGKILL else 130)
    assert signal_number == signal.SIGKILL or "what arrived is kept" in stderr
    assert not (models / REPO).exists()
    held = (draft_of(models) / WEIGHTS).stat().st_size
    assert mlxcel.pull().returncode == 0
    assert hub.fetches(WEIGHTS) == [0, held]
    assert same_files(models / REPO, tiny_model)


def wait_for_size(models: Path, n_bytes: int) -> None:
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size >= n_bytes for path in models.glob(f"acme/.tiny.draft-*/{WEIGHTS}")):
        assert time.monotonic() < deadline, "the bytes never reached the disk"
        time.sleep(0.01)


def test_of_two_pulls_at_once_one_is_sent_away_and_spoils_nothing(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    hold = hub.holds[WEIGHTS] = Hold(1000)
    first = mlxcel.start("pull", REPO)
    assert hold.reached.wait(30)
    second = mlxcel.pull()
    assert second.returncode == 75
    assert "Another process is writing" in second.stderr
    assert mlxcel("rm", REPO, "--yes").returncode == 75
    assert mlxcel.pull("--name", "elsewhere").returncode == 0
    hold.go.set()
    _, stderr = first.communicate(timeout=60)
    assert first.returncode == 0, stderr
    assert same_files(models / REPO, tiny_model)
    assert same_files(models / "elsewhere", tiny_model)


# Each line: a repository, or nothing at all; then the exit code and the message.
ASK_FOR_EACH = """
import os, sys
from pathlib import Path
from mlxcel.cli.exits import exit_code_of
from mlxcel.errors import MlxcelError
from mlxcel.store.hub import Hub
from mlxcel.store.pull import pull_model

for line in sys.stdin:
    repo, revision, endpoint = line.split()
    try:
        pull_model(Hub(endpoint), repo, Path(os.environ["MLXCEL_MODELS_DIR"]), revision=revision)
        print(0, "made")
    except MlxcelError as error:
        print(exit_code_of(error), error.message)
"""


def test_every_answer_of_a_hub_has_its_exit_code_and_leaves_nothing_behind(
    tiny_model: Path, tmp_path: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    def lacking(name: str, **added: str) -> Path:
        folder = shutil.copytree(tiny_model, tmp_path / f"without-{name}")
        (folder / name).unlink()
        for other, text in added.items():
            (folder / other.replace("_", ".")).write_text(text)
        return folder

    page = {"Content-Type": "text/html"}
    hub.statuses = {
        "a/private": (401, {}, b"{}"),
        "a/gated": (403, {}, b"{}"),
        "a/limited": (429, {"Retry-After": "77"}, b"{}"),
        "a/broken": (500, {}, b"oops"),
        "a/away": (503, {}, b""),
        "a/portal": (200, page, b"<html>log in first</html>"),
        "a/list": (200, {}, b"[]"),
        "a/odd": (200, {}, b'{"id": "a/odd", "sha": "../../odd", "siblings": []}'),
        "a/teapot": (418, {}, b""),
    }
    hub.add("a/no-config", lacking("config.json"))
    hub.add("a/no-weights", lacking(WEIGHTS, model_gguf="GGUF"))
    hub.add("a/no-tokenizer", lacking("tokenizer.json"))
    expected = {
        "a/private": (64, "HF_TOKEN"),
        "a/gated": (64, "HF_TOKEN"),
        "a/unknown": (64, "Check the name"),
        "a/limited": (75, "Try again in 77 s"),
        "a/broken": (75, "answers 500"),
        "a/away": (75, "answers 503"),
        "a/portal": (75, "no answer of a hub"),
        "a/list": (75, "no answer of a hub"),
        "a/odd": (75, "no answer of a hub"),
        "a/teapot": (75, "no answer of a hub"),
        "a/no-config": (78, "no config.json"),
        "a/no-weights": (78, "mlxcel import"),
        "a/no-tokenizer": (78, "no tokenizer"),
        "a/double--dash": (64, "no repository id"),
        "a/../b": (64, "no name of a model"),
        "/etc": (64, "no name of a model"),
        "a/b/c": (64, "no name of a model"),
        "https://hub/a/b": (64, "no name of a model"),
        ".hidden": (64, "no name of a model"),
    }
    lines = [f"{repo} main {hub.url}" for repo in expected]
    lines += [f"{REPO} no-such-branch {hub.url}", f"{REPO} main http://127.0.0.1:9", f"{REPO} main http://[x"]
    done = subprocess.run(
        [sys.executable, "-c", ASK_FOR_EACH],
        input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True, env=mlxcel.environ,
    )  # fmt: skip
    answers = [(int(line.split()[0]), line) for line in done.stdout.splitlines()]
    for (code, text), (got, line) in zip(
        [*expected.values(), (64, "Check the name"), (75, "gave no answer"), (78, "HF_ENDPOINT")],
        answers,
        strict=True,
    ):
        assert (got, text in line) == (code, True), line
    assert not models.exists()


def test_a_snapshot_that_is_not_whole_is_refused_and_its_weights_are_not_fetched(
    tiny_model: Path, tmp_path: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    repository = sharded(tiny_model, tmp_path / "repository")
    second = repository / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()
    second.unlink()
    hub.add(REPO, repository)
    done = mlxcel.pull()
    assert (done.returncode, second.name in done.stderr) == (78, True)
    assert hub.fetches("model-00001-of-00002.safetensors") == []
    second.write_bytes(whole[:-4])  # as the hub has it, with the digest of just these bytes
    hub.add(REPO, repository)
    done = mlxcel.pull()
    assert (done.returncode, second.name in done.stderr) == (78, True)
    assert list((models / "acme").iterdir()) == []


def test_a_full_disk_ends_the_pull_with_75_before_or_midway_and_the_next_one_goes_on(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    hub.claimed_bytes = {WEIGHTS: 10**17}
    done = mlxcel.pull()
    assert (done.returncode, "100000000.00 GB" in done.stderr) == (75, True)
    assert hub.fetches("config.json") == []
    hub.claimed_bytes = {}
    limit = 200_000
    done = mlxcel.pull(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert (done.returncode, "The disk is full" in done.stderr) == (75, True)
    assert not (models / REPO).exists()
    assert mlxcel.pull().returncode == 0
    assert hub.fetches(WEIGHTS) == [0, limit]
    assert same_files(models / REPO, tiny_model)


def test_offline_nothing_is_asked_and_the_variable_is_named(hub: SmallHub, models: Path, mlxcel: CommandLine) -> None:
    mlxcel.environ["HF_HUB_OFFLINE"] = "1"
    done = mlxcel.pull()
    assert (done.returncode, "HF_HUB_OFFLINE" in done.stderr) == (78, True)
    assert hub.asked == []
    assert not models.exists()


def test_rm_refuses_while_a_server_uses_the_model_asks_first_and_removes_only_that_one(
    tiny_model: Path, models: Path, mlxcel: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = shutil.copytree(tiny_model, models / "used")
    shutil.copytree(tiny_model, models / "acme" / "other")
    monkeypatch.setenv("MLXCEL_MODELS_DIR", str(models))
    with serving(Path("used")) as server:
        assert "serving used on" in server.text
        refused = mlxcel("rm", "used", "--yes")
        assert (refused.returncode, "in use" in refused.stderr) == (75, True)
        assert "in use" in mlxcel("list").stdout
        assert same_files(used, tiny_model)
        assert server.stop() == 0
    assert mlxcel("rm", "used").returncode == 64  # nobody to ask
    assert mlxcel("rm", "nothing", "--yes").returncode == 64
    assert same_files(used, tiny_model)
    done = mlxcel("rm", "acme/other", "--yes")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in models.iterdir()] == ["used"]
    assert asked_and_told(mlxcel, "n", "rm", "used") == 64
    assert same_files(used, tiny_model)
    assert asked_and_told(mlxcel, "y", "rm", "used") == 0
    assert list(models.iterdir()) == []
    assert "no models" in mlxcel("list").stdout


def asked_and_told(mlxcel: CommandLine, answer: str, *arguments: str) -> int:
    """The exit code of a command whose question a person answers so."""
    keyboard, terminal = pty.openpty()
    os.write(keyboard, f"{answer}\n".encode())
    done = mlxcel(*arguments, stdin=terminal)
    os.close(terminal)
    os.close(keyboard)
    assert "[y/N]" in done.stdout
    return done.returncode


def test_a_name_that_is_neither_folder_nor_model_exits_78_without_asking_the_hub(
    tiny_model: Path, hub: SmallHub, models: Path, mlxcel: CommandLine
) -> None:
    shutil.copytree(tiny_model, models / "acme" / "small")
    done = mlxcel("serve", "acme/smal")
    assert (done.returncode, "Did you mean acme/small?" in done.stderr) == (78, True)
    assert mlxcel("inspect", "../models/acme/small").returncode == 78
    assert hub.asked == []


def test_an_import_without_a_folder_goes_to_the_models_folder(
    tiny_model: Path, tmp_path: Path, models: Path, mlxcel: CommandLine
) -> None:
    done = mlxcel("import", str(write_llama_gguf(tmp_path / "small.gguf", tiny_model)), "--json")
    assert done.returncode == 0, done.stderr
    (listed,) = json.loads(mlxcel("list", "--json").stdout)
    assert (listed["name"], listed["repo"], listed["fault"]) == ("small", None, None)
    assert json.loads(done.stdout)["target"] == listed["folder"] == str(models / "small")


def test_inspect_and_config_check_tell_of_a_folder_that_is_not_whole(
    tiny_model: Path, tmp_path: Path, mlxcel: CommandLine
) -> None:
    told = mlxcel("inspect", str(tiny_model), "--memory", "1GB", "--length", "2048")
    assert told.returncode == 0, told.stderr
    assert "fits" in told.stdout and "sequences of 2048 tokens" in told.stdout
    config = tmp_path / "config.toml"
    config.write_text(f'model = "{tiny_model}"\n')
    checked = mlxcel("config", "check", "--config", str(config))
    assert (checked.returncode, "the model is whole" in checked.stdout) == (0, True), checked.stderr
    cut = shutil.copytree(tiny_model, tmp_path / "cut")
    (cut / WEIGHTS).write_bytes((tiny_model / WEIGHTS).read_bytes()[:-1])
    config.write_text(f'model = "{cut}"\n')
    for arguments in (("inspect", str(cut)), ("config", "check", "--config", str(config))):
        done = mlxcel(*arguments)
        assert (done.returncode, WEIGHTS in done.stderr, done.stdout) == (78, True, "")
    config.write_text("ports = 1\n")
    assert mlxcel("config", "check", "--config", str(config)).returncode == 78
    assert mlxcel("inspect", str(tiny_model), "--memory", "much").returncode == 64


def test_config_check_names_every_fault_at_once(tmp_path: Path, mlxcel: CommandLine) -> None:
    config = tmp_path / "config.toml"
    config.write_text('ports = 1\ntop_p = 2\nmodel = "nowhere"\n')
    checked = mlxcel("config", "check", "--config", str(config))
    lines = checked.stderr.splitlines()
    assert (checked.returncode, len(lines), checked.stdout) == (78, 3, "")
    assert all(line.startswith("mlxcel: ") for line in lines)
    for line, part in zip(lines, ("ports", "top_p = 2", "nowhere is no folder"), strict=True):
        assert part in line
    as_json = mlxcel("config", "check", "--config", str(config), "--json")
    told = json.loads(as_json.stdout)
    assert as_json.returncode == 78 and [fault["param"] for fault in told["faults"]] == ["ports", "top_p", "model"]
    assert [f"mlxcel: {fault['message']}" for fault in told["faults"]] == lines
