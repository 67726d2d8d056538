"""The `launchctl` program of the stand-in: launchctl.py SOCKET VERB ... It needs nothing but Python's own library."""

from __future__ import annotations

import json
import socket
import sys


def main() -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        connection.sendall(json.dumps(sys.argv[2:]).encode() + b"\n")
        told = b""
        while part := connection.recv(65536):
            told += part
    code, out, error = json.loads(told)
    sys.stdout.write(out)
    sys.stderr.write(error)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
