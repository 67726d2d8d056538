"""The rendered property lists, against what launchd accepts and what the server needs of it."""

from __future__ import annotations

import plistlib
import re
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import resolve
from mlxcel.service import templates
from mlxcel.service.layout import Layout, agent_layout, daemon_layout, macports_prefix
from tests.packaging.conftest import ROOT
from tests.packaging.plist_schema import faults_of

PERSON = Path("/Users/Jane & <Joe>")
DAEMON = daemon_layout(Path("/opt/local"))
AGENT = agent_layout(
    home=PERSON,
    uid=501,
    user="jane",
    group="staff",
    config=PERSON / ".config/mlxcel/config.toml",
    models=PERSON / ".local/share/mlxcel/models",
    command=("/opt/a b/bin/python3", "-m", "mlxcel"),
)


def faults(layout: Layout, text: str) -> list[str]:
    return faults_of(text.encode(), layout.plist, is_daemon=layout.is_daemon, drain_s=ServeSettings().drain_timeout_s)


@pytest.mark.parametrize("layout", [DAEMON, AGENT], ids=["daemon", "agent"])
def test_the_rendered_job_is_what_launchd_accepts_and_the_server_needs(layout: Layout) -> None:
    assert faults(layout, templates.plist(layout)) == []


def test_the_daemon_is_the_users_whom_the_port_adds_and_its_label_is_macports_own() -> None:
    job = plistlib.loads(templates.plist(DAEMON).encode())
    assert job["Label"] == "org.macports.mlxcel"
    assert (job["UserName"], job["GroupName"]) == ("mlxcel", "mlxcel")
    assert job["EnvironmentVariables"] == {
        "HOME": "/opt/local/var/mlxcel",
        "PATH": "/opt/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HF_HOME": "/opt/local/var/mlxcel/.cache/huggingface",
        "MLXCEL_LOG_FILE": "/opt/local/var/log/mlxcel/mlxcel.log",
    }


def test_paths_with_markup_and_spaces_survive_in_every_file() -> None:
    job = plistlib.loads(templates.plist(AGENT).encode())
    assert job["ProgramArguments"] == [str(AGENT.wrapper)]
    assert job["EnvironmentVariables"]["HOME"] == str(PERSON)
    read = resolve({}, {"HOME": "/"}, None).settings.models_dir
    assert read != str(AGENT.models)
    assert f'models_dir = "{AGENT.models}"' in templates.sample_config(AGENT)


@pytest.mark.parametrize(
    ("key", "find", "becomes"),
    [
        ("not a property list", "</dict>\n</plist>", "</plist>"),
        ("not a property list", "<true/>", "<yes/>"),
        ("not a property list", "<string>Interactive</string>", ""),
        ("Nice: unknown", "<key>Umask</key>", "<key>Nice</key><integer>1</integer><key>Umask</key>"),
        ("Umask: not int", "<integer>63</integer>", "<string>077</string>"),
        ("Umask: others may read", "<integer>63</integer>", "<integer>18</integer>"),
        ("Label", "org.macports.mlxcel<", "org.macports.mlxcel-server<"),
        ("KeepAlive", "SuccessfulExit", "Crashed"),
        ("KeepAlive: not dict", "<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>", "<true/>"),
        ("ExitTimeOut: missing", "<key>ExitTimeOut</key>\n\t<integer>60</integer>", ""),
        ("ExitTimeOut: too close", "<integer>60</integer>", "<integer>20</integer>"),
        ("ProcessType", "Interactive", "Background"),
        ("ThrottleInterval", "<integer>30</integer>", "<integer>1</integer>"),
        ("SoftResourceLimits", "8192", "256"),
        ("Disabled", "<key>Disabled</key>\n\t<true/>", "<key>Disabled</key>\n\t<false/>"),
        ("UserName", "<string>mlxcel</string>", "<string>root</string>"),
        ("EnvironmentVariables: lacks", "<key>HF_HOME", "<key>HF_CACHE"),
        ("EnvironmentVariables: a secret", "MLXCEL_LOG_FILE", "HF_TOKEN"),
        ("EnvironmentVariables", "/opt/local/var/mlxcel/.cache", "~/.cache"),
        ("WorkingDirectory", "<string>/opt/local/var/mlxcel<", "<string>$HOME<"),
        ("StandardOutPath", "/opt/local/var/log/mlxcel/start.log", "start.log"),
        ("ProgramArguments", "/opt/local/libexec/mlxcel/mlxcel-service", "@WRAPPER@"),
    ],
)
def test_each_broken_rule_is_caught(key: str, find: str, becomes: str) -> None:
    text = templates.plist(DAEMON)
    assert find in text
    found = faults(DAEMON, text.replace(find, becomes))
    assert any(fault.startswith(key) for fault in found), found


