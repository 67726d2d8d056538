"""Which files of a repository make an MLX model: weights, settings, tokenizer and template; nothing that runs."""

from __future__ import annotations

from fnmatch import fnmatchcase

from mlxcel.errors import ModelError
from mlxcel.store.hub import HubFile, Snapshot

_WEIGHTS = "model*.safetensors"
_WANTED = ("*.json", _WEIGHTS, "*.jinja", "tokenizer.model", "*.tiktoken", "vocab.txt", "merges.txt")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "*.tiktoken")


def model_files(snapshot: Snapshot) -> tuple[HubFile, ...]:
    """The files to fetch, the small ones first.

    Errors: ModelError when the repository is no MLX model, or the hub does not say how to tell a file is whole.
    """
    files = sorted((file for file in snapshot.files if _is_wanted(file.name)), key=lambda file: file.n_bytes)
    names = [file.name for file in files]
    if not _has(names, "config.json"):
        raise _refusal(snapshot, "has no config.json")
    if not _has(names, _WEIGHTS):
        has_gguf = _has([file.name for file in snapshot.files], "*.gguf")
        hint = "; 'mlxcel import' takes a GGUF file of it" if has_gguf else ""
        raise _refusal(snapshot, f"has no {_WEIGHTS}{hint}")
    if not _has(names, *_TOKENIZERS):
        raise _refusal(snapshot, "has no tokenizer")
    for file in files:
        if file.n_bytes < 0 or not file.digest:
            raise _refusal(snapshot, f"comes without size or digest of {file.name}, so damage could not be told")
    return tuple(files)


def _is_wanted(name: str) -> bool:
    is_plain = "/" not in name and "\\" not in name and not name.startswith(".")
    return is_plain and _has([name], *_WANTED)


def _has(names: list[str], *patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _refusal(snapshot: Snapshot, reason: str) -> ModelError:
    return ModelError(
        f"{snapshot.repo} {reason}; nothing was fetched. Choose a repository in MLX's format", param="repo"
    )
