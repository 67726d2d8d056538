"""What is used of mlx_lm, which is imported here and nowhere else, and of transformers, which it imports.

Importing mlx_lm sets the process's limit of open files: down, where a server has raised it, and it fails where the
hard limit is lower than what it asks for. The limit is kept as it is. It also keeps transformers from giving advice on
stderr, and therefore comes first.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _limits_kept() -> Iterator[None]:
    """No limit of the process changes inside. Only for an import: it holds for every thread."""
    set_limit = resource.setrlimit
    resource.setrlimit = lambda *_: None
    try:
        yield
    finally:
        resource.setrlimit = set_limit


with _limits_kept():
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.tokenizer_utils import (
        BPEStreamingDetokenizer,
        NaiveStreamingDetokenizer,
        SPMStreamingDetokenizer,
    )
    from mlx_lm.utils import load_model, load_tokenizer
    from transformers import PreTrainedTokenizerBase

__all__ = [
    "BPEStreamingDetokenizer",
    "NaiveStreamingDetokenizer",
    "PreTrainedTokenizerBase",
    "SPMStreamingDetokenizer",
    "load_model",
    "load_tokenizer",
    "make_prompt_cache",
]
