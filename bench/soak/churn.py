"""Many requests at once, of which a tenth leave at random points: the others' texts, the books and the memory after."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.soak.client import Client

PATH = "/v1/completions"
SHARE_LEAVING = 0.1
IDLE_POLLS = 5000
BOOKS = (
    "slots_used",
    "queue_depth",
    "prefilling",
    "decoding",
    "kv_booked_bytes",
    "kv_held_bytes",
    "failed_steps_total",
)
"""What must be zero again."""
_WORDS = "the of and to in is that for it with as was on be at by this had not are but from or have an".split()

Body = dict[str, Any]


class Churned(NamedTuple):
    n_answered: int
    n_left: int
    wrong: list[str]
    """What came in place of the text that the request has alone."""


def jobs_of(n_jobs: int, *, seed: int) -> list[Body]:
    """Greedy completions of every length, some of which begin alike."""
    draw = random.Random(seed)
    common = " ".join(draw.choices(_WORDS, k=60))
    return [
        {
            "prompt": " ".join(
                [draw.choice([common, "Once"]), *draw.choices(_WORDS, k=draw.choice([1, 8, 40, 120, 300]))]
            ),
            "max_tokens": draw.choice([1, 4, 16, 48]),
            "temperature": 0,
            "ignore_eos": True,
        }
        for _ in range(n_jobs)
    ]


async def texts_alone(url: str, jobs: Sequence[Body]) -> list[str]:
    """Each by itself."""
    client = Client(url)
    replies = [await client.post(PATH, job) for job in jobs]
    client.close()
    return [reply.json["choices"][0]["text"] for reply in replies]


async def churn(
    url: str, jobs: Sequence[Body], expected: Sequence[str], *, n_requests: int, n_at_once: int, seed: int
) -> Churned:
    """`n_requests` of the jobs, drawn at random, `n_at_once` at a time."""
    draw = random.Random(seed)
    waiting = [(draw.randrange(len(jobs)), draw.random() < SHARE_LEAVING) for _ in range(n_requests)]
    n_left = sum(is_leaving for _, is_leaving in waiting)
    wrong: list[str] = []

    async def ask_on() -> None:
        client = Client(url)
        while waiting:
            index, is_leaving = waiting.pop()
            try:
                if is_leaving:
                    await _leave(client, jobs[index], draw)
                    continue
                reply = await client.post(PATH, jobs[index])
                text = reply.json["choices"][0]["text"] if reply.status == 200 else reply.body.decode()
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                text = repr(error)
            if text != expected[index]:
                wrong.append(f"{text!r} for {expected[index]!r}")
        client.close()

    await asyncio.gather(*(ask_on() for _ in range(n_at_once)))
    return Churned(n_requests - n_left, n_left, wrong)


async def _leave(client: Client, job: Body, draw: random.Random) -> None:
    """Right after the request, in the midst of a stream, or while a whole answer is being made."""
    body = {**job, "max_tokens": 200, "stream": draw.random() < 0.7}
    asked = client.leave(PATH, body, after_bytes=draw.choice([0, 1, 500, 3000, 20_000]))
    try:
        await asyncio.wait_for(asked, draw.uniform(0, 2))
    except asyncio.TimeoutError:
        client.close()


async def books(url: str) -> dict[str, float]:
    """The books once nothing is running; as they are if that takes too long."""
    client = Client(url)
    for _ in range(IDLE_POLLS):
        values = _values((await client.get("/metrics")).body.decode())
        if not any(values[name] for name in BOOKS[:-1]):
            break
    client.close()
    return values


def _values(page: str) -> dict[str, float]:
    lines = dict(line.split(" ")[:2] for line in page.splitlines() if line.startswith("mlxcel_") and "{" not in line)
    return {name: float(lines[f"mlxcel_{name}"]) for name in BOOKS}


def resident_bytes(pid: int) -> int:
    """A process's resident memory."""
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024
