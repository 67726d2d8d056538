"""The matrices, by name, in the order in which they run."""

from __future__ import annotations

from . import abort, batch, bos, eos, length, no_batch, queue
from .matrix import Matrix

MATRICES: dict[str, Matrix] = {
    module.MATRIX.name: module.MATRIX for module in (length, no_batch, batch, abort, eos, bos, queue)
}
