"""The tiny Llama in plain numpy, with its tokenizer: one sequence at a time, and nothing of mlx.

A second implementation that starts in half a second, for servers that tests break on purpose. Greedy text is
mlx_lm's, as far as float32 sums in another order leave the largest logit the largest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

Floats = npt.NDArray[np.float32]


class NumpyLlama:
    """The folder that `make_tiny_llama` writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = _json(folder / "config.json")
        self.weights: dict[str, Floats] = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer_config = _json(folder / "tokenizer_config.json")
        self.bos: str | None = self.tokenizer_config.get("bos_token")

    def encode(self, text: str) -> list[int]:
        adds = self.bos is None or not text.startswith(self.bos)
        return list(self.tokenizer.encode(text, add_special_tokens=adds).ids)

    def encode_chat(self, messages: Sequence[dict[str, Any]], *, adds_special_tokens: bool = False) -> list[int]:
        template = jinja2.Template(self.tokenizer_config["chat_template"])
        text = template.render(messages=messages, bos_token=self.bos, add_generation_prompt=True)
        return list(self.tokenizer.encode(text, add_special_tokens=adds_special_tokens).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """As mlx_lm's detokenizer: without the space that begins a text."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False)).removeprefix(" ")

    def eos_lists(self) -> dict[str, list[int]]:
        """Every list of end tokens that the folder declares, by place."""
        generation_config = _json(self.folder / "generation_config.json")
        nested = self.config.get("text_config", {})
        lists = {
            "generation_config": generation_config.get("eos_token_id"),
            "config": self.config.get("eos_token_id"),
            "nested config": nested.get("eos_token_id"),
            "tokenizer": self.tokenizer.token_to_id(self.tokenizer_config["eos_token"]),
        }
        return {place: ids if isinstance(ids, list) else [ids] for place, ids in lists.items() if ids is not None}


class NumpySequence:
    """One sequence: its keys and values [H, S, D] by layer. `step` takes tokens and gives the next one."""

    def __init__(self, model: NumpyLlama) -> None:
        self._model = model
        self._cached: list[tuple[Floats, Floats]] = []
        self.n_cached = 0

    def step(self, tokens: Sequence[int], *, shift: int = 0) -> int:
        """The most likely token after these. shift: how far off their positions are (0 is right)."""
        return int(self._logits(self._hidden(tokens, shift)[-1]).argmax())

    def logprobs(self, tokens: Sequence[int]) -> Floats:
        """Of every token after each of these. Shapes: [T, V]."""
        logits = self._logits(self._hidden(tokens, 0)).astype(np.float64)
        largest = logits.max(-1, keepdims=True)
        return np.asarray(logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True)), np.float32)

    def _logits(self, x: Floats) -> Floats:
        weights = self._model.weights
        return np.asarray(_norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T, np.float32)

    def _hidden(self, tokens: Sequence[int], shift: int) -> Floats:
        weights, config = self._model.weights, self._model.config
        x = weights["model.embed_tokens.weight"][list(tokens)]
        positions = np.arange(self.n_cached, self.n_cached + len(tokens)) + shift
        for layer in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}"
            x = x + self._attention(layer, _norm(x, weights[f"{prefix}.input_layernorm.weight"]), positions)
            h = _norm(x, weights[f"{prefix}.post_attention_layernorm.weight"])
            gate = h @ weights[f"{prefix}.mlp.gate_proj.weight"].T
            up = h @ weights[f"{prefix}.mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{prefix}.mlp.down_proj.weight"].T
        self.n_cached += len(tokens)
        return x

    def _attention(self, layer: int, x: Floats, positions: npt.NDArray[Any]) -> Floats:
        weights, config = self._model.weights, self._model.config
        size, n_heads, n_kv = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
        q, k, v = (
            (x @ weights[f"model.layers.{layer}.self_attn.{name}_proj.weight"].T)
            .reshape(len(x), -1, size)
            .swapaxes(0, 1)
            for name in "qkv"
        )
        q, k = _rotate(q, positions, config["rope_theta"]), _rotate(k, positions, config["rope_theta"])
        if layer < len(self._cached):
            k = np.concatenate([self._cached[layer][0], k], axis=1)
            v = np.concatenate([self._cached[layer][1], v], axis=1)
            self._cached[layer] = k, v
        else:
            self._cached.append((k, v))
        k, v = np.repeat(k, n_heads // n_kv, axis=0), np.repeat(v, n_heads // n_kv, axis=0)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(np.float32(size))
        n_new, n_all = scores.shape[1:]
        scores += np.triu(np.full((n_new, n_all), -np.inf, np.float32), n_all - n_new + 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        out = mixed.swapaxes(0, 1).reshape(n_new, -1)
        return np.asarray(out @ weights[f"model.layers.{layer}.self_attn.o_proj.weight"].T, np.float32)


def _norm(x: Floats, weight: Floats) -> Floats:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * weight, np.float32)


def _rotate(x: Floats, positions: npt.NDArray[Any], theta: float) -> Floats:
    """Half-split rotary embedding. Shapes: x [H, T, D]."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return values
