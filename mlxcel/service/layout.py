"""Where the service's files are: for the daemon that the port installs, and for one user's agent."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

DAEMON_LABEL = "org.macports.mlxcel"
"""MacPorts' startupitem.uniquename: a job of another label would never be reloaded by an upgrade."""
AGENT_LABEL = "io.mlxcel.agent"
SERVICE_USER = "mlxcel"
MACPORTS_PREFIX = Path("/opt/local")
_FRAMEWORKS = "/Library/Frameworks/Python.framework/"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One launchd job and its files. Every path is absolute."""

    label: str
    domain: str
    """launchd's: `system`, or `gui/` and a user's id."""
    plist: Path
    wrapper: Path
    """The program that launchd starts; it becomes `command serve --config config`."""
    command: tuple[str, ...]
    config: Path
    home: Path
    bin: Path
    models: Path
    logs: Path
    pid_file: Path
    user: str
    group: str

    @property
    def target(self) -> str:
        """What launchctl calls the job."""
        return f"{self.domain}/{self.label}"

    @property
    def is_daemon(self) -> bool:
        return self.domain == "system"

    @property
    def variables(self) -> Path:
        """A shell file with variables for the server, for what may not stand in a plist; it need not exist."""
        return self.config.with_name("environment")

    @property
    def log_file(self) -> Path:
        """The server's own log."""
        return self.logs / "mlxcel.log"

    @property
    def start_log(self) -> Path:
        """What the server says before it has a log, and when it breaks; launchd holds it open."""
        return self.logs / "start.log"

    def placeholders(self) -> dict[str, str]:
        """What the templates leave open, as plain text."""
        return {
            "LABEL": self.label,
            "WRAPPER": str(self.wrapper),
            "USER": self.user,
            "GROUP": self.group,
            "HOME": str(self.home),
            "BIN": str(self.bin),
            "LOGS": str(self.logs),
            "MODELS": str(self.models),
            "CONFIG": str(self.config),
            "VARIABLES": str(self.variables),
            "PIDFILE": str(self.pid_file),
            "COMMAND": shlex.join(self.command),
        }


def daemon_layout(prefix: Path) -> Layout:
    """The daemon as the port lays it out under MacPorts' `prefix`."""
    home = prefix / "var" / "mlxcel"
    return Layout(
        label=DAEMON_LABEL,
        domain="system",
        plist=prefix / "etc" / "LaunchDaemons" / DAEMON_LABEL / f"{DAEMON_LABEL}.plist",
        wrapper=prefix / "libexec" / "mlxcel" / "mlxcel-service",
        command=(str(prefix / "bin" / "mlxcel"),),
        config=prefix / "etc" / "mlxcel" / "config.toml",
        home=home,
        bin=prefix / "bin",
        models=home / "models",
        logs=prefix / "var" / "log" / "mlxcel",
        pid_file=home / "mlxcel.pid",
        user=SERVICE_USER,
        group=SERVICE_USER,
    )


def agent_layout(
    *, home: Path, uid: int, user: str, group: str, config: Path, models: Path, command: tuple[str, ...]
) -> Layout:
    """The agent that runs while `user` is logged in, with that user's own settings and models."""
    own = home / "Library" / "Application Support" / "mlxcel"
    return Layout(
        label=AGENT_LABEL,
        domain=f"gui/{uid}",
        plist=home / "Library" / "LaunchAgents" / f"{AGENT_LABEL}.plist",
        wrapper=own / "mlxcel-service",
        command=command,
        config=config,
        home=home,
        bin=Path(command[0]).parent,
        models=models,
        logs=home / "Library" / "Logs" / "mlxcel",
        pid_file=own / "mlxcel.pid",
        user=user,
        group=group,
    )


def macports_prefix(python_prefix: str) -> Path:
    """The MacPorts prefix that a Python of MacPorts lies in, else the usual one."""
    before, framework, _ = python_prefix.partition(_FRAMEWORKS)
    return Path(before) if framework else MACPORTS_PREFIX
