"""Copies of a model folder that declare other tokens: JSON files are rewritten, everything else is linked.

The weights are never copied and the original is never changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command.errors import usage
from command.text_file import read_text_file

Fields = dict[str, Any]
Edit = Callable[[Fields], None]

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"


def copy_snapshot(model: Path, folder: Path) -> Path:
    """A fresh copy at `folder`: small text files as files, the rest as links to the originals."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for source in sorted(model.iterdir()):
        if source.suffix in (".json", ".jinja", ".txt", ".model") and source.is_file():
            shutil.copyfile(source, folder / source.name)
        else:
            (folder / source.name).symlink_to(source.resolve())
    return folder


def edit_json(folder: Path, name: str, edit: Edit) -> None:
    """Change one JSON file of a copy; made where it is missing."""
    path = folder / name
    fields = read_json(folder, name)
    edit(fields)
    path.write_text(json.dumps(fields, indent=2, ensure_ascii=False), encoding="utf-8")


def read_json(folder: Path, name: str) -> Fields:
    """A model's settings; none where the file is missing. Errors: usage for a file that is no JSON object."""
    path = folder / name
    if not path.exists():
        return {}
    try:
        fields = json.loads(read_text_file(path))
    except ValueError as error:
        raise usage(f"{path} is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise usage(f"{path} is no JSON object")
    return fields


# Places where a list of end tokens may stand.


def _with_list(fields: Fields, ids: list[int]) -> None:
    declared = fields.get("eos_token_id")
    own = declared if isinstance(declared, list) else [declared] if declared is not None else []
    fields["eos_token_id"] = [*own, *(token for token in ids if token not in own)]


def declare_eos(folder: Path, place: str, ids: list[int], names: list[str]) -> None:
    """Declare `ids` as end tokens of the copy in one place, beside what it declares there.

    place: generation_config, config, nested config (all of them take the list) or tokenizer (takes one: the
    first; `names` are the tokens as tokenizer.json spells them).
    """
    if place == "generation_config":
        edit_json(folder, GENERATION_CONFIG, lambda fields: _with_list(fields, ids))
    elif place == "config":
        edit_json(folder, CONFIG, lambda fields: _with_list(fields, ids))
    elif place == "nested config":
        edit_json(folder, CONFIG, lambda fields: _with_list(fields.setdefault("text_config", {}), ids))
    else:
        edit_json(folder, TOKENIZER_CONFIG, lambda fields: fields.update(eos_token=names[0]))
        if (folder / "special_tokens_map.json").exists():
            edit_json(folder, "special_tokens_map.json", lambda fields: fields.update(eos_token=names[0]))


PLACES = ("generation_config", "config", "nested config", "tokenizer")


# Who writes the token that begins a text.


def set_bos(folder: Path, *, token: str, adds: bool, templates: bool) -> None:
    """Make the copy's tokenizer add `token` before a text or not, and its template begin with it or not."""
    tokenizer = read_json(folder, TOKENIZER)
    ids = {entry["content"]: entry["id"] for entry in tokenizer["added_tokens"]}
    plain = _without_templates(tokenizer.get("post_processor"))
    if adds:
        begin = {"SpecialToken": {"id": token, "type_id": 0}}
        processor = {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]}},
        }
        plain.append(processor)
    made = {"type": "Sequence", "processors": plain} if plain else None
    edit_json(folder, TOKENIZER, lambda fields: fields.update(post_processor=made))
    config = {"bos_token": token, "add_bos_token": adds}
    edit_json(folder, TOKENIZER_CONFIG, lambda fields: fields.update(config))
    template = chat_template(folder)
    if template is not None:
        body = template.removeprefix("{{ bos_token }}").removeprefix("{{bos_token}}").removeprefix("{{- bos_token }}")
        _set_template(folder, ("{{ bos_token }}" if templates else "") + body)


def chat_template(folder: Path) -> str | None:
    """The snapshot's template, where it is one text."""
    if (folder / TEMPLATE).exists():
        return read_text_file(folder / TEMPLATE)
    template = read_json(folder, TOKENIZER_CONFIG).get("chat_template")
    return template if isinstance(template, str) else None


def _set_template(folder: Path, text: str) -> None:
    if (folder / TEMPLATE).exists():
        (folder / TEMPLATE).write_text(text, encoding="utf-8")
    else:
        edit_json(folder, TOKENIZER_CONFIG, lambda fields: fields.update(chat_template=text))


def _without_templates(processor: Fields | None) -> list[Fields]:
    """The post-processors other than those that add tokens."""
    if not processor:
        return []
    if processor["type"] == "Sequence":
        return [part for inner in processor["processors"] for part in _without_templates(inner)]
    return [] if processor["type"] == "TemplateProcessing" else [processor]


def begin_token(folder: Path, eos_names: list[str]) -> str | None:
    """A special token that can stand at the beginning: the snapshot's own, else one that ends nothing."""
    own = read_json(folder, TOKENIZER_CONFIG).get("bos_token")
    name = own.get("content") if isinstance(own, dict) else own
    if name:
        return str(name)
    special = [token["content"] for token in read_json(folder, TOKENIZER).get("added_tokens", []) if token["special"]]
    return next((str(token) for token in special if token not in eos_names), None)
