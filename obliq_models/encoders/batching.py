"""Which texts go through a model together: batches within a token budget, with as little padding as pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def plan(lengths: Sequence[int], budget: int, *, overhead: int = 0, most: int | None = None) -> list[list[int]]:
    """Return batches of indices, the longest texts first, so that padded tokens plus overhead are fewest.

    Every text of a batch is padded to its longest. Batches are runs of the texts sorted by length, and among these
    the best partition is found by dynamic programming from the shortest text on. Equal lengths keep their order, and
    among equally good partitions the one with the larger batch first is taken: the same lengths give the same plan.

    Args:
        lengths: Tokens of each text.
        budget: Padded tokens of a batch at most; a text that is longer is a batch alone.
        overhead: What a batch of its own costs, in tokens that are computed in the same time.
        most: Texts in a batch at most.
    """
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    ends = _ends(sizes[order], budget, overhead, most or max(1, len(sizes)))
    batches, first = [], 0
    while first < len(order):
        batches.append(order[first : ends[first]].tolist())
        first = int(ends[first])
    return batches


def padded(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Return how many tokens are computed, padding included."""
    return sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)


def _ends(sizes: NDArray[np.int64], budget: int, overhead: int, most: int) -> NDArray[np.int64]:
    """Return for each text where the batch that begins with it ends, in the best partition of it and all behind it.

    Args:
        sizes: Lengths in descending order.
        budget: See `plan`.
        overhead: See `plan`.
        most: See `plan`.
    """
    count = len(sizes)
    costs, ends = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
    widths = np.arange(1, count + 1)
    for first in range(count - 1, -1, -1):
        size = int(sizes[first])
        fits = max(1, min(most, budget // size if size else most, count - first))
        options = size * widths[:fits] + costs[first + 1 : first + fits + 1]
        best = fits - 1 - int(options[::-1].argmin())
        costs[first] = options[best] + overhead
        ends[first] = first + best + 1
    return ends
