"""How many files and connections the process may have open."""

from __future__ import annotations

import logging
import resource

ENOUGH = 4096
"""A thousand clients, their successors that wait in the backlog, and a model's files."""
MOST = (65536, 10240)
"""What is asked for where the hard limit allows more; the second is all that macOS may give."""

log = logging.getLogger("mlxcel")


def attainable_open_files() -> int:
    """How many this process may have once the limit is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard):
        return MOST[0] if soft == resource.RLIM_INFINITY else max(soft, MOST[1])
    return max(soft, min(hard, MOST[0]))


def raise_open_file_limit() -> None:
    """Raise the soft limit as far as is allowed and of use, and warn where that is little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    for most in MOST:
        wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
        if wanted <= soft:
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        soft = wanted
    if soft < ENOUGH:
        log.warning(
            "this process may open %d files, and each connection is one; clients beyond that are turned away. Raise "
            "the limit (ulimit -n, or HardResourceLimits of launchd)",
            soft,
        )
