"""A small byte-level BPE tokenizer trained on the licence's text: real merges, every byte covered.

It knows nothing of the model; `tests.support.tiny_llama` writes both into one folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END_OF_TEXT, TURN_START, TURN_END, BOS = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|bos|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END, BOS)  # ids 0, 1, 2, 3

CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

THINKING, CALLING = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")
TOOLS_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\n# Tools\n' }}"
    "{% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content }}"
    "{% for tool_call in message.tool_calls or [] %}"
    "{% if tool_call.function %}{% set tool_call = tool_call.function %}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + tool_call.name + \'", "arguments": \' }}'
    "{{ tool_call.arguments | tojson + '}\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}"
)
"""Qwen's way: tools in the first turn, calls as JSON between markers, thinking that the prompt begins."""


def write_tiny_tokenizer(
    folder: Path,
    *,
    n_vocabulary: int,
    adds_bos: bool,
    templates_bos: bool,
    chat_template: str = CHATML_TEMPLATE,
    markers: Sequence[str] = (),
) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    `adds_bos`: the tokenizer puts `<|bos|>` before every encoded text. `templates_bos`: the chat template
    starts with it. Both on is the case where a careless server doubles it.
    """
    tokenizer = train(n_vocabulary, markers)
    if adds_bos:
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{BOS} $A",
                    pair=f"{BOS} $A {BOS} $B",
                    special_tokens=[(BOS, SPECIAL_TOKENS.index(BOS))],
                ),
            ]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS if adds_bos or templates_bos else None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "add_bos_token": adds_bos,
        "clean_up_tokenization_spaces": False,
        "chat_template": ("{{ bos_token }}" if templates_bos else "") + chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def train(n_vocabulary: int, markers: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer itself: 4 special tokens and `markers`, 256 bytes, and merges up to exactly `n_vocabulary`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocabulary,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True) for token in (*SPECIAL_TOKENS, *markers)],
    )
    licence = Path(__file__).parents[2] / "LICENSE"
    tokenizer.train_from_iterator([licence.read_text(encoding="utf-8")], trainer)
    if tokenizer.get_vocab_size() != n_vocabulary:
        raise ValueError(f"the text yields {tokenizer.get_vocab_size()} tokens, not the {n_vocabulary} asked for")
    return tokenizer
