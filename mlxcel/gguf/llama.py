"""The llama architecture of GGUF: its sizes, its tensors' names in mlx-lm's Llama, and config.json.

Everything that mlx-lm's Llama could not compute the same way is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxcel.gguf.header import Header, Tensor
from mlxcel.gguf.metadata import Metadata
from mlxcel.gguf.refusal import USE_MLX_VERSION, refusal
from mlxcel.gguf.rope import Divisors, rope_config

# Keys that are read here or in rope.py, and keys that change nothing a model computes.
_READ = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    "vocab_size",
    "tensor_data_layout",
}


@dataclass(frozen=True)
class Llama:
    """The sizes of a model, checked against each other."""

    n_layers: int
    hidden_size: int
    feed_forward_size: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    context_tokens: int
    rms_norm_epsilon: float
    n_vocabulary: int
    is_tied: bool
    rope: dict[str, Any]

    def config(self, dtype: str) -> dict[str, Any]:
        """config.json as mlx-lm and transformers read it, but for token ids and quantization."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.feed_forward_size,
            "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_kv_heads,
            "head_dim": self.head_size,
            "max_position_embeddings": self.context_tokens,
            "rms_norm_eps": self.rms_norm_epsilon,
            "vocab_size": self.n_vocabulary,
            "tie_word_embeddings": self.is_tied,
            "attention_bias": False,
            "mlp_bias": False,
            "torch_dtype": dtype,
            **self.rope,
        }


@dataclass(frozen=True)
class Place:
    """Where a tensor goes: its module in mlx-lm's Llama, and the head size if its rows are to be un-permuted."""

    tensor: Tensor
    module: str
    permuted_head_size: int | None = None

    @property
    def is_vector(self) -> bool:
        return len(self.tensor.shape) == 1


