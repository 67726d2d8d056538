"""POST /v1/completions: what a client may send. Source: OpenAI's API reference, completions."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from mlxcel.api.wire.ranges import MOST_CHOICES, Count, NChoices, TokenId
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.errors import InputError


class CompletionFields(GenerationFields, kw_only=True):
    """POST /v1/completions. `prompt` is a text, several, one's token ids, or those of several."""

    default_tokens: ClassVar[int | None] = 16
    prompt_field: ClassVar[str] = "prompt"

    prompt: str | list[str | TokenId | list[TokenId]]
    max_tokens: Count | None = None
    n: NChoices | None = None
    best_of: NChoices | None = None
    echo: bool | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=5)] | None = None

    def check(self) -> None:
        super().check()
        if self.best_of not in (None, self.n_choices):
            raise InputError(
                f"best_of = {self.best_of}: all {self.n_choices} answers that are made are given, and none is chosen; "
                "nothing was done. Leave the field out",
                param="best_of",
                code="unsupported_value",
            )
        if self.max_tokens == 0 and not self.echo:
            raise InputError("max_tokens = 0 is only for echo: true; nothing was done", param="max_tokens")
        n_choices = len(self.prompts) * self.n_choices
        if n_choices > MOST_CHOICES:
            raise InputError(
                f"{len(self.prompts)} prompts with {self.n_choices} answers each are {n_choices} choices, and at most "
                f"{MOST_CHOICES} are made at once; nothing was done. Send fewer prompts in one request",
                param="prompt",
            )

    @property
    def prompts(self) -> dict[str, str | list[int]]:
        """Each prompt, as text or as token ids, by its path.

        Errors: InputError for a list that is empty or mixed.
        """
        if isinstance(self.prompt, str):
            return {"prompt": self.prompt}
        ids = [item for item in self.prompt if isinstance(item, int)]
        several = [item for item in self.prompt if not isinstance(item, int)]
        if not self.prompt or (ids and several) or len({type(item) for item in several}) > 1:
            raise InputError(
                "prompt is a list that is empty or mixed; nothing was done. Send texts, token ids, or lists of "
                "token ids",
                param="prompt",
            )
        if [] in several:
            path = f"prompt[{several.index([])}]"
            raise InputError(f"{path} is a list without token ids; nothing was done", param=path)
        return {"prompt": ids} if ids else {f"prompt[{index}]": item for index, item in enumerate(several)}

    @property
    def longest_text(self) -> tuple[str, str]:
        """The path of the longest prompt that is text, and the text; empty where there is none."""
        texts = ((path, prompt) for path, prompt in self.prompts.items() if isinstance(prompt, str))
        return max(texts, key=lambda one: len(one[1]), default=("prompt", ""))

    @property
    def n_choices(self) -> int:
        return self.n or 1

    @property
    def n_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def n_prompt_logprobs(self) -> int | None:
        return self.logprobs if self.echo else None
