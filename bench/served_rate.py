"""Tokens per second that streaming clients get: mlxcel against mlx_lm.server, in turn on one model in one run.

    make bench        or        python bench/served_rate.py [--rounds 5] [--model DIR] [--out FILE]

Both servers run at once and are asked in turn, so that whatever else the machine does hits both alike. A
figure is the median of all rounds; each round's prompts are new to both. Without --model the model is a tiny
random Llama, which leaves the arithmetic out and measures what the servers add to it. The bare rate is the
engine's own loop on the same prompts, without HTTP, text or JSON. Exit status 1 if a bar is missed.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from bench.bare_engine import BareEngine, bare_engine, prompts_of
from bench.server_process import serve
from mlxcel.cli.exits import leave
from mlxcel.errors import MlxcelError
from mlxcel.load import LoadReport, LoadSettings, run_load
from tests.support.tiny_llama import make_tiny_llama

SERVED_BARS = {8: 1.2, 32: 1.25}
"""Clients -> least ratio of our tokens per second to mlx_lm.server's."""
BARE_BARS = {8: 0.8}
"""Clients -> least share of the bare engine's tokens per second that reaches clients."""

N_REQUESTS, PROMPT_WORDS, MAX_TOKENS = 3, 32, 128
OURS, THEIRS, BARE = "mlxcel", "mlx_lm.server", "bare engine"


class Rate(msgspec.Struct, frozen=True):
    """What one subject did at one number of clients, round by round."""

    subject: str
    n_clients: int
    tokens_per_s: list[float]
    ttft_p50_ms: list[float]
    inter_token_p50_ms: list[float]


class Bar(msgspec.Struct, frozen=True):
    """A ratio of medians and the least that it may be."""

    name: str
    n_clients: int
    ratio: float
    least: float

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.least


Measure = Callable[[int, int], LoadReport | float]
"""n_clients and a seed -> a load report, or tokens per second alone."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    model: Annotated[Path | None, typer.Option(help="an MLX model folder; a tiny random Llama if left out")] = None,
    out: Path = Path("out/served_rate.json"),
) -> None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            rates = measure(model, Path(folder), rounds)
    except (RuntimeError, MlxcelError) as error:
        Console(stderr=True).print(f"nothing was measured: {error}", markup=False)
        leave(1)
    bars = check_bars(rates)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(msgspec.json.format(msgspec.json.encode({"rates": rates, "bars": bars})))
    show(rates, bars)
    leave(0 if all(bar.is_met for bar in bars) else 1)


def measure(model: Path | None, folder: Path, rounds: int) -> list[Rate]:
    """Every subject at every number of clients. `folder` gets the tiny model and the servers' logs."""
    model = model or make_tiny_llama(folder / "tiny-llama")
    with subjects(model, folder) as measures:
        return [rate for n_clients in SERVED_BARS for rate in run_rounds(measures, n_clients, rounds)]


@contextmanager
def subjects(model: Path, logs: Path) -> Iterator[Mapping[str, Measure]]:
    """Both servers and the bare engine, all up; idle, they cost nothing worth naming."""
    commands = {
        OURS: [sys.executable, "-m", "mlxcel", "serve", str(model)],
        THEIRS: [
            *[sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--host", "127.0.0.1"],
            *["--decode-concurrency", "32", "--prompt-concurrency", "8", "--temp", "0"],
        ],
    }
    with ExitStack() as stack:
        urls = {
            name: stack.enter_context(serve(command, log=logs / f"{name}.log")) for name, command in commands.items()
        }
        engine = stack.enter_context(bare_engine(model))
        yield {name: served(url) for name, url in urls.items()} | {BARE: bare(engine)}


def served(url: str) -> Measure:
    return lambda n_clients, seed: ask(url, n_clients=n_clients, seed=seed)


def bare(engine: BareEngine) -> Measure:
    return lambda n_clients, seed: engine.tokens_per_s(
        prompts_of(n_clients=n_clients, n_requests=N_REQUESTS, n_words=PROMPT_WORDS, seed=seed),
        max_tokens=MAX_TOKENS,
    )


def ask(url: str, *, n_clients: int, seed: int) -> LoadReport:
    """One load run, whole or not at all: a rate with failures or shorter texts in it compares with nothing."""
    report = run_load(
        LoadSettings(
            url=url,
            n_clients=n_clients,
            n_requests=N_REQUESTS,
            prompt_words=PROMPT_WORDS,
            max_tokens=MAX_TOKENS,
            seed=seed,
            total_timeout_s=300,
        )
    )
    if not report.is_clean:
        raise RuntimeError(f"{url} failed under {n_clients} clients: {report.failures}")
    if report.completion_tokens != n_clients * N_REQUESTS * MAX_TOKENS or report.tokens_from != "usage":
        raise RuntimeError(f"{url}: {report.completion_tokens} tokens from {report.tokens_from}, ended early?")
    return report


def run_rounds(measures: Mapping[str, Measure], n_clients: int, rounds: int) -> list[Rate]:
    """Every subject once a round. Round 0 warms them up and is not counted."""
    rates = {name: Rate(name, n_clients, [], [], []) for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            result = measure(n_clients, 1000 * n_clients + number)
            if number:
                note(rates[name], result)
    return list(rates.values())


def note(rate: Rate, result: LoadReport | float) -> None:
    if isinstance(result, float):
        rate.tokens_per_s.append(result)
        return
    rate.tokens_per_s.append(result.output_tokens_per_s)
    for times, percentiles in (
        (rate.ttft_p50_ms, result.ttft_ms),
        (rate.inter_token_p50_ms, result.inter_token_ms),
    ):
        if percentiles is not None:
            times.append(percentiles.p50)


def check_bars(rates: list[Rate]) -> list[Bar]:
    medians = {(rate.subject, rate.n_clients): statistics.median(rate.tokens_per_s) for rate in rates}

    def bars(name: str, other: str, least: Mapping[int, float]) -> Iterator[Bar]:
        for n_clients, ratio in least.items():
            yield Bar(name, n_clients, medians[OURS, n_clients] / medians[other, n_clients], ratio)

    return [
        *bars(f"{OURS} / {THEIRS}", THEIRS, SERVED_BARS),
        *bars(f"{OURS} / {BARE}", BARE, BARE_BARS),
    ]


def show(rates: list[Rate], bars: list[Bar]) -> None:
    table = Table("clients", "", "tok/s", "lowest", "highest", "TTFT ms", "inter-token ms", box=None)
    for rate in rates:
        times = (f"{statistics.median(t):.1f}" if t else "-" for t in (rate.ttft_p50_ms, rate.inter_token_p50_ms))
        rates_shown = (statistics.median(rate.tokens_per_s), min(rate.tokens_per_s), max(rate.tokens_per_s))
        table.add_row(str(rate.n_clients), rate.subject, *(f"{value:.0f}" for value in rates_shown), *times)
    console = Console()
    console.print(table)
    for bar in bars:
        verdict = "met" if bar.is_met else "MISSED"
        console.print(f"{bar.name} at {bar.n_clients} clients: {bar.ratio:.2f}, bar {bar.least:.2f}: {verdict}")


if __name__ == "__main__":
    typer.run(main)
