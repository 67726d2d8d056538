"""GET /v1/responses/{id}/input_items: what a response was asked. Source: OpenAI's API reference, responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mlxcel.api.wire.response_requests import Item
from mlxcel.errors import InputError

MOST_ITEMS = 100
ITEMS = 20
"""Of a list that asks for no number."""

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}


def input_items(response_id: str, sent: str | Sequence[Item]) -> list[dict[str, Any]]:
    """A request's own input, each item with an id, as the API lists it."""
    items = [Item(role="user", content=sent)] if isinstance(sent, str) else sent
    return [_item(item, f"{_PREFIXES[item.type]}_{response_id}_in_{index}") for index, item in enumerate(items)]


def items_page(items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A part of the list, the last item first unless `order` is asc.

    Errors: InputError for an order, a limit or an item that is none.
    """
    order, limit, after = query.get("order", "desc"), query.get("limit", str(ITEMS)), query.get("after")
    if order not in ("asc", "desc"):
        raise InputError("order is none of asc, desc; nothing was done", param="order")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MOST_ITEMS):
        raise InputError(f"limit is no number from 1 to {MOST_ITEMS}; nothing was done", param="limit")
    ordered = list(items if order == "asc" else reversed(items))
    if after is not None:
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise InputError("after is the id of no item of this response; nothing was done", param="after")
        ordered = ordered[ids.index(after) + 1 :]
    shown = ordered[: int(limit)]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    has_more = len(shown) < len(ordered)
    return {"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": has_more}


def _item(item: Item, item_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(item)
    shown = {name: value for name, value in fields.items() if value is not None}
    if item.type == "message" and isinstance(item.content, str):
        is_answer = item.role == "assistant"
        part = {"type": "output_text", "annotations": []} if is_answer else {"type": "input_text"}
        shown["content"] = [{**part, "text": item.content}]
    if item.type == "reasoning":
        shown.setdefault("summary", [])
    return {**shown, "id": item_id, "status": "completed"}
