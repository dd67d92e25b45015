"""The structure of the oracle's tournament: batches, who is promoted, and in what order the rest follows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Shape:
    """How a pool is divided.

    Args:
        batch: Documents in one call.
        promote: How many of a batch go on to the next level.
        whole: The largest pool that one call ranks as a whole.
    """

    batch: int = 20
    promote: int = 4
    whole: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.promote < self.batch or self.whole < max(2, self.promote):
            raise UserError(
                f"batches of {self.batch} that promote {self.promote}, with one call for at most {self.whole}, never "
                "come to an end: promote must be at least 1 and below batch, whole at least 2 and not below promote"
            )


MATH = Shape(6, 2, 16)
SHAPES = {"OBLIQ-Math": MATH, "OBLIQ-Mini-Math": MATH}
"""As the benchmark's authors ran it; other tasks have the usual shape."""


def shuffled(pool: Sequence[int], seed: str) -> list[int]:
    """Return a pool in an order that follows from the seed."""
    shown = list(pool)
    random.Random(seed).shuffle(shown)  # noqa: S311 -- an order of presentation, not a secret
    return shown


def batches(pool: Sequence[int], size: int) -> list[list[int]]:
    """Return the batches of a pool, one after the other; the last may be smaller."""
    return [list(pool[at : at + size]) for at in range(0, len(pool), size)]


def woven(lists: Sequence[Sequence[int]]) -> list[int]:
    """Return the members of several lists by their position: all first ones, then all second ones, and so on.

    >>> woven([[1, 2, 3], [4], [5, 6]])
    [1, 4, 5, 2, 6, 3]
    """
    return [one for row in zip_longest(*lists) for one in row if one is not None]


def calls(pool: int, shape: Shape) -> int:
    """Return how many calls a pool costs: batches that go on as a whole are not played.

    >>> calls(20, Shape()), calls(41, Shape()), calls(100, Shape()), calls(16, MATH), calls(17, MATH)
    (1, 3, 6, 1, 4)
    """
    total = 0
    while pool > shape.whole:
        sizes = [min(shape.batch, pool - at) for at in range(0, pool, shape.batch)]
        total += sum(size > shape.promote for size in sizes)
        pool = sum(min(size, shape.promote) for size in sizes)
    return total + (pool > 1)
