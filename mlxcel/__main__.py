"""`python -m mlxcel` and the `mlxcel` command."""

# Nothing but what the interpreter has loaded already, before `serve` heeds signals: `signal` takes as long to import as
# the interpreter takes to start, and a signal until then ends the process in its own way.
import _signal  # type: ignore[import-not-found]
import os
import sys

if sys.argv[1:2] == ["serve"]:
    # A signal to stop ends a start that has served nothing yet, with 0. A hang-up ends no server: it tells one that
    # serves to read its settings again, and before that there is nothing to do.
    for signal_number in (_signal.SIGTERM, _signal.SIGINT):
        _signal.signal(signal_number, lambda *_: os._exit(0))
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)

from mlxcel.cli import main

if __name__ == "__main__":
    main()
