"""How queries are split: worked out by hand from SHA-256, whole groups, order of no matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.data.sources import assemble
from obliq_eval.data.split import covered, dev_queries, held_out_queries
from obliq_eval.errors import UserError
from obliq_eval.records import Corpus, Dataset, Judgments

if TYPE_CHECKING:
    import random

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def data_set(queries: int, groups: dict[str, str] | None = None) -> Dataset:
    """Return a data set of one document that answers every query."""
    ids = [f"q{i}" for i in range(1, queries + 1)]
    corpus = Corpus("T", "r", datasets.Dataset.from_dict({"id": ["d"], "text": ["t"]}))
    return assemble(corpus, dict.fromkeys(ids, "?"), Judgments({q: {"d": 1} for q in ids}), None, None, groups)


def test_ten_queries_by_hand() -> None:
    r"""`printf 'T\0query:q1' | sha256sum` begins with 3fee, and so on: q6 and q5 are the smallest fifth of ten.

    q1 3fee, q2 cd15, q3 7ff8, q4 b8d1, q5 076e, q6 04b8, q7 7ec1, q8 ae5c, q9 64da, q10 7659.
    """
    assert dev_queries("T", [f"q{i}" for i in range(1, 11)]) == {"q6", "q5"}


def test_what_is_held_out_of_ten_queries_by_hand() -> None:
    """After q6 and q5 come q1, q9, q10, q7, q3, q8, q4, q2; with q3 it is seven, the first count of at least 6.4."""
    queries = [f"q{i}" for i in range(1, 11)]
    assert held_out_queries("T", queries) == {"q1", "q9", "q10", "q7", "q3"}
    assert held_out_queries("T", []) == frozenset()


def test_the_task_is_part_of_the_hash() -> None:
    queries = [f"q{i}" for i in range(200)]
    assert dev_queries("OBLIQ-Math", queries) != dev_queries("OBLIQ-Writing", queries)


@pytest.mark.parametrize(("total", "dev"), [(0, 0), (1, 1), (4, 1), (5, 1), (6, 2), (115, 23), (254, 51), (512, 103)])
def test_a_fifth_rounded_up(total: int, dev: int) -> None:
    assert len(dev_queries("T", map(str, range(total)))) == dev


def test_groups_are_taken_whole_in_the_order_of_their_hash() -> None:
    r"""q6 (04b8), q5 (076e), then all three of Ada (`printf 'T\0group:Ada' | sha256sum`: 21fb), before Bob (6031).

    A fifth of eleven is 2.2: after two queries it is not reached, and with Ada's three it is passed.
    """
    groups = {"a1": "Ada", "a2": "Ada", "a3": "Ada", **{f"b{i}": "Bob" for i in range(6)}}
    assert dev_queries("T", [*groups, "q5", "q6"], groups) == {"q5", "q6", "a1", "a2", "a3"}
    # Bob and q2 (cd15) come after Ada, who alone is a fifth of ten.
    assert dev_queries("T", [*groups, "q2"], groups) == {"a1", "a2", "a3"}
    # Of eleven, 7.04 are not reached with Ada, five queries, and passed with Bob; of ten, 6.4 with Bob as well.
    bobs = {f"b{i}" for i in range(6)}
    assert held_out_queries("T", [*groups, "q5", "q6"], groups) == bobs
    assert held_out_queries("T", [*groups, "q2"], groups) == bobs


def test_a_group_that_is_called_like_a_query_is_another_group() -> None:
    assert dev_queries("T", ["a"], {"b": "a"}) == {"a"}
    many = {f"q{i}": "q0" for i in range(1, 50)}
    split = dev_queries("T", ["q0", *many], many)
    assert split in ({"q0", *many}, frozenset(many), {"q0"})


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(names, st.none() | st.sampled_from("abcdef"), max_size=40), names, st.randoms())
def test_any_split(grouped: dict[str, str | None], task: str, chance: random.Random) -> None:
    groups = {q: g for q, g in grouped.items() if g is not None}
    dev = dev_queries(task, grouped, groups)
    assert dev <= grouped.keys()
    # The order of queries, and of groups, and repetition do not matter.
    shuffled = [*grouped, *grouped]
    chance.shuffle(shuffled)
    turned = dict(sorted(groups.items(), reverse=True))
    assert dev_queries(task, iter(shuffled), turned) == dev
    held_out = held_out_queries(task, grouped, groups)
    assert held_out_queries(task, iter(shuffled), turned) == held_out
    assert held_out <= grouped.keys() - dev
    # A group is never divided.
    for group in set(groups.values()):
        assert len({(q in dev, q in held_out) for q, g in groups.items() if g == group}) == 1
    # At least a fifth, and no more than the last group too many.
    sizes = [sum(g == group for g in groups.values()) for group in set(groups.values())]
    assert len(grouped) <= 5 * len(dev)
    assert 5 * (len(dev) - max([1, *sizes])) < max(1, len(grouped))
    # Likewise dev and what is held out together, 64 of a hundred.
    both = len(dev) + len(held_out)
    assert 64 * len(grouped) <= 100 * both
    assert both == len(dev) or 100 * (both - max([1, *sizes])) < 64 * len(grouped)


def test_dev_and_test_divide_a_data_set() -> None:
    data = data_set(10)
    dev, test = covered(data, "dev"), covered(data, "test")
    assert set(dev.queries) == dev_queries("T", data.queries)
    assert [len(dev.queries), len(test.queries)] == [2, 8]
    assert {**dev.queries, **test.queries} == dict(data.queries)
    assert set(dev.gold.grades) == set(dev.queries)
    assert covered(data, "all") is data


def test_what_is_held_out_is_a_part_of_test() -> None:
    data = data_set(10)
    held_out = covered(data, "held-out")
    assert set(held_out.queries) == {"q1", "q9", "q10", "q7", "q3"}
    assert held_out.queries.items() < covered(data, "test").queries.items()
    assert set(held_out.gold.grades) == set(held_out.queries)


def test_a_data_set_of_one_group_has_no_test_queries() -> None:
    data = data_set(3, dict.fromkeys(("q1", "q2", "q3"), "Ada"))
    assert len(covered(data, "dev").queries) == 3
    with pytest.raises(UserError, match="T has no test queries: 3 queries in all"):
        covered(data, "test")
    with pytest.raises(UserError, match="T has no held-out queries: 3 queries in all"):
        covered(data, "held-out")
