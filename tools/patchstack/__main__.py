"""The process edge: hands the real arguments, environment and folder to the cli."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    from .cli import run

    sys.exit(run(sys.argv[1:], environ=os.environ, folder=Path.cwd()))


if __name__ == "__main__":
    main()
