"""The schedule of TourRank, by hand and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_models.rerankers import tournament
from obliq_models.rerankers.tournament import STAGES, Stage, added, calls, deal, groups, order, stages


def test_a_hundred_documents_are_thirteen_calls_in_five_rounds() -> None:
    """5 + 5 + 1 + 1 + 1 calls; 100 -> 50 -> 20 -> 10 -> 5 -> 2."""
    assert stages(100) == STAGES
    left = 100
    seen = []
    for stage in stages(100):
        dealt = groups(range(left), stage, "s")
        seen.append((len(dealt), len(dealt[0].documents), dealt[0].choose))
        left = sum(group.choose for group in dealt)
    assert seen == [(5, 20, 10), (5, 10, 4), (1, 20, 10), (1, 10, 5), (1, 5, 2)]
    assert left == 2
    assert calls(100) == 13
    assert calls(100, 5) == 65  # the paper's Y = 5


@pytest.mark.parametrize(("pool", "cost"), [(0, 0), (1, 0), (2, 1), (5, 1), (10, 2), (20, 3), (50, 8), (100, 13)])
def test_smaller_pools_enter_where_they_fit(pool: int, cost: int) -> None:
    assert calls(pool) == cost


def test_two_hundred_documents_are_halved_before() -> None:
    """Ten groups of 20 let 10 through each: ten calls more than a hundred documents cost."""
    assert stages(200) == (Stage(10, 20, 10), *STAGES)
    assert calls(200) == 23


def test_a_group_takes_every_fifth_place() -> None:
    assert deal(range(12), 5) == [[0, 5, 10], [1, 6, 11], [2, 7], [3, 8], [4, 9]]
    assert deal(range(3), 5) == [[0], [1], [2]]


def test_quotas_keep_the_share() -> None:
    """4 of 10: of 8 it is 3.2, so 3; of 7 it is 2.8, so 3; of 1 it is .4, but one at least."""
    stage = Stage(5, 10, 4)
    assert [stage.quota(size) for size in (10, 8, 7, 1)] == [4, 3, 3, 1]


@given(pool=st.integers(0, 450), seed=st.text(max_size=5))
def test_every_round_shrinks_and_everybody_plays_once(pool: int, seed: str) -> None:
    left = list(range(pool))
    cost = 0
    for stage in stages(pool):
        dealt = groups(left, stage, seed)
        assert sorted(place for group in dealt for place in group.documents) == left
        assert all(1 <= group.choose <= len(group.documents) <= 20 for group in dealt)
        assert dealt == groups(left, stage, seed)
        cost += sum(len(group.documents) > 1 for group in dealt)
        after = sorted(place for group in dealt for place in group.documents[: group.choose])
        assert len(after) <= len(left)
        left = after
    assert cost == calls(pool)
    assert len(left) <= 2


def test_another_seed_shows_another_order() -> None:
    first, second = (groups(range(20), STAGES[2], seed)[0].documents for seed in ("a", "b"))
    assert first != second
    assert set(first) == set(second) == set(range(20))


def test_points_are_summed_and_ties_keep_the_order() -> None:
    """Places 2 and 0 have 3 points each, 3 has one, 1 has none: 0, 2, 3, 1."""
    total = added([{2: 2, 3: 1}, {2: 1, 0: 3}])
    assert total == {2: 3, 3: 1, 0: 3}
    assert order(4, total) == [0, 2, 3, 1]
    assert tournament.order(3, {}) == [0, 1, 2]
