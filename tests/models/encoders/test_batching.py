"""Batches within a token budget."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_models.encoders.batching import padded, plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTHS = st.lists(st.integers(0, 40), max_size=60)
MOST = st.none() | st.integers(1, 8)


@given(LENGTHS, st.integers(1, 120), st.integers(0, 30), MOST)
def test_every_text_once_and_every_batch_within_its_bounds(
    lengths: list[int], budget: int, overhead: int, most: int | None
) -> None:
    batches = plan(lengths, budget, overhead=overhead, most=most)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or padded(lengths, [batch]) <= budget
        assert most is None or len(batch) <= most
    order = [row for batch in batches for row in batch]
    assert all((-lengths[a], a) < (-lengths[b], b) for a, b in pairwise(order))
    assert plan(lengths, budget, overhead=overhead, most=most) == batches


def partitions(order: Sequence[int]) -> Iterator[list[Sequence[int]]]:
    """Yield every way to cut a sequence into runs."""
    if not order:
        yield []
    for end in range(1, len(order) + 1):
        for rest in partitions(order[end:]):
            yield [order[:end], *rest]


@given(st.lists(st.integers(1, 12), max_size=9), st.integers(1, 40), st.integers(0, 8), MOST)
def test_no_partition_costs_less(lengths: list[int], budget: int, overhead: int, most: int | None) -> None:
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    allowed = (
        batches
        for batches in partitions(order)
        if all(len(b) == 1 or (padded(lengths, [b]) <= budget and len(b) <= (most or 9)) for b in batches)
    )
    least = min(padded(lengths, batches) + overhead * len(batches) for batches in allowed)
    batches = plan(lengths, budget, overhead=overhead, most=most)
    assert padded(lengths, batches) + overhead * len(batches) == least


@pytest.mark.parametrize(
    ("overhead", "batches"),
    [
        (0, [[1], [0, 2], [3]]),  # 10 + 2 · 4 + 3 tokens, nothing padded
        (2, [[1], [0, 2, 3]]),  # one token of padding is less than a batch of its own
        (100, [[1, 0, 2, 3]]),  # 4 · 10 tokens fill the budget
    ],
)
def test_padding_is_weighed_against_batches(overhead: int, batches: list[list[int]]) -> None:
    assert plan([4, 10, 4, 3], 40, overhead=overhead) == batches


def test_a_text_above_the_budget_is_alone() -> None:
    assert plan([5, 50, 5], 10) == [[1], [0, 2]]
    assert plan([], 10) == []
