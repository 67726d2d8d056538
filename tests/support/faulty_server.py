"""The product's server with a runner that misbehaves, started through the composition root.

`python -m tests.support.faulty_server FAULT=K serve MODEL --port 0 [--step-timeout S] ...`. FAULT is `decode` or
`prefill` (that call raises), `memory` (a decode step finds none), `broken` (every decode step from that one raises,
and no probe does), `dead` (a decode step raises, and so does every probe), `hang` (a decode step never
returns), `abort` (the process aborts in native code), `slow` (every call takes K ms longer). K counts from 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

from mlxcel.cli.exits import guarded
from mlxcel.cli.serving import serve
from mlxcel.config.sources import resolve
from mlxcel.core import Sequence
from mlxcel.engine.runner import ModelRunner, Results, Runner
from tests.support.runners import FailingRunner, HangingRunner, SlowRunner


class AbortingRunner(FailingRunner):
    """Aborts the process in a decode call, as MLX does where no device is left."""

    def decode(self, rows: SequenceOf[Sequence]) -> Results:
        try:
            return super().decode(rows)
        except RuntimeError:
            os.abort()


FAULTS: dict[str, Callable[[Runner, int], Runner]] = {
    "decode": lambda runner, k: FailingRunner(runner, decode_calls={k}),
    "prefill": lambda runner, k: FailingRunner(runner, prefill_calls={k}),
    "memory": lambda runner, k: FailingRunner(runner, decode_calls={k}, error=MemoryError),
    "broken": lambda runner, k: FailingRunner(runner, decode_calls=range(k, 10**9)),
    "dead": lambda runner, k: FailingRunner(runner, decode_calls={k}, probe_fails=True),
    "hang": lambda runner, k: HangingRunner(runner, decode_call=k),
    "abort": lambda runner, k: AbortingRunner(runner, decode_calls={k}),
    "slow": lambda runner, k: SlowRunner(runner, step_s=k / 1000),
}


def main(arguments: list[str]) -> None:
    """Serve with the fault."""
    (fault, _, k), command, model, *flags = arguments[0].partition("="), *arguments[1:]
    assert command == "serve"
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in zip(*[iter(flags)] * 2, strict=True)}
    given = {f"{name}_s" if name.endswith("_timeout") else name: value for name, value in given.items()}
    settings = resolve({"model": model, **given}, {}).settings
    guarded(lambda: serve(settings, lambda loaded: FAULTS[fault](ModelRunner(loaded), int(k))))


if __name__ == "__main__":
    main(sys.argv[1:])
