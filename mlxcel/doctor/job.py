"""The service: whether launchd knows the job, and how its last run ended."""

from __future__ import annotations

from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.errors import StateError
from mlxcel.service import launchctl
from mlxcel.service.layout import Layout


def look_at_jobs(layouts: tuple[Layout, ...]) -> list[Finding]:
    """The state of each job, the daemon or an agent, as launchd tells it."""
    if not launchctl.is_here():
        return [ok("service", "there is no launchd here; 'mlxcel serve' runs the server without it")]
    return [_look_at_job(layout) for layout in layouts]


def _look_at_job(layout: Layout) -> Finding:
    about = "daemon" if layout.is_daemon else "agent"
    own = " --system" if layout.is_daemon else ""
    try:
        job = launchctl.job_state(layout)
    except StateError as error:
        return warning(about, f"launchd does not tell: {error.message}", f"launchctl print {layout.target}")
    if not layout.plist.exists():
        if job is None:
            return ok(about, "not installed")
        return warning(
            about, f"launchd knows {layout.target}, but {layout.plist} is gone: it will not start after a reboot",
            "Install it again" if layout.is_daemon else "'mlxcel service install', or 'mlxcel service stop'",
        )  # fmt: skip
    if job is None:
        return ok(about, f"{layout.target} is installed and not started")
    if job.pid:
        return ok(about, f"{layout.target} runs as process {job.pid}")
    if job.last_exit is None:
        return ok(about, f"{layout.target} is loaded and has not run yet")
    end = f"{layout.target} does not run; its last run ended with {launchctl.meaning_of_end(job.last_exit)}"
    return ok(about, end) if job.last_exit == 0 else problem(about, end, f"mlxcel service logs{own}, then mend that")
