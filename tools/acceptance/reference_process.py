"""The reference itself: mlx_lm's greedy text, in a process of its own.

`python -m acceptance.reference_process MODEL` reads one JSON job a line from standard input and answers each
with one JSON line. Weights are loaded once, from MODEL; a job's `snapshot` names the folder whose tokenizer and
template are used (copies of MODEL that declare other tokens share its weights).
It knows nothing of servers. Source: mlx_lm.generate, of which `generate` here is the body with the tokens kept.
"""

from __future__ import annotations

import json
import os
import random
import sys
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.utils import load_config, load_tokenizer

Job = dict[str, Any]

WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work number night point home water room mother area "
    "money story fact month lot right study book eye job word business issue side kind head house service friend"
).split()
ENDS = "!?;:"
LONGEST_TOKEN = 32
N_TRIES = 8


class Reference:
    """One loaded model and the tokenizers of its snapshots."""

    def __init__(self, model: Path) -> None:
        self.model, tokenizer = load(str(model))[:2]
        self.base = model
        self._base_tokenizer = tokenizer

    @lru_cache  # noqa: B019 - one reference a process
    def tokenizer(self, snapshot: str) -> Any:
        folder = Path(snapshot)
        if folder == self.base:
            return self._base_tokenizer
        return load_tokenizer(folder, eos_token_ids=load_config(folder).get("eos_token_id"))

    def ids(self, job: Job) -> list[int]:
        """The prompt's token ids, as mlx_lm.generate or apply_chat_template make them."""
        tokenizer = self.tokenizer(job["snapshot"])
        if job["is_chat"]:
            messages = [{"role": "user", "content": job["text"]}]
            given = {"tools": job["tools"]} if job.get("tools") else {}
            return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, **given))
        bos = tokenizer.bos_token
        return list(tokenizer.encode(job["text"], add_special_tokens=bos is None or not job["text"].startswith(bos)))

    def describe(self, job: Job) -> Job:
        """What the matrices must know of a snapshot."""
        tokenizer = self.tokenizer(job["snapshot"])
        config = load_config(Path(job["snapshot"]))
        texts = [config, *(config[key] for key in ("text_config", "llm_config") if key in config)]
        sizes = [text[key] for text in texts for key in ("max_position_embeddings",) if key in text]
        return {
            "versions": {"mlx": version("mlx"), "mlx-lm": version("mlx-lm"), "transformers": version("transformers")},
            "has_metal": bool(mx.metal.is_available()),
            "device": str(mx.default_device()),
            "has_chat_template": bool(tokenizer.has_chat_template),
            "has_tools": bool(getattr(tokenizer, "has_tool_calling", False)),
            "eos_ids": sorted(tokenizer.eos_token_ids),
            "bos_token": tokenizer.bos_token,
            "context_tokens": min(sizes) if sizes else None,
        }

    def prompt(self, job: Job) -> Job:
        """A text of exactly `n_tokens` ids (the whole conversation, for a chat), or null: there is none."""

        def count(text: str) -> int:
            return len(self.ids({**job, "text": text}))

        for attempt in range(N_TRIES):
            text = _text_of(job["n_tokens"], count, random.Random(f"{job['seed']} {job['n_tokens']} {attempt}"))
            if text is not None:
                return {"text": text}
        return {"text": None}

    def generate(self, job: Job) -> Job:
        """Greedy tokens, the text that each adds, and the end; `eos_ids` are obeyed beside the snapshot's own."""
        tokenizer = self.tokenizer(job["snapshot"])
        own = set(tokenizer.eos_token_ids)
        tokenizer.eos_token_ids = own | set(job["eos_ids"])
        try:
            answers = list(stream_generate(self.model, tokenizer, self.ids(job), max_tokens=job["max_tokens"]))
        finally:
            tokenizer.eos_token_ids = own
        made = {
            "tokens": [int(answer.token) for answer in answers],
            "pieces": [answer.text for answer in answers],
            "finish": answers[-1].finish_reason,
            "n_prompt_tokens": int(answers[0].prompt_tokens),
        }
        return {**made, "tool": self._tool_name(tokenizer, "".join(made["pieces"])) if job.get("tools") else None}

    def _tool_name(self, tokenizer: Any, text: str) -> str | None:
        """The tool that the text calls, as mlx_lm's parser for this model reads it."""
        if not getattr(tokenizer, "has_tool_calling", False) or tokenizer.tool_call_start not in text:
            return None
        call = text.split(tokenizer.tool_call_start, 1)[1]
        if tokenizer.tool_call_end:
            call = call.split(tokenizer.tool_call_end, 1)[0]
        try:
            parsed = tokenizer.tool_parser(call.strip(), None)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        found = parsed[0] if isinstance(parsed, list) else parsed
        return str(found["name"])

    def tokens(self, job: Job) -> Job:
        return {"ids": self.ids(job)}

    def token_names(self, job: Job) -> Job:
        return {"names": self.tokenizer(job["snapshot"]).convert_ids_to_tokens(job["ids"])}


def _text_of(n_tokens: int, count: Callable[[str], int], draw: random.Random) -> str | None:
    """As many words as fit, then marks one by one; null where a mark adds no token of its own."""
    words = [draw.choice(WORDS) for _ in range(n_tokens)]
    words[0] = words[0].capitalize()
    n_words = bisect_right(range(n_tokens + 1), n_tokens, key=lambda n: count(" ".join(words[:n])) if n else 0) - 1
    text = " ".join(words[:n_words]) or words[0][0]
    while count(text) < n_tokens and len(text) < LONGEST_TOKEN * n_tokens:
        text += draw.choice(ENDS)
    return text if count(text) == n_tokens else None


def main() -> None:
    # What libraries print must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reference = Reference(Path(sys.argv[1]))
    for line in sys.stdin:
        job = json.loads(line)
        answers.write(json.dumps(getattr(reference, job["op"])(job)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