def read_llama(header: Header, *, n_vocabulary: int, rope_divisors: Divisors | None) -> Llama:
    """Errors: ModelError for another architecture, missing keys, sizes that contradict each other, and
    settings that mlx-lm's Llama does not have."""
    metadata = header.metadata
    architecture = metadata.text("general.architecture")
    if architecture != "llama":
        raise refusal(
            f"holds a model of the architecture {architecture!r}; only 'llama' can be imported", USE_MLX_VERSION
        )
    _refuse_unknown_settings(metadata)
    hidden_size = metadata.count("llama.embedding_length")
    n_heads = metadata.count("llama.attention.head_count")
    n_kv_heads = _count_or(metadata, "llama.attention.head_count_kv", n_heads)
    if hidden_size % n_heads and "llama.attention.key_length" not in metadata:
        raise refusal(f"has {n_heads} heads for {hidden_size} channels")
    head_size = _count_or(metadata, "llama.attention.key_length", hidden_size // n_heads)
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if _count_or(metadata, key, head_size) != head_size:
            raise refusal(
                f"has {key!r} {metadata[key]} for heads of {head_size}, which mlx-lm's Llama cannot represent",
                USE_MLX_VERSION,
            )
    if n_heads % n_kv_heads or head_size % 2:
        raise refusal(f"has {n_heads} heads of size {head_size} for {n_kv_heads} key-value heads")
    if _count_or(metadata, "llama.vocab_size", n_vocabulary) != n_vocabulary:
        raise refusal(f"has 'llama.vocab_size' {metadata['llama.vocab_size']}, but {n_vocabulary} tokens")
    if rope_divisors is not None and rope_divisors.shape != (head_size // 2,):
        raise refusal(f"has rope_freqs.weight of length {len(rope_divisors)}, not {head_size // 2}")
    return Llama(
        n_layers=metadata.count("llama.block_count"),
        hidden_size=hidden_size,
        feed_forward_size=metadata.count("llama.feed_forward_length"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_size=head_size,
        context_tokens=metadata.count("llama.context_length"),
        rms_norm_epsilon=metadata.number("llama.attention.layer_norm_rms_epsilon"),
        n_vocabulary=n_vocabulary,
        is_tied="output.weight" not in header.tensors,
        rope=rope_config(metadata, rope_divisors),
    )


def place_tensors(header: Header, llama: Llama) -> list[Place]:
    """Every tensor's place, in the file's order. Errors: ModelError that names missing, extra and misshapen ones."""
    if llama.n_layers > len(header.tensors):
        raise refusal(f"claims {llama.n_layers} layers, but holds {len(header.tensors)} tensors")
    expected = _expected(llama)
    wrong = [f"{name} is missing" for name in expected if name not in header.tensors]
    places = []
    for name, tensor in header.tensors.items():
        if name == "rope_freqs.weight":
            continue  # it is in config.json, see rope.py
        if name not in expected:
            wrong.append(f"{name} is not known")
            continue
        shape, module, head_size = expected[name]
        if tensor.shape != shape:
            wrong.append(f"{name} has the shape {list(tensor.shape)}, not {list(shape)}")
        places.append(Place(tensor, module, head_size))
    if wrong:
        more = f", and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise refusal(f"has not a Llama's tensors: {'; '.join(wrong[:8])}{more}")
    return places


def _expected(llama: Llama) -> dict[str, tuple[tuple[int, ...], str, int | None]]:
    """GGUF name: shape, module in mlx-lm, and the head size where rows are permuted for rotary embedding."""
    hidden, feed_forward, head = llama.hidden_size, llama.feed_forward_size, llama.head_size
    q_size, kv_size = llama.n_heads * head, llama.n_kv_heads * head
    expected: dict[str, tuple[tuple[int, ...], str, int | None]] = {
        "token_embd.weight": ((llama.n_vocabulary, hidden), "model.embed_tokens", None),
        "output_norm.weight": ((hidden,), "model.norm", None),
    }
    if not llama.is_tied:
        expected["output.weight"] = ((llama.n_vocabulary, hidden), "lm_head", None)
    for layer in range(llama.n_layers):
        ours, theirs = f"model.layers.{layer}", f"blk.{layer}"
        expected |= {
            f"{theirs}.attn_norm.weight": ((hidden,), f"{ours}.input_layernorm", None),
            f"{theirs}.attn_q.weight": ((q_size, hidden), f"{ours}.self_attn.q_proj", head),
            f"{theirs}.attn_k.weight": ((kv_size, hidden), f"{ours}.self_attn.k_proj", head),
            f"{theirs}.attn_v.weight": ((kv_size, hidden), f"{ours}.self_attn.v_proj", None),
            f"{theirs}.attn_output.weight": ((hidden, q_size), f"{ours}.self_attn.o_proj", None),
            f"{theirs}.ffn_norm.weight": ((hidden,), f"{ours}.post_attention_layernorm", None),
            f"{theirs}.ffn_gate.weight": ((feed_forward, hidden), f"{ours}.mlp.gate_proj", None),
            f"{theirs}.ffn_up.weight": ((feed_forward, hidden), f"{ours}.mlp.up_proj", None),
            f"{theirs}.ffn_down.weight": ((hidden, feed_forward), f"{ours}.mlp.down_proj", None),
        }
    return expected


def _count_or(metadata: Metadata, key: str, default: int) -> int:
    return metadata.count(key) if key in metadata else default


def _refuse_unknown_settings(metadata: Metadata) -> None:
    unknown = []
    for key in metadata:
        if key.startswith("llama.") and key.removeprefix("llama.") not in _READ:
            value = metadata[key]
            if isinstance(value, (bool, int, float, str)) and not value:
                continue  # switched off
            unknown.append(f"{key} = {value if isinstance(value, (bool, int, float, str)) else 'a list'}")
    if unknown:
        raise refusal(f"has settings that mlx-lm's Llama cannot represent: {', '.join(unknown[:8])}", USE_MLX_VERSION)
