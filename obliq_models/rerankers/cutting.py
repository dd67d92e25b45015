"""Documents cut to a token limit before a language model reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

CHARACTERS_PER_TOKEN = 4
"""The usual rule of thumb for English prose; stated wherever it is used in place of a tokenizer."""
MARK = "…"


@dataclass(frozen=True)
class Cut:
    """Cuts texts.

    Args:
        tokens: The longest text in tokens; what is cut ends in an ellipsis.
        tokenizer: Name or folder of the tokenizer that counts; empty for four characters to a token.
    """

    tokens: int = 1024
    tokenizer: str = ""

    def __call__(self, text: str) -> str:
        """Return the text, or its beginning."""
        end = self._end(text)
        return text if end >= len(text) else text[:end].rstrip() + MARK

    def counts(self, texts: Iterable[str]) -> Counter[str]:
        """Return how many of these texts are cut, and how many characters are lost."""
        lost = [len(text) - end for text in texts if (end := self._end(text)) < len(text)]
        return Counter({"documents cut": len(lost), "characters cut from documents": sum(lost)}) if lost else Counter()

    def settings(self) -> dict[str, Any]:
        """Return the limit and what counts it."""
        counted = self.tokenizer or f"{CHARACTERS_PER_TOKEN} characters to a token"
        return {"document_tokens": self.tokens, "tokens_by": counted}

    def _end(self, text: str) -> int:
        if not self.tokenizer or len(text) <= self.tokens:  # a token holds at least one character
            return min(len(text), self.tokens * CHARACTERS_PER_TOKEN)
        found = _tokenizer(self.tokenizer)(text, add_special_tokens=False, return_offsets_mapping=True)
        places = found["offset_mapping"]
        return len(text) if len(places) <= self.tokens else int(places[self.tokens - 1][1])


@cache
def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    library: Any = AutoTokenizer
    try:
        tokenizer = library.from_pretrained(name, use_fast=True)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot load the tokenizer {name!r}: {str(error).splitlines()[0]}") from error
    if not tokenizer.is_fast:
        raise UserError(f"the tokenizer {name!r} does not say where its tokens stand: name one with a tokenizer.json")
    return tokenizer
