"""The socket that a server listens on."""

from __future__ import annotations

import errno
import socket

from mlxcel.errors import ConfigError, PortInUse

BACKLOG = 1024
SEND_BUFFER_BYTES = 2**17
"""What the system may hold of an answer that a client does not read: past it, and a little of ours, we wait."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, made before the model loads so that a taken port costs no time.

    Errors: PortInUse; ConfigError for a host that is no address of this machine, or a port that it may not have.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _unusable(host, port, error) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The connections inherit it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:  # a name that no resolver could be asked for
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{host}:{port} is in use by another process; nothing was started. Stop that one or choose "
                "another --port"
            ) from error
        raise _unusable(host, port, error) from error
    listener.setblocking(False)
    return listener


def _unusable(host: str, port: int, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or error
    return ConfigError(
        f"cannot listen on {host}:{port}: {reason}; nothing was started. Set host to an address of this machine, "
        "127.0.0.1 say, and port to one that this user may have",
        param="host",
    )
