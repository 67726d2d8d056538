"""What no test here can show, and a release has to: the rows that a person with a Mac ticks off."""

from __future__ import annotations

ONLY_A_MAC = (
    "`port lint --nitpick` of both subports says 0 errors and 0 warnings",
    "`port -vst install` builds in trace mode, and `port test` passes",
    "py-llguidance and py-httptools build, and `tools` and `json_schema` are served",
    "after a reboot, before anyone logs in, the daemon answers: Metal works without a login",
    "a prompt of 30,000 tokens is prefilled by the daemon as fast as by `mlxcel serve` in a terminal",
    "`port upgrade` under load: pre-deactivate waits, the new version serves, no 'error 5' in the output",
    "`launchctl kill TERM` leaves it stopped, `kill -9` brings it back; wired memory is given back after a stop",
    "newsyslog renames the log once a day and the server opens a new one",
    "`port uninstall` leaves settings, models and logs, and nothing else",
)
