"""The texts of training rows as tokens: each text once for each role, as sentence-transformers would read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from obliq_models.encoders.base import Role
    from obliq_models.encoders.tokens import Padding
    from obliq_train.recipe import Base
    from obliq_train.rows import Passage

SLICE = 4_096
"""Texts whose tokens are Python lists at the same time."""


class Ragged(NamedTuple):
    """Rows of different lengths in one array.

    Args:
        values: All values, row after row.
        starts: Where each row begins, and at last where the last one ends; int64.
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[NDArray[Any]], dtype: type[np.signedinteger[Any]]) -> Ragged:
        """Join rows."""
        starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, dtype), *rows]).astype(dtype, copy=False), starts)

    def row(self, number: int) -> NDArray[Any]:
        """Return one row, as a view."""
        return self.values[self.starts[number] : self.starts[number + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return the length of each row."""
        return np.diff(self.starts)


def told(passage: Passage) -> str:
    """Return a text behind its instruction, with a space between them where the instruction ends without one."""
    space = " " if passage.instruction and not passage.instruction[-1].isspace() else ""
    return passage.instruction + space + passage.text


def check_length(key: str, limit: int, tokenizer: Any, *, pair: bool = False) -> None:
    """Refuse a length at which nothing of a text, or of a pair of texts, is read.

    Raises:
        UserError: If it is one.
    """
    special = tokenizer.num_special_tokens_to_add(pair=pair)
    least = special + 1 + pair
    if limit < least:
        raise UserError(
            f"{key} is {limit}, and the special tokens of {tokenizer.name_or_path} alone are {special}: "
            f"give {least} or more"
        )


class Reader:
    """Gives each distinct text of a role a number, and tokenises them.

    Args:
        base: Prefixes and lengths.
    """

    def __init__(self, base: Base) -> None:
        self._before = {"query": base.query_prefix, "document": base.document_prefix}
        self._limits = {"query": base.query_length, "document": base.document_length}
        self._numbers: dict[tuple[Role, str], int] = {}

    def place(self, passage: Passage, role: Role) -> int:
        """Return the number of a text."""
        return self._numbers.setdefault((role, told(passage)), len(self._numbers))

    def tokens(self, tokenizer: Any) -> tuple[Ragged, Padding, dict[str, int]]:
        """Return all texts' tokens in the order of their numbers, how to pad them, and what was cut."""
        from obliq_models.encoders.tokens import Padding, tokens_of

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or tokenizer.pad_token_id is None:
            raise UserError(
                f"{tokenizer.name_or_path}: training needs a tokenizer of the library tokenizers, with a padding token"
            )
        for role, limit in self._limits.items():
            check_length(f"model.{role}_length", limit, tokenizer)
        types = "token_type_ids" in tokenizer.model_input_names
        padding = Padding(tokenizer.pad_token_id, tokenizer.padding_side == "left", types, None)
        found: list[NDArray[np.int32]] = [np.empty(0, np.int32)] * len(self._numbers)
        counts: dict[str, int] = {}
        roles: tuple[Role, ...] = ("query", "document")
        for role in roles:
            own = [(number, text) for (its, text), number in self._numbers.items() if its == role]
            cut = lost = 0
            for first in range(0, len(own), SLICE):
                some = own[first : first + SLICE]
                texts = [self._before[role] + text for _, text in some]
                read = tokens_of(backend, texts, self._limits[role], tokenizer.truncation_side, padding)
                cut, lost = cut + read.cut, lost + read.lost
                for (number, _), ids in zip(some, read.ids, strict=True):
                    found[number] = np.array(ids, np.int32)
            blank = sum(not text.strip() for _, text in own)
            counts |= {f"{role} texts": len(own), f"truncated {role} texts": cut, f"lost {role} tokens": lost}
            counts |= {f"blank {role} texts": blank} if blank else {}
        return Ragged.of(found, np.int32), padding, counts
