"""What a load run measured: answers to one value with rates, percentiles and failures. Knows no socket."""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlxcel.load.answer import Answer
from mlxcel.load.settings import LoadSettings


@dataclass(frozen=True)
class Percentiles:
    """Milliseconds, interpolated between the neighbouring values."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Failures:
    """`kind` is 'HTTP 503', 'no connection', 'closed', 'timeout', ...; `example` is the first message."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """Rates and times are of answered requests alone; failed ones are counted in `failures` and nowhere else.

    `tokens_from`: 'usage' is the server's own count; 'chunks' counts frames with text, for a server that
    reports no usage; 'both' says that only some answers had it. Times run from the sending of a request:
    `ttft_ms` to the first chunk with text, `end_to_end_ms` to the end. `inter_token_ms` is the time from
    one chunk with text to the next. A list of no values has no percentiles: None.
    """

    url: str
    endpoint: str
    model: str | None
    n_clients: int
    n_requests: int
    max_tokens: int
    prompt_words: int
    seed: int
    wall_s: float
    n_answered: int
    n_failed: int
    prompt_tokens_mean: float | None
    completion_tokens: int
    tokens_from: Literal["usage", "chunks", "both"]
    output_tokens_per_s: float
    requests_per_s: float
    ttft_ms: Percentiles | None
    inter_token_ms: Percentiles | None
    end_to_end_ms: Percentiles | None
    finish_reasons: dict[str, int]
    failures: tuple[Failures, ...]
    notes: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return self.n_failed == 0


def summarise(
    settings: LoadSettings,
    answers: Sequence[Answer],
    *,
    wall_s: float,
    prompt_words: int,
    notes: Sequence[str],
) -> LoadReport:
    """Add the answers up. `wall_s` is the time from the first request's start to the last one's end."""
    whole = [answer for answer in answers if answer.failure is None]
    usages = [answer.usage for answer in whole if answer.usage is not None]
    n_tokens = sum(answer.usage.completion_tokens if answer.usage else answer.n_chunks for answer in whole)
    gaps_s: array[float] = array("d")
    for answer in whole:
        gaps_s.extend(answer.gaps_s)
    return LoadReport(
        url=settings.url,
        endpoint=settings.endpoint,
        model=settings.model,
        n_clients=settings.n_clients,
        n_requests=len(answers),
        max_tokens=settings.max_tokens,
        prompt_words=prompt_words,
        seed=settings.seed,
        wall_s=wall_s,
        n_answered=len(whole),
        n_failed=len(answers) - len(whole),
        prompt_tokens_mean=sum(usage.prompt_tokens for usage in usages) / len(usages) if usages else None,
        completion_tokens=n_tokens,
        tokens_from="usage" if len(usages) == len(whole) else "both" if usages else "chunks",
        output_tokens_per_s=n_tokens / wall_s if wall_s else 0.0,
        requests_per_s=len(whole) / wall_s if wall_s else 0.0,
        ttft_ms=_percentiles(a.first_chunk_s - a.sent_s for a in whole if a.first_chunk_s is not None),
        inter_token_ms=_percentiles(gaps_s),
        end_to_end_ms=_percentiles(answer.ended_s - answer.sent_s for answer in whole),
        finish_reasons=dict(Counter(answer.finish_reason or "none" for answer in whole)),
        failures=_count_failures(answers),
        notes=tuple(notes),
    )


def _count_failures(answers: Iterable[Answer]) -> tuple[Failures, ...]:
    failures = [answer.failure for answer in answers if answer.failure is not None]
    examples = {failure.kind: failure.message for failure in reversed(failures)}
    counts = Counter(failure.kind for failure in failures)
    return tuple(Failures(kind, count, examples[kind]) for kind, count in counts.most_common())


def _percentiles(times_s: Iterable[float]) -> Percentiles | None:
    ordered = sorted(times_s)
    if not ordered:
        return None
    return Percentiles(*(_percentile(ordered, share) * 1000 for share in (0.50, 0.95, 0.99)))


def _percentile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
