"""`python -m mlxcel` and the `mlxcel` command."""

import os
import signal
import sys

if sys.argv[1:2] == ["serve"]:
    # Before anything that takes time to import: a signal to stop ends a start that has served nothing yet, with 0.
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: os._exit(0))

from mlxcel.cli import main

if __name__ == "__main__":
    main()
