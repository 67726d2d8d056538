"""The process edge: hands the real arguments and folder to the cli."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    try:
        from .cli import run
    except ModuleNotFoundError as error:
        top = Path(__file__).resolve().parents[2]
        sys.stderr.write(f"port: this Python has no {error.name}. Nothing was written.\nNext:\n  make -C {top} setup\n")
        sys.exit(2)
    sys.exit(run(sys.argv[1:], folder=Path.cwd()))


if __name__ == "__main__":
    main()
