"""Text to token ids exactly as mlx_lm does it, and the way back through mlx_lm's detokenizers.

Owner: one thread at a time; the server gives it a worker thread of its own, since a tokenizer is not safe to
share.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from functools import cached_property
from typing import Any

import jinja2

from mlxcel.errors import InputError, ModelError, StateError, reason_of
from mlxcel.model.checkpoint import Checkpoint
from mlxcel.model.control import ControlTokens
from mlxcel.model.control import Message as Message
from mlxcel.model.dialect import dialect_of
from mlxcel.model.door import NaiveStreamingDetokenizer, PreTrainedTokenizerBase
from mlxcel.model.door import load_tokenizer as load_mlx_lm_tokenizer
from mlxcel.model.vocabulary import Vocabulary, read_vocabulary
from mlxcel.text.detokenize import Detokenizer
from mlxcel.text.window import WindowDetokenizer

_RESERVED = {"messages", *inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters} - {
    "documents",
    "kwargs",
}
"""Names that do not reach the template as its variables: they say how it is chosen, rendered and tokenised."""


class Tokenizer:
    """A model folder's tokenizer and chat template."""

    def __init__(self, wrapper: Any, eos_ids: frozenset[int]) -> None:
        self._wrapper = wrapper
        self.eos_ids = eos_ids
        # One that is copied for each sequence: building it maps the whole vocabulary.
        self._detokenizer = wrapper.detokenizer
        self._longest_token_bytes = _longest_token_bytes(wrapper)
        self.dialect = dialect_of(wrapper)
        marks = self.dialect.markers
        markup = (marks.think_start, marks.think_end, marks.call_start, marks.call_end)
        self._control = ControlTokens(_backend(wrapper), _template_source(wrapper), markup=markup)

    def warm_up(self) -> None:
        """Make now what the first conversation that spells a control token would hold up the others for."""
        self._control.warm_up()

    def keep_eos_ids(self, n_vocabulary: int) -> list[str]:
        """Leave out end ids that no token of the model has; says so in a warning where there are some.

        Errors: ModelError when every token would be an end.
        """
        kept = frozenset(token for token in self.eos_ids if 0 <= token < n_vocabulary)
        if len(kept) == n_vocabulary:
            raise ModelError(
                f"the checkpoint says that each of its {n_vocabulary} tokens ends an answer; nothing is served. Mend "
                "eos_token_id in config.json or generation_config.json",
                param="model",
            )
        strange = self.eos_ids - kept
        self.eos_ids = kept
        if not strange:
            return []
        warning = (
            f"{len(strange)} of the checkpoint's eos_token_id, {min(strange)} among them, are no tokens of this model, "
            f"whose ids are 0 to {n_vocabulary - 1}; they are left out"
        )
        return [warning]

    def template_faults(self) -> list[str]:
        """Why no chat can be answered: a chat template that cannot be read. None where there is no template."""
        try:
            if self.has_chat_template:
                self._render([{"role": "user", "content": "a"}], {})
        except StateError as error:
            return [error.message]
        except InputError:
            pass  # it may want other messages
        return []

    @property
    def has_chat_template(self) -> bool:
        return bool(self._wrapper.has_chat_template)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Each token's bytes: made when it is first asked for, since most requests do without."""
        return read_vocabulary(self._wrapper._tokenizer, type(self._detokenizer))

    def fewest_tokens(self, text: str) -> int:
        """A count that the text's token ids cannot be below, without tokenising it; 0 where none can be told."""
        if self._longest_token_bytes is None:
            return 0
        return len(text.encode()) // self._longest_token_bytes

    def encode(self, text: str, *, adds_special: bool = True, parses_control: bool = True) -> list[int]:
        """Token ids of a plain prompt: BOS once, where the tokenizer adds it and the text does not start so.

        `adds_special` False adds nothing; `parses_control` False makes data of what spells a control token.
        Errors: InputError for such text that cannot be kept apart.
        """
        bos = self._wrapper.bos_token
        ids: list[int]
        if parses_control or self._control.first_spelled([text]) is None:
            adds_special = adds_special and (bos is None or not text.startswith(bos))
            ids = self._wrapper.encode(text, add_special_tokens=adds_special)
            return ids
        data = self._control.encode_text(text)
        if data is None:
            raise _inseparable("the text", param="content")
        own = self._wrapper.encode("", add_special_tokens=adds_special)
        start = [token for token in own if token == self._wrapper.bos_token_id]
        return [*start, *data, *own[len(start) :]]

    def decode(self, tokens: SequenceOf[int]) -> str:
        """The text that tokens stand for, control tokens in it.

        Errors: InputError for an id that no token has.
        """
        n_tokens = len(self._wrapper._tokenizer)
        for index, token in enumerate(tokens):
            if not 0 <= token < n_tokens:
                raise InputError(
                    f"tokens[{index}] = {token} is no token of this model, whose ids are 0 to {n_tokens - 1}; nothing "
                    "was done",
                    param=f"tokens[{index}]",
                )
        text: str = self._wrapper.decode(list(tokens))
        return text

    def encode_chat(
        self,
        messages: SequenceOf[Message],
        template_kwargs: dict[str, Any],
        tools: SequenceOf[dict[str, Any]] = (),
        *,
        written: Callable[[], Mapping[str, Any]] = dict,
    ) -> list[int]:
        """Token ids of a conversation, up to where the assistant's answer begins, as mlx_lm makes them; but what the
        messages, tools and variables spell of control tokens is data.

        `template_kwargs` are variables of the template; `tools` are shown to the model, in OpenAI's form; `written`
        gives the JSON values that all this was made of, by the paths that name them in errors.
        Errors: InputError when the model has no template, or its template refuses the messages, or a variable is
        not one of the template but an option of rendering or tokenising, or data cannot be kept apart; StateError when
        the template cannot be read.
        """
        variables = self._variables(template_kwargs, tools)
        if self._control.first_spelled([*messages, variables]) is None:
            ids: list[int] = self._apply_template(messages, variables, tokenize=True)
            return ids
        data = self._control.encode_chat(messages, variables, self._render)
        if data is None:
            parts = written()
            spelled = self._control.first_spelled(list(parts.values()))
            path = None if spelled is None else list(parts)[spelled]
            raise _inseparable(path or "what the template is given", param=path)
        return data

    def render_chat(
        self,
        messages: SequenceOf[Message],
        template_kwargs: dict[str, Any],
        tools: SequenceOf[dict[str, Any]] = (),
    ) -> str:
        """The text of a conversation, up to where the assistant's answer begins.

        Errors: as `encode_chat`.
        """
        return self._render(messages, self._variables(template_kwargs, tools))

    def _variables(self, template_kwargs: dict[str, Any], tools: SequenceOf[dict[str, Any]]) -> dict[str, Any]:
        if not self.has_chat_template:
            raise InputError(
                "this model has no chat template; nothing was done. Use /v1/completions with a prompt",
                param="messages",
                code="no_chat_template",
            )
        if reserved := sorted(_RESERVED & template_kwargs.keys()):
            raise InputError(
                f"chat_template_kwargs.{reserved[0]} is no variable of a chat template; nothing was done. Leave it out",
                param=f"chat_template_kwargs.{reserved[0]}",
            )
        return {**template_kwargs, "tools": list(tools)} if tools else template_kwargs

    def _render(self, messages: SequenceOf[Message], variables: Mapping[str, Any]) -> str:
        text: str = self._apply_template(messages, variables, tokenize=False)
        return text

    def _apply_template(self, messages: SequenceOf[Message], variables: Mapping[str, Any], *, tokenize: bool) -> Any:
        try:
            return self._wrapper.apply_chat_template(
                [dict(message) for message in messages], add_generation_prompt=True, tokenize=tokenize, **variables
            )
        except jinja2.TemplateSyntaxError as error:
            raise StateError(
                f"the chat template of the model that is served is faulty: {reason_of(error)} (line {error.lineno}); "
                "nothing was done, and no chat can be. Mend the template in the model's folder and start the "
                "server again; completions are served",
                code="chat_template_faulty",
            ) from error
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"the model's chat template refused the messages: {reason_of(error)}; nothing was done",
                param="messages",
                code="template_refused",
            ) from error

    def ends_with(self, prompt: SequenceOf[int], marker: str | None) -> bool:
        """Whether a marker is the last of a prompt, space aside."""
        # No marker has more tokens than characters, and templates write a line end or two after it.
        return marker is not None and self._wrapper.decode(list(prompt[-len(marker) - 4 :])).rstrip().endswith(marker)

    def to_json(self) -> str:
        """The text of a tokenizer.json, without padding or truncation.

        Errors: ValueError where the tokenizer is no Hugging Face tokenizer.
        """
        backend = _backend(self._wrapper)
        if backend is None:
            raise ValueError("its tokenizer is no Hugging Face tokenizer")
        backend = copy.copy(backend)
        backend.no_padding()
        backend.no_truncation()
        text: str = backend.to_str()
        return text

    def detokenizer(self) -> Detokenizer:
        """A fresh one for one sequence."""
        if isinstance(self._detokenizer, NaiveStreamingDetokenizer):
            return WindowDetokenizer(self._wrapper.decode)
        detokenizer: Detokenizer = copy.copy(self._detokenizer)
        detokenizer.reset()
        return detokenizer


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Load a folder's tokenizer; `eos_ids` is the union of every list that the folder declares.

    Errors: ModelError when the folder holds no usable tokenizer.
    """
    try:
        wrapper = load_mlx_lm_tokenizer(
            checkpoint.folder, {"trust_remote_code": False}, eos_token_ids=sorted(checkpoint.eos_ids)
        )
    except Exception as error:
        raise ModelError(
            f"the tokenizer in {checkpoint.folder} cannot be loaded: {reason_of(error)}; nothing is served. Check "
            "that tokenizer.json and tokenizer_config.json are whole",
            param="model",
        ) from error
    # Where the files are missing, a transformers of 5.3 makes one up that knows its special tokens alone.
    if len(wrapper._tokenizer) <= len(set(wrapper._tokenizer.all_special_ids)):
        raise ModelError(
            f"the tokenizer in {checkpoint.folder} has no token that stands for text; nothing is served. Check that "
            "tokenizer.json and tokenizer_config.json are there and whole",
            param="model",
        )
    return Tokenizer(wrapper, eos_ids=checkpoint.eos_ids | _declared_eos_ids(wrapper))


def _longest_token_bytes(wrapper: Any) -> int | None:
    """The most bytes of text that one token stands for; None where text may shrink before it is split."""
    backend = _backend(wrapper)
    if backend is None or backend.normalizer is not None:
        return None
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None
    # A byte-level vocabulary writes each byte as one character, any other one writes at least one byte as one.
    return max(len(token.encode()) for token in backend.get_vocab(with_added_tokens=True))


def _backend(wrapper: Any) -> Any:
    """The Hugging Face tokenizer inside, None where there is none."""
    return getattr(wrapper._tokenizer, "backend_tokenizer", None)


def _template_source(wrapper: Any) -> str | None:
    template = wrapper.chat_template
    if isinstance(template, dict):
        return "\n".join(template.values())
    return template if isinstance(template, str) else None


def _inseparable(where: str, *, param: str | None) -> InputError:
    return InputError(
        f"{where} spells a control token of this model in a way that cannot be told from the control token itself; "
        "nothing was done. Leave that text out",
        param=param,
        code="control_token",
    )


def _declared_eos_ids(wrapper: Any) -> frozenset[int]:
    """The tokenizer's own; mlx_lm 0.31 leaves it out where the checkpoint has a list."""
    own = wrapper.eos_token_id
    return frozenset(wrapper.eos_token_ids) | (frozenset() if own is None else {own})
