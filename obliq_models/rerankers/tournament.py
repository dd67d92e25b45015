"""The structure of TourRank: stages, groups, quotas, points (Chen et al. 2025), for a pool of any size."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Stage:
    """One round of a tournament at its full size.

    Args:
        groups: How many groups play at once, each of them one call.
        size: Documents in a group.
        chosen: How many of a group go on, each with one point.
    """

    groups: int
    size: int
    chosen: int

    @property
    def holds(self) -> int:
        """Documents at the full size."""
        return self.groups * self.size

    def quota(self, size: int) -> int:
        """Return how many of a group of this size go on: the same share, to the nearest whole number, one at least."""
        return max(1, (2 * self.chosen * size + self.size) // (2 * self.size))


STAGES = (Stage(5, 20, 10), Stage(5, 10, 4), Stage(1, 20, 10), Stage(1, 10, 5), Stage(1, 5, 2))
"""100 documents in 13 calls: 100, 50, 20, 10, 5, and the last 2 chosen."""


def stages(pool: int) -> tuple[Stage, ...]:
    """Return the rounds of a pool.

    It enters at the first stage that holds it; above 100 documents further rounds come before, which halve it in
    groups of 20. Fewer than two documents need none.
    """
    if pool < 2:
        return ()
    before: list[Stage] = []
    while pool > STAGES[0].holds:
        stage = Stage(-(-pool // STAGES[0].size), STAGES[0].size, STAGES[0].chosen)
        before.append(stage)
        pool = sum(stage.quota(len(group)) for group in deal(range(pool), stage.groups))
    first = max(at for at, stage in enumerate(STAGES) if stage.holds >= pool)
    return (*before, *STAGES[first:])


def deal(ranking: Sequence[int], groups: int) -> list[list[int]]:
    """Return the groups of a ranking: group g takes the places g, g + groups, and so on; empty groups are left out."""
    return [group for first in range(groups) if (group := list(ranking[first::groups]))]


@dataclass(frozen=True)
class Group:
    """Documents that are compared in one call.

    Args:
        documents: Their places in the pool, in the order in which they are shown.
        choose: How many of them to choose.
    """

    documents: tuple[int, ...]
    choose: int


def groups(ranking: Sequence[int], stage: Stage, seed: str) -> list[Group]:
    """Return a round's groups, each shuffled by the seed; a group that would let everybody through plays no less.

    Args:
        ranking: Places in the pool of those who are still in, in the order of the pool.
        stage: The round.
        seed: Whatever tells this round from others; the same seed gives the same shuffles.
    """
    dealt = []
    for number, group in enumerate(deal(ranking, stage.groups)):
        shown = list(group)
        random.Random(f"{seed}/{number}").shuffle(shown)  # noqa: S311 -- an order of presentation, not a secret
        dealt.append(Group(tuple(shown), stage.quota(len(group))))
    return dealt


def calls(pool: int, tournaments: int = 1) -> int:
    """Return how many calls a pool costs: groups of a single document are not played."""
    total, left = 0, pool
    for stage in stages(pool):
        dealt = deal(range(left), stage.groups)
        total += sum(len(group) > 1 for group in dealt)
        left = sum(stage.quota(len(group)) for group in dealt)
    return total * tournaments


def order(pool: int, points: Mapping[int, int]) -> list[int]:
    """Return the places of a pool by points, the most first; equal points keep the order of the pool."""
    return sorted(range(pool), key=lambda place: (-points.get(place, 0), place))


def added(points: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the points of several tournaments together."""
    total: dict[int, int] = {}
    for tournament in points:
        for place, won in tournament.items():
            total[place] = total.get(place, 0) + won
    return total
