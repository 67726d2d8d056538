"""The address to listen on: free, ours already, or another's."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess

from mlxcel.api.listener import bind
from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.errors import ConfigError, PortInUse

ASK_S = 1.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def look_at_port(host: str, port: int) -> Finding:
    """Listens there for a moment; where that fails, asks who does."""
    address = f"{host}:{port}"
    try:
        bind(host, port).close()
    except PortInUse:
        return _taken(host, port)
    except ConfigError as error:
        return problem("port", error.message, "Choose another --host or --port")
    return ok("port", "any free one" if port == 0 else f"{address} is free, and no server answers there")


def _taken(host: str, port: int) -> Finding:
    address = f"{host}:{port}"
    status = _status_of_ours(_EVERYWHERE.get(host, host), port)
    if status == "ok":
        return ok("port", f"a server of ours answers on {address}, and is ready")
    if status is not None:
        return warning("port", f"a server of ours answers on {address}, but is {status}", "Look into its log")
    owner = _owner_of(port)
    who = f"by {owner}" if owner else "by another process, which only root may be shown"
    return problem("port", f"{address} is in use {who}", "Stop that one, or choose another --port")


def _status_of_ours(host: str, port: int) -> str | None:
    """What /health says, where it is one of ours."""
    connection = http.client.HTTPConnection(host, port, timeout=ASK_S)
    try:
        connection.request("GET", "/health")
        told = json.loads(connection.getresponse().read(4096))
        return str(told["status"]) if "version" in told else None
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _owner_of(port: int) -> str | None:
    """The process that listens on the port, as lsof tells it; None where there is no lsof, or it may not tell."""
    lsof = shutil.which("lsof", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if lsof is None:
        return None
    command = [lsof, "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        lines = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=5, check=False
        ).stdout.splitlines()
    except subprocess.TimeoutExpired:
        return None
    told = {line[0]: line[1:] for line in reversed(lines) if line}
    return f"{told['c']} (process {told['p']})" if {"c", "p"} <= told.keys() else None
