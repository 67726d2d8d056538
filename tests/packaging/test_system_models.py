"""Models for the service's user: `pull` and `import` with --system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import Command
from tests.support.gguf_llama import write_llama_gguf
from tests.support.service_prefix import free_port, lay_out
from tests.support.small_hub import small_hub

SOMEONE = 60123
"""A user whom no machine has."""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "prefix"
    layout = lay_out(prefix, f'models_dir = "{prefix}/var/mlxcel/models"\nport = {free_port()}\n')
    assert layout.models.is_dir()
    return prefix


# A stranger may not be able to read this machine's Python, so everything is imported by a pull of one's own first.
TWO_PULLS = """
import sys
from mlxcel.cli.commands import app
prefix, scratch = sys.argv[1:]
app(["pull", "acme/tiny", "--models-dir", scratch], standalone_mode=False)
app(["pull", "acme/tiny", "--system", "--prefix", prefix], standalone_mode=False)
"""


def test_pull_writes_the_services_models_as_whoever_they_belong_to(
    prefix: Path, tiny_model: Path, tmp_path: Path
) -> None:
    models = prefix / "var" / "mlxcel" / "models"
    owner = SOMEONE if os.geteuid() == 0 else os.geteuid()
    os.chown(models, owner, -1)
    if owner == SOMEONE:
        for folder in models.parents:
            if folder.stat().st_mode & 0o001 == 0:
                folder.chmod(folder.stat().st_mode | 0o011)
    with small_hub() as hub:
        hub.add("acme/tiny", tiny_model)
        done = subprocess.run(
            [sys.executable, "-c", TWO_PULLS, prefix, tmp_path / "scratch"],
            capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(models.parent / "hub")},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = [models / "acme", *(models / "acme").rglob("*")]
    assert len(made) > 3
    assert {path.stat().st_uid for path in made} == {owner}


def test_without_the_port_or_with_ones_own_folders_system_is_refused(
    mlxcel: Command, prefix: Path, tmp_path: Path
) -> None:
    missing = mlxcel("pull", "acme/tiny", "--system", "--prefix", str(tmp_path / "none"))
    assert (missing.returncode, "'sudo port install mlxcel' makes it" in missing.stderr) == (64, True)
    both = mlxcel("pull", "acme/tiny", "--system", "--prefix", str(prefix), "--models-dir", str(tmp_path))
    assert (both.returncode, "--models-dir" in both.stderr) == (64, True)
    assert not any((prefix / "var" / "mlxcel" / "models").iterdir())


def test_import_puts_the_model_where_the_service_looks_and_a_server_without_one_names_the_command(
    mlxcel: Command, prefix: Path, tiny_model: Path, tmp_path: Path
) -> None:
    none = mlxcel("serve", "--config", str(prefix / "etc" / "mlxcel" / "config.toml"))
    assert none.returncode == 78
    assert "'sudo mlxcel pull OWNER/NAME --system'" in none.stderr
    source = tmp_path / "tiny.gguf"
    write_llama_gguf(source, tiny_model)
    done = mlxcel("import", str(source), "--system", "--prefix", str(prefix))
    assert done.returncode == 0, done.stderr
    assert (prefix / "var" / "mlxcel" / "models" / "tiny" / "config.json").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder takes root to make")
def test_someone_who_is_neither_root_nor_the_owner_is_told_to_use_sudo() -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from mlxcel.cli import systemwide; from mlxcel.errors import InputError\n"
        f"os.setuid({SOMEONE})\n"
        "try: systemwide.become_owner_of(Path(sys.argv[1]))\n"
        "except InputError as error: print(error)"
    )
    folder = Path("/")
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "/ belongs to root; nothing was changed. Run the same command with sudo\n"
