"""What a model writes around its thinking and its calls, as mlx_lm knows it, and the reading of its calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from mlxcel.text.calls import CallForm, ParsedCall, Parser
from mlxcel.text.segments import Markers

_JSON_PARSER = "mlx_lm.tool_parsers.json_tools"
"""Its calls are JSON between markers: a grammar can write them as the model itself would."""


@dataclass(frozen=True)
class Dialect:
    """One model's way of thinking and calling.

    `knows_tools`: its chat template shows tools to the model. `call_form` is how a grammar writes calls for it.
    """

    markers: Markers
    think_start_ids: tuple[int, ...]
    think_end_ids: tuple[int, ...]
    knows_tools: bool
    call_form: CallForm
    parse_call: Callable[[str, Any], Any] | None

    @property
    def thinks(self) -> bool:
        return bool(self.think_end_ids)

    def parser(self, tools: Sequence[dict[str, Any]]) -> Parser:
        """A parser of call segments; `tools` are those offered, in OpenAI's form. Where mlx_lm has none, reads none."""
        parse_call = self.parse_call

        def parse(text: str) -> list[ParsedCall] | None:
            if parse_call is None:
                return None
            try:
                parsed = parse_call(text, list(tools))
                return [_call(call) for call in (parsed if isinstance(parsed, list) else [parsed])]
            except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError):
                return None  # what mlx_lm's parsers raise for text that is no call

        return parse


def dialect_of(wrapper: Any) -> Dialect:
    """The dialect of an mlx_lm tokenizer."""
    think_start, think_end = wrapper.think_start, wrapper.think_end
    call_start, call_end = wrapper.tool_call_start, wrapper.tool_call_end

    def ids(marker: str | None) -> tuple[int, ...]:
        return () if marker is None else tuple(wrapper.encode(marker, add_special_tokens=False))

    form = CallForm()
    if getattr(wrapper.tool_parser, "__module__", None) == _JSON_PARSER:
        form = CallForm(f"{call_start}\n", f"\n{call_end}\n{call_start}\n", f"\n{call_end}")
    return Dialect(
        markers=Markers(
            think_start, think_end, call_start, call_end, noise=tuple(getattr(wrapper, "structural_markers", ()))
        ),
        think_start_ids=ids(think_start),
        think_end_ids=ids(think_end),
        knows_tools=_knows_tools(wrapper),
        call_form=form,
        parse_call=wrapper.tool_parser,
    )


def _call(parsed: dict[str, Any]) -> ParsedCall:
    name, arguments, call_id = parsed["name"], parsed.get("arguments"), parsed.get("id")
    if not isinstance(name, str):
        raise TypeError("the name of a function is text")
    return ParsedCall(name, {} if arguments is None else arguments, call_id if isinstance(call_id, str) else None)


def _knows_tools(wrapper: Any) -> bool:
    template = wrapper.chat_template
    if not isinstance(template, str):
        # Several templates by name, of which transformers takes "tool_use" for tools; or code of mlx_lm's own.
        return wrapper.tool_parser is not None if template is None else "tool_use" in template
    if not re.search(r"\btools\b", template):
        return False
    try:
        tokens = list(jinja2.Environment().lex(template))
    except jinja2.TemplateSyntaxError:
        return False
    return any(kind == "name" and value == "tools" for _, kind, value in tokens)
