"""The product's server where httptools is not installed: on h11, and with a Python that knows of nothing else.

`python -m tests.support.h11_server serve MODEL ...`, as `python -m mlxcel serve MODEL ...`.
"""

from __future__ import annotations

import sys

sys.modules["httptools"] = None  # type: ignore[assignment]

from mlxcel.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
