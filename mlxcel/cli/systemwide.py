"""`--system`: the daemon's settings and models folder instead of one's own, written as the daemon's user."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import resolve
from mlxcel.errors import InputError
from mlxcel.service.layout import Layout, daemon_layout, macports_prefix

ForSystemOption = Annotated[bool, typer.Option("--system", help="For the daemon of the port; needs sudo.")]
PrefixOption = Annotated[Optional[Path], typer.Option("--prefix", help="MacPorts' prefix.", show_default=False)]


def system_layout(prefix: Path | None) -> Layout:
    """The daemon of `prefix`, else of the MacPorts that this Python belongs to. Errors: InputError."""
    if prefix is not None and not prefix.is_absolute():
        raise InputError(f"--prefix {str(prefix)!r} is no absolute path; nothing was changed", param="prefix")
    return daemon_layout(prefix or macports_prefix(sys.prefix))


def system_settings(prefix: Path | None, *, own: tuple[object, ...]) -> ServeSettings:
    """The settings that the daemon will start with; what is in `own` may not be given beside --system.

    Errors: InputError; ConfigError for the daemon's config file.
    """
    if any(value is not None for value in own):
        raise InputError("--system takes settings and models from the port; --config and --models-dir are for your own")
    layout = system_layout(prefix)
    settings = resolve({}, {"HOME": str(layout.home)}, layout.config if layout.config.exists() else None).settings
    if not Path(settings.models_dir).is_dir():
        raise InputError(
            f"{settings.models_dir}, where the service's models live, does not exist; nothing was changed. "
            "'sudo port install mlxcel' makes it"
        )
    return settings


def become_owner_of(folder: Path) -> None:
    """Go on as the user whom the folder belongs to: no file of root's among the service's, no hub's bytes as root.

    Errors: InputError where that takes root.
    """
    owner = folder.stat()
    if os.geteuid() == owner.st_uid:
        return
    name = _name_of(owner.st_uid)
    if os.geteuid() != 0:
        raise InputError(f"{folder} belongs to {name}; nothing was changed. Run the same command with sudo")
    os.setgroups([owner.st_gid])
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)
    os.environ["HOME"] = str(folder.parent)


def check_readable(source: Path, folder: Path) -> None:
    """Errors: InputError for a file that the folder's owner may not read."""
    if source.exists() and not os.access(source, os.R_OK):
        name = _name_of(folder.stat().st_uid)
        raise InputError(f"{source} may not be read by {name}; nothing was changed. Copy it to where it may, /tmp say")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"
