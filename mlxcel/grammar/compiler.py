"""Grammar text to constraints, for one model's vocabulary.

Owner: the tokenizer's thread, since a large grammar takes a moment. llguidance is optional and imported when a
compiler is made.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from mlxcel.errors import InputError, reason_of
from mlxcel.grammar.refusal import cause_of
from mlxcel.grammar.schema import LARGEST_GRAMMAR_BYTES
from mlxcel.grammar.special import SpecialTokens

if TYPE_CHECKING:
    from mlxcel.core import Constraint
    from mlxcel.grammar.matcher import MatcherConstraint

MOST_KEPT = 64
"""Grammars that stay compiled: an agent sends the same tools with every request."""


class Grammars(Protocol):
    """What makes constraints for a model."""

    n_vocabulary: int
    eos_ids: frozenset[int]

    def literal(self, text: str) -> str: ...
    def constraint(self, grammar: str, *, param: str) -> Constraint: ...


class NoGrammars:
    """Stands where no grammar can be followed, and says why."""

    n_vocabulary = 0
    eos_ids: frozenset[int] = frozenset()

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def literal(self, text: str) -> str:
        return json.dumps(text)

    def constraint(self, grammar: str, *, param: str) -> NoReturn:  # noqa: ARG002 - none is followed
        """Errors: InputError, always."""
        raise InputError(
            f"{param} needs grammars, and {self.reason}; nothing was done", param=param, code="unsupported_value"
        )


def make_grammars(tokenizer_json: Callable[[], str], *, n_vocabulary: int, eos_ids: frozenset[int]) -> Grammars:
    """A compiler where llguidance is installed and reads this tokenizer, else NoGrammars."""
    try:
        return GrammarCompiler(tokenizer_json(), n_vocabulary=n_vocabulary, eos_ids=eos_ids)
    except ImportError:
        return NoGrammars("llguidance is not installed here. Install mlxcel with its grammar extra: 'mlxcel[grammar]'")
    except ValueError as error:
        return NoGrammars(f"llguidance cannot read this model's tokenizer: {reason_of(error)}")


class GrammarCompiler:
    """Compiles grammars for a vocabulary.

    `tokenizer_json` is the text of a Hugging Face tokenizer.json; `n_vocabulary` the width of the logits, V;
    `eos_ids` end an answer where its grammar allows it. Making one takes about a second for a large vocabulary,
    and holds the interpreter meanwhile.
    Errors: ImportError where llguidance is not installed, ValueError for a tokenizer that it cannot read.
    """

    def __init__(self, tokenizer_json: str, *, n_vocabulary: int, eos_ids: frozenset[int]) -> None:
        from llguidance import LLMatcher, LLParserLimits, LLTokenizer

        special = SpecialTokens(tokenizer_json, eos_ids)
        self.n_vocabulary = n_vocabulary
        self.eos_ids = eos_ids
        self.literal = special.literal
        self._tokenizer = LLTokenizer(
            special.hidden_json, n_vocab=max(n_vocabulary, special.n_declared), eos_token=sorted(eos_ids) or None
        )
        self._make_matcher = LLMatcher
        self._limits = LLParserLimits(verbose_errors=False)
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def constraint(self, grammar: str, *, param: str) -> MatcherConstraint:
        """A constraint at the beginning of this grammar.

        Errors: InputError naming `param` for a grammar that cannot be compiled within llguidance's limits.
        """
        from mlxcel.grammar.matcher import MatcherConstraint

        matcher = self._kept.get(grammar)
        if matcher is None:
            matcher = self._kept[grammar] = self._compiled(grammar, param)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(grammar)
        return MatcherConstraint(
            matcher.deep_copy(),
            n_words=-(-self._tokenizer.vocab_size // 32),
            n_vocabulary=self.n_vocabulary,
            param=param,
        )

    def _compiled(self, grammar: str, param: str) -> Any:
        if len(grammar) > LARGEST_GRAMMAR_BYTES:
            raise InputError(
                f"the schemas in {param} are {len(grammar)} bytes in all, and at most {LARGEST_GRAMMAR_BYTES} are "
                "taken; nothing was done. Send fewer or smaller ones",
                param=param,
            )
        matcher = self._make_matcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # finds what the first step would find
        if matcher.is_error():
            raise InputError(
                f"{param} cannot be used: {cause_of(matcher.get_error())}; nothing was done",
                param=param,
                code="invalid_schema",
            )
        return matcher
