"""httptools' parser for a server that changes to no other protocol: a request to change is served as it stands.

Left to itself the parser takes what follows such a head for the other protocol, and the request's body with it.
"""

from __future__ import annotations

from typing import Any

import httptools


class PlainParser(httptools.HttpRequestParser):  # type: ignore[misc]
    """Reads a head that asks for an upgrade once more, without the asking. Owner: the connection."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._connection = connection

    @property
    def drops_body(self) -> bool:
        """The head just read is one that will be read again."""
        # CONNECT has no body to lose, and is refused by its target.
        return bool(self.should_upgrade()) and self.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        rest = data
        while rest:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = self._plain_head() + rest[upgrade.args[0] :]

    def _plain_head(self) -> bytes:
        """The head just read, but for the upgrade."""
        line = b"%s %s HTTP/%s" % (self.get_method(), self._connection.url, self.get_http_version().encode())
        headers = [b"%s: %s" % header for header in self._connection.headers if header[0] != b"upgrade"]
        return b"\r\n".join([line, *headers, b"", b""])