def test_the_wrapper_becomes_the_server_and_hands_it_the_variables_that_no_plist_may_show(tmp_path: Path) -> None:
    home = tmp_path / "a 'home'"
    layout = agent_layout(
        home=home, uid=501, user="x", group="x", config=home / "config.toml", models=home,
        command=("/bin/sh", "-c", 'echo "$$ $HF_TOKEN $*"', "sh"),
    )  # fmt: skip
    layout.wrapper.parent.mkdir(parents=True)
    layout.wrapper.write_text(templates.wrapper(layout))
    layout.wrapper.chmod(layout.wrapper.stat().st_mode | stat.S_IXUSR)
    layout.variables.write_text("HF_TOKEN=kept\n")
    with subprocess.Popen([layout.wrapper], stdout=subprocess.PIPE, text=True) as started:
        told, _ = started.communicate(timeout=30)
    assert told == f"{started.pid} kept serve --config {layout.config}\n"
    assert layout.pid_file.read_text() == f"{started.pid}\n"


def test_the_sample_config_starts_nothing_wrong_and_every_key_in_it_is_a_setting(tmp_path: Path) -> None:
    sample = tmp_path / "config.toml"
    sample.write_text(templates.sample_config(DAEMON))
    assert resolve({}, {"HOME": "/"}, sample).settings == ServeSettings(models_dir="/opt/local/var/mlxcel/models")
    sample.write_text(re.sub(r"(?m)^#(?=\w+ = )", "", sample.read_text()))
    shown = resolve({}, {"HOME": "/"}, sample).settings
    models = "/opt/local/var/mlxcel/models"
    defaults = ServeSettings(model="NAME", api_keys_file="FILE", models_dir=models, max_queue_depth=256)
    assert shown == defaults, "an example in the sample is not the default"


def test_newsyslog_renames_the_servers_log_and_signals_its_pid_file() -> None:
    rule = templates.newsyslog_rule(DAEMON).splitlines()[-1].split("\t")
    assert rule == [
        "/opt/local/var/log/mlxcel/mlxcel.log", "mlxcel:mlxcel", "600", "7", "*", "$D0", "J",
        "/opt/local/var/mlxcel/mlxcel.pid", "1",
    ]  # fmt: skip


def test_the_wheel_carries_the_templates_of_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        carried = {name: files.read(name) for name in files.namelist() if name.startswith("mlxcel/service/launchd/")}
    here = {f"mlxcel/service/launchd/{file.name}": file.read_bytes() for file in (ROOT / "launchd").iterdir()}
    assert carried == here


@pytest.mark.parametrize(
    ("python", "prefix"),
    [
        ("/opt/local/Library/Frameworks/Python.framework/Versions/3.13", "/opt/local"),
        ("/Users/x/ports/Library/Frameworks/Python.framework/Versions/3.14", "/Users/x/ports"),
        ("/usr", "/opt/local"),
    ],
)
def test_the_prefix_is_that_of_macports_own_python(python: str, prefix: str) -> None:
    assert macports_prefix(python) == Path(prefix)
