"""A load report for people. The only part of this room that needs rich."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mlxcel.load.report import LoadReport, Percentiles

_COUNTED_FROM = {
    "usage": "as the server counts them",
    "chunks": "frames with text, since the server reports no usage",
    "both": "as the server counts them, or frames with text where it reports no usage",
}


def render(report: LoadReport) -> Group:
    """Rates, a table of times, what went wrong."""
    prompt = f"{report.prompt_words} words"
    if report.prompt_tokens_mean is not None:
        prompt += f" ({report.prompt_tokens_mean:.0f} tokens)"
    times = Table(box=None, pad_edge=False)
    times.add_column("ms")
    for share in ("p50", "p95", "p99"):
        times.add_column(share, justify="right")
    for name, values in (
        ("time to first token", report.ttft_ms),
        ("between tokens", report.inter_token_ms),
        ("end to end", report.end_to_end_ms),
    ):
        times.add_row(name, *_cells(values))
    reasons = ", ".join(f"{reason} {count}" for reason, count in report.finish_reasons.items())
    lines = [
        f"{report.url} · {report.endpoint} · {report.n_clients} clients",
        f"prompts of {prompt}, up to {report.max_tokens} new tokens",
        f"{report.n_answered} of {report.n_requests} requests answered in {report.wall_s:.2f} s  {reasons}",
        f"{report.completion_tokens} tokens ({_COUNTED_FROM[report.tokens_from]})",
        f"{report.output_tokens_per_s:.1f} tok/s, {report.requests_per_s:.2f} requests/s",
    ]
    below = [Text(note, style="yellow") for note in report.notes]
    below += [Text(f"{failed.count} x {failed.kind}: {failed.example}", style="red") for failed in report.failures]
    return Group(*map(Text, lines), times, *below)


def _cells(values: Percentiles | None) -> list[str]:
    return ["-"] * 3 if values is None else [f"{value:.1f}" for value in (values.p50, values.p95, values.p99)]
