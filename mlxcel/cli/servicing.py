"""`mlxcel service`: the server as a launchd job."""

from __future__ import annotations

import grp
import os
import pwd
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from mlxcel.cli.columns import aligned, show
from mlxcel.cli.exits import leave
from mlxcel.cli.options import ConfigOption
from mlxcel.cli.systemwide import PrefixOption, system_layout
from mlxcel.config.sources import config_path, default_models_dir, resolve
from mlxcel.errors import ConfigError, InputError
from mlxcel.service import launchctl, steps, templates
from mlxcel.service.layout import Layout, agent_layout

NOT_RUNNING = 3
"""As service programs report it since the LSB."""

service_app = typer.Typer(help="Run the server as a launchd service.", rich_markup_mode=None, no_args_is_help=True)

SystemOption = Annotated[
    bool, typer.Option("--system", help="The daemon that the port installed, instead of your own agent.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
_Plan = Callable[[Layout, Optional[launchctl.JobState]], list[steps.Step]]


class File(str, Enum):
    plist = "plist"
    wrapper = "wrapper"
    config = "config"
    newsyslog = "newsyslog"


@service_app.command()
def install(config: ConfigOption = None, dry_run: DryRunOption = False) -> None:
    """Make an agent that serves while you are logged in, and start it. Needs no root."""
    layout = _layout(config=config)
    _check_can_serve(layout)
    _take(layout, steps.install, f"installed {layout.target}", dry_run=dry_run)


@service_app.command()
def uninstall(dry_run: DryRunOption = False) -> None:
    """Stop the agent and remove it with its logs. Settings and models stay."""
    layout = _layout()
    _take(layout, steps.uninstall, f"removed {layout.target}", dry_run=dry_run)


@service_app.command()
def start(system: SystemOption = False, prefix: PrefixOption = None, dry_run: DryRunOption = False) -> None:
    """Start the service."""
    layout = _installed(system, prefix)
    _take(layout, steps.start, f"started {layout.target}", dry_run=dry_run)


@service_app.command()
def stop(system: SystemOption = False, prefix: PrefixOption = None, dry_run: DryRunOption = False) -> None:
    """Let running requests end, and stop the service until it is started or you log in again."""
    layout = _installed(system, prefix)
    _take(layout, steps.stop, f"stopped {layout.target}", dry_run=dry_run)


@service_app.command()
def restart(system: SystemOption = False, prefix: PrefixOption = None, dry_run: DryRunOption = False) -> None:
    """Stop the service and start it again, with the settings as they are now."""
    layout = _installed(system, prefix)
    _take(layout, steps.restart, f"restarted {layout.target}", dry_run=dry_run)


@service_app.command()
def status(system: SystemOption = False, prefix: PrefixOption = None) -> None:
    """Tell whether the service runs; exits 3 where it does not."""
    layout = _layout(system=system, prefix=prefix)
    job = launchctl.job_state(layout)
    rows = [
        ("service", layout.target),
        ("plist", f"{layout.plist}{'' if layout.plist.exists() else ' (not there)'}"),
        ("config", f"{layout.config}{'' if layout.config.exists() else ' (not there)'}"),
        ("logs", str(layout.logs)),
        ("state", job.state if job else "not started"),
        *([("process", str(job.pid))] if job and job.pid else []),
        *([("last exit", launchctl.meaning_of_end(job.last_exit))] if job and job.last_exit is not None else []),
    ]
    show(aligned(rows))
    leave(0 if job and job.pid else NOT_RUNNING)


@service_app.command()
def logs(
    n_lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Of each log.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written.")] = False,
    system: SystemOption = False,
    prefix: PrefixOption = None,
) -> None:
    """Show the end of the server's log and of what it said when it started."""
    layout = _layout(system=system, prefix=prefix)
    files = [str(file) for file in (layout.start_log, layout.log_file) if file.exists()]
    if not files:
        raise InputError(f"there are no logs in {layout.logs}; the service was never started")
    sys.stdout.flush()
    os.execvp("tail", ["tail", "-n", str(n_lines), *(["-F"] if follow else []), *files])


@service_app.command()
def render(
    file: Annotated[File, typer.Argument(help="Which file.")] = File.plist,
    system: SystemOption = False,
    prefix: PrefixOption = None,
    config: ConfigOption = None,
) -> None:
    """Print one of the service's files as it would be written."""
    layout = _layout(system=system, prefix=prefix, config=config)
    if file is File.newsyslog and not layout.is_daemon:
        raise InputError("newsyslog rotates the daemon's log only; give --system. An agent's log stays small by itself")
    texts = {
        File.plist: templates.plist,
        File.wrapper: templates.wrapper,
        File.config: templates.sample_config,
        File.newsyslog: templates.newsyslog_rule,
    }
    sys.stdout.write(texts[file](layout))


def _layout(*, system: bool = False, prefix: Path | None = None, config: Path | None = None) -> Layout:
    if system:
        return system_layout(prefix)
    if prefix is not None:
        raise InputError("--prefix is the daemon's; give it with --system", param="prefix")
    if config is not None and config.is_dir():
        raise InputError(f"--config {str(config)!r} is a folder; nothing was changed. Name a file", param="config")
    return own_layout(config)


def own_layout(config: Path | None) -> Layout:
    """The agent of whoever asks."""
    person = pwd.getpwuid(os.getuid())
    return agent_layout(
        home=Path(os.environ.get("HOME") or person.pw_dir).absolute(),
        uid=person.pw_uid,
        user=person.pw_name,
        group=grp.getgrgid(person.pw_gid).gr_name,
        config=(config or config_path(os.environ)).absolute(),
        models=default_models_dir(os.environ).absolute(),
        command=(sys.executable, "-m", "mlxcel"),
    )


def _installed(system: bool, prefix: Path | None) -> Layout:
    """Errors: InputError where there is no plist to load."""
    layout = _layout(system=system, prefix=prefix)
    if not layout.plist.exists():
        how = "'sudo port install mlxcel'" if system else "'mlxcel service install'"
        raise InputError(f"{layout.plist} does not exist; nothing was changed. {how} makes it")
    return layout


def _check_can_serve(layout: Layout) -> None:
    """A job that cannot start would be tried every 30 s for ever. Errors: ConfigError, ModelError."""
    from mlxcel.model.checkpoint import read_checkpoint
    from mlxcel.store.catalogue import find_model

    if not layout.config.exists():
        raise ConfigError(
            f"{layout.config} does not exist; nothing was installed. "
            f"'mlxcel service render config > {layout.config}' makes one to edit"
        )
    settings = resolve({}, {"HOME": str(layout.home)}, layout.config).settings
    if not settings.model:
        raise ConfigError(f"{layout.config} names no model; nothing was installed. Set model there", param="model")
    read_checkpoint(find_model(settings.model, Path(settings.models_dir)))


def _take(layout: Layout, plan: _Plan, done: str, *, dry_run: bool) -> None:
    is_asked = launchctl.is_here() or not dry_run
    todo = plan(layout, launchctl.job_state(layout) if is_asked else _assumed(plan))
    if dry_run:
        show("\n".join(map(str, todo)))
        return
    steps.take(todo)
    show(done if todo else f"nothing to do for {layout.target}")


def _assumed(plan: _Plan) -> launchctl.JobState | None:
    """Where there is no launchd, a plan to stop is shown for a service that runs, a plan to start for none."""
    return None if plan in (steps.install, steps.start) else launchctl.JobState("running", 1, None)
