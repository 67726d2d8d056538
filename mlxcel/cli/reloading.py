"""What SIGHUP does to a server: its own log, if it has one, is opened anew, and safe settings are taken over.

The end of its terminal sends SIGHUP too, and ends no server: SIGTERM does.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from mlxcel.config.sampling import SAMPLING_SETTINGS
from mlxcel.config.settings import ServeSettings
from mlxcel.errors import MlxcelError
from mlxcel.service.logfile import LogFile

log = logging.getLogger("mlxcel.server")

SAFE = frozenset({*SAMPLING_SETTINGS, "drain_timeout_s", "step_timeout_s"})
"""Settings that nothing was sized or opened by; every other one needs a restart."""


class Reload:
    """Called on the event loop's thread, on each SIGHUP.

    `read` reads the sources of the settings again. `use` takes settings over that differ in SAFE ones only; until
    there is a server to do so, settings stay as they were.
    """

    def __init__(
        self,
        settings: ServeSettings,
        log_file: LogFile | None,
        *,
        read: Callable[[], ServeSettings],
    ) -> None:
        self._settings = settings
        self._log_file = log_file
        self._read = read
        self.use: Callable[[ServeSettings], None] | None = None

    def __call__(self) -> None:
        if self._log_file is not None:
            _reopen(self._log_file)
        if self.use is None:
            return
        try:
            self._take_over(self._read(), self.use)
        except MlxcelError as error:
            log.warning("SIGHUP: the settings stay as they were: %s", error.message)

    def _take_over(self, new: ServeSettings, use: Callable[[ServeSettings], None]) -> None:
        changed = [
            field.name
            for field in dataclasses.fields(new)
            if getattr(new, field.name) != getattr(self._settings, field.name)
        ]
        taken = [key for key in changed if key in SAFE]
        if taken:
            settings = dataclasses.replace(self._settings, **{key: getattr(new, key) for key in taken})
            use(settings)
            self._settings = settings
            log.info("SIGHUP: taken over: %s", ", ".join(taken))
        if waiting := [key for key in changed if key not in SAFE]:
            log.warning("SIGHUP: in force after a restart only: %s", ", ".join(waiting))


def _reopen(log_file: LogFile) -> None:
    try:
        log_file.reopen()
    except OSError as error:
        log.warning("SIGHUP: the log cannot be opened anew (%s); it goes on in the old file", error)
    else:
        log.info("SIGHUP: the log was opened anew")
