"""The service's files, made from the templates in launchd/: the port fills in the same ones.

A wheel carries the templates in this package; a checkout reads them from its folder launchd/.
"""

from __future__ import annotations

import html
import plistlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from mlxcel.errors import BugError
from mlxcel.service.layout import Layout

DAEMON_KEYS = ("UserName", "GroupName", "Disabled", "SessionCreate")
"""An agent is its user's already, starts with the login, and lives in the login's session."""
_PLACEHOLDER = re.compile(r"@([A-Z]+)@")


def template(name: str) -> str:
    """The text of one template. Errors: BugError when this installation lacks it."""
    here = Path(__file__).resolve().parent
    for folder in (here / "launchd", here.parents[1] / "launchd"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise BugError(f"this installation has no {name}; nothing was changed. Install mlxcel again")


def plist(layout: Layout) -> str:
    """The job's property list: the template itself for a daemon, less what only daemons have for an agent."""
    text = _filled(template("mlxcel.plist.in"), layout, html.escape)
    if layout.is_daemon:
        return text
    job = plistlib.loads(text.encode())
    return plistlib.dumps({key: job[key] for key in job if key not in DAEMON_KEYS}, sort_keys=False).decode()


def wrapper(layout: Layout) -> str:
    """The shell program that launchd starts."""
    return _filled(template("mlxcel-service.in"), layout, shlex.quote)


def sample_config(layout: Layout) -> str:
    return _filled(template("config.toml.sample"), layout, lambda text: text.replace("\\", "\\\\").replace('"', '\\"'))


def newsyslog_rule(layout: Layout) -> str:
    return _filled(template("newsyslog.conf.in"), layout, str)


def _filled(text: str, layout: Layout, quoted: Callable[[str], str]) -> str:
    values = layout.placeholders()
    # The command is several words, quoted already.
    return _PLACEHOLDER.sub(lambda found: values[found[1]] if found[1] == "COMMAND" else quoted(values[found[1]]), text)
