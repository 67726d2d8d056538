"""The product's server where neither httptools nor uvloop is installed: on h11, and on asyncio's own loop.

`python -m tests.support.h11_server serve MODEL ...`, as `python -m mlxcel serve MODEL ...`.
"""

from __future__ import annotations

import sys

for missing in ("httptools", "uvloop"):
    sys.modules[missing] = None  # type: ignore[assignment]

from mlxcel.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
