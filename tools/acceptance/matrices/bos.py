"""bos: the prompt's token ids are mlx_lm's, whoever writes the token that begins a text: once, or not at all.

Copies of the snapshot are told to add it or not, and to begin their template with it or not. Ids are compared
where the server has /tokenize; else the number of prompt tokens, and the text that follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..client import Client
from ..expected import Prompt
from ..server import Launch
from ..snapshot import TOKENIZER, begin_token, chat_template, copy_snapshot, set_bos
from ..verdict import Differs, require_text
from .matrix import Bench, Case, Check, Inputs, Matrix
from .prompts import as_chat, short_prompt

VARIANTS = (
    ("nobody writes it", False, False),
    ("the tokenizer adds it", True, False),
    ("the template writes it", False, True),
    ("both write it", True, True),
)
MAX_TOKENS = 12


def _check_of(snapshot: Path, begin: str | None) -> Check:
    async def check(bench: Bench) -> str:
        reference = bench.reference
        plain = short_prompt(reference, seed=800)
        prompts = {"a text": plain}
        if begin:
            prompts["a text that begins with it"] = Prompt(text=begin + plain.text, n_tokens=0)
        if reference.facts(snapshot).has_chat_template:
            prompts["a chat"] = as_chat(reference, plain)
        max_tokens = min(MAX_TOKENS, bench.settings.n_tokens)
        ids = {what: reference.ids(prompt, snapshot) for what, prompt in prompts.items()}
        expected = {what: reference.generate(p, max_tokens, snapshot=snapshot) for what, p in prompts.items()}
        n_compared = 0
        for what, prompt in prompts.items():
            served = None if prompt.is_chat else await _tokenize(bench.client, prompt.text)
            if served is not None and served != ids[what]:
                raise Differs(f"{what}: /tokenize gives {served[:8]}..., not {ids[what][:8]}...")
            n_compared += served is not None
            answer = await bench.client.ask(prompt, max_tokens)
            if answer.n_prompt_tokens not in (None, len(ids[what])):
                raise Differs(f"{what}: {answer.n_prompt_tokens} prompt tokens, not {len(ids[what])}")
            require_text(expected[what], answer.text, answer.finish, what=what)
        by = f"ids of {n_compared} by /tokenize" if n_compared else "no /tokenize: by the count of prompt tokens"
        return f"{', '.join(prompts)}; {by}, and by the text"

    return check


async def _tokenize(client: Client, text: str) -> list[int] | None:
    """The server's ids, in the two forms that servers have it in; None where it has neither."""
    for body in ({"prompt": text}, {"content": text, "add_special": True}):
        found = await client.post_json("/tokenize", body)
        if isinstance(found, dict) and isinstance(found.get("tokens"), list):
            return [token["id"] if isinstance(token, dict) else token for token in found["tokens"]]
    return None


def _why_not(model: Path, begin: str | None, *, templates: bool) -> str:
    """Why a copy cannot be told so; "" where it can."""
    if begin is None or not (model / TOKENIZER).exists():
        return f"the snapshot has no {TOKENIZER} with a special token to begin with"
    if templates and chat_template(model) is None:
        return "the snapshot has no chat template in one text"
    return ""


def _variant(inputs: Inputs, name: str, begin: str | None, *, adds: bool, templates: bool) -> Case:
    model = inputs.settings.model
    why_not = _why_not(model, begin, templates=templates)
    if why_not or begin is None:
        return Case(name, inputs.base, _check_of(model, begin), why_not)
    folder = copy_snapshot(model, inputs.scratch / f"bos-{name.replace(' ', '-')}")
    set_bos(folder, token=begin, adds=adds, templates=templates)
    return Case(name, Launch(folder), _check_of(folder, begin))


def _cases(inputs: Inputs) -> Iterable[Case]:
    facts = inputs.reference.facts()
    yield Case("the snapshot as it is", inputs.base, _check_of(inputs.settings.model, facts.bos_token))
    begin = begin_token(inputs.settings.model, inputs.reference.token_names(facts.eos_ids))
    for name, adds, templates in VARIANTS:
        yield _variant(inputs, name, begin, adds=adds, templates=templates)


MATRIX = Matrix(
    name="bos",
    shows="the prompt's token ids are mlx_lm's, with, without and with a templated BOS",
    needs="a command with {model}: it is started with copies of the snapshot",
    cases=_cases,
)
