"""What turns texts into vectors, and what it owes to those who keep them: a name for everything that matters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

Role = Literal["query", "document"]
ROLES: tuple[Role, Role] = ("query", "document")


@dataclass(frozen=True)
class Encoded:
    """Vectors, and what their making has cost.

    Args:
        vectors: float32, shape (texts, dims).
        tokens: Tokens that the model has read, prefix and special tokens included, padding not.
        cut: Texts that were longer than the model reads.
        lost: Tokens of those texts that it has not read.
    """

    vectors: NDArray[np.float32]
    tokens: int = 0
    cut: int = 0
    lost: int = 0


class Encoder(ABC):
    """Turns texts into vectors; a subclass writes `run` and `settings`.

    Texts that are alike get vectors that are alike, whatever stands beside them. An empty text is a text: with its
    prefix and special tokens it has a vector of its own.

    Args:
        name: Full name of the model.
        revision: What identifies its weights or code.
        dims: Length of one vector.
    """

    def __init__(self, name: str, revision: str | None, dims: int) -> None:
        self.name, self.revision, self.dims = name, revision, dims
        self.watch: Callable[[int], object] | None = None
        """Called while `run` is at work with how many more texts it has encoded, by a subclass that can tell."""

    @abstractmethod
    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:
        """Encode; `encode` looks at what comes out."""

    @abstractmethod
    def settings(self, role: Role) -> Mapping[str, Any]:
        """Return, as JSON values, whatever else than the name, the revision and the role can change a vector.

        Prefix, length, pooling, dtype, normalisation and so on; never where it runs or how many texts at a time.
        """

    def key(self, role: Role, instruction: str = "") -> dict[str, Any]:
        """Return everything but the text that can change a vector: the key under which vectors are kept."""
        return {
            "model": self.name,
            "revision": self.revision,
            "role": role,
            "instruction": instruction,
            **self.settings(role),
        }

    def encode(self, texts: Sequence[str], role: Role, instruction: str = "") -> Encoded:
        """Return one vector per text, in their order.

        Args:
            texts: The texts, without any prefix.
            role: Whether they are queries or documents.
            instruction: Put after the model's own prefix for the role, before the text: a task's prompt.

        Raises:
            UserError: If a text holds half of a surrogate pair, or the model returns another number of vectors, of
                another length than it declares, or one that is not finite.
        """
        if not len(texts):
            return Encoded(np.zeros((0, self.dims), np.float32))
        for text in texts:
            check_unicode(text, role)
        found = self.run(texts, role, instruction)
        vectors = np.asarray(found.vectors, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise UserError(f"{self.name} returned vectors of shape {vectors.shape} for {len(texts)} texts ({role})")
        if vectors.shape[1] != self.dims:
            raise UserError(f"{self.name} returned vectors of {vectors.shape[1]} dimensions, but declares {self.dims}")
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise UserError(f"{self.name} returned a vector that is not a number, for the {role} {texts[row][:60]!r}")
        return Encoded(vectors, found.tokens, found.cut, found.lost)


def check_unicode(text: str, role: Role) -> None:
    """Refuse what no tokenizer, no table and no server takes.

    Raises:
        UserError: If the text holds half of a surrogate pair.
    """
    if text.isascii():  # a flag of the string, so that nothing is copied
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - 30) : error.start + 30]
        raise UserError(f"a {role} holds half of a surrogate pair, {near!r}; replace or drop it") from error
