"""The socket that a server listens on."""

from __future__ import annotations

import errno
import socket

from mlxcel.errors import InputError, PortInUse

BACKLOG = 1024
SEND_BUFFER_BYTES = 2**17
"""What the system may hold of an answer that a client does not read: past it, and a little of ours, we wait."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, made before the model loads so that a taken port costs no time.

    Errors: PortInUse; InputError for an address that is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The connections inherit it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{host}:{port} is in use by another process; nothing was started. Stop that one or choose "
                "another --port"
            ) from error
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; nothing was started", param="host"
        ) from error
    listener.setblocking(False)
    return listener
