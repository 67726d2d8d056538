"""mlx_lm's own greedy text, made in a process of its own.

`python -m tests.support.reference` reads JSON from stdin: {"model": folder, "jobs": [{"prompt": text or ids,
"max_tokens": n}]}, and writes a JSON list of texts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def reference_texts(model: Path, prompts: Sequence[str | list[int]], max_tokens: int) -> list[str]:
    """What mlx_lm.generate answers to each prompt, greedily."""
    jobs = [{"prompt": prompt, "max_tokens": max_tokens} for prompt in prompts]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.reference"],
        input=json.dumps({"model": str(model), "jobs": jobs}),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    texts: list[str] = json.loads(done.stdout)
    return texts


def _main() -> None:
    from mlx_lm import generate, load

    asked: dict[str, Any] = json.load(sys.stdin)
    model, tokenizer = load(asked["model"])[:2]
    texts = [generate(model, tokenizer, prompt=job["prompt"], max_tokens=job["max_tokens"]) for job in asked["jobs"]]
    json.dump(texts, sys.stdout)


if __name__ == "__main__":
    _main()
