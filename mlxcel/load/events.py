"""Server-sent events: bytes to the payloads of their data lines. Knows no JSON.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, without event names and ids, which
completions do not use, and without a lone carriage return as a line end, which nobody sends.
"""

MAX_EVENT_BYTES = 1 << 20


class EventStream:
    """Takes the stream as it comes, cut anywhere.

    Errors: ValueError for an event of more than MAX_EVENT_BYTES.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._n_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are whole now."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        payloads = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
                self._n_bytes += len(line)
            elif self._data and line in (b"", b"\r"):
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
                self._n_bytes = 0
        if len(self._rest) + self._n_bytes > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return payloads
