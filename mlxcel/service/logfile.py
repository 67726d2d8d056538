"""The server's own log: bounded by itself, opened anew when told that it was renamed."""

from __future__ import annotations

from logging.handlers import RotatingFileHandler
from pathlib import Path

from mlxcel.errors import ConfigError

MAX_BYTES = 10_000_000
N_OLD_FILES = 5


class LogFile(RotatingFileHandler):
    """At most six files of 10 MB: `path`, and `path`.1 to .5, the oldest last. Safe to use from any thread.

    Errors: ConfigError when it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            if path.is_fifo():
                raise OSError("it is a pipe, and would be waited for")
            super().__init__(path, maxBytes=MAX_BYTES, backupCount=N_OLD_FILES, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"log_file = {str(path)!r} cannot be written: {error.strerror or error}; nothing was started. "
                "Name a file in a folder that exists and is this user's",
                param="log_file",
            ) from error

    def reopen(self) -> None:
        """Go on in a new file where the old one was, which was renamed. Errors: OSError; then the old one stays."""
        self.acquire()
        try:
            fresh = self._open()
            if self.stream is not None:
                self.stream.close()
            self.stream = fresh
        finally:
            self.release()
