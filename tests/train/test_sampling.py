"""Documents in a seeded order, without duplicates."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from obliq_train.sampling import content, sample, signature

if TYPE_CHECKING:
    from collections.abc import Callable

    import datasets

    Table = Callable[[dict[str, str]], datasets.Dataset]
VOCABULARY = [f"w{number}" for number in range(5_000)]


def text(seed: int, length: int = 60) -> str:
    return " ".join(random.Random(seed).choices(VOCABULARY, k=length))


def test_the_order_follows_from_the_seed_and_the_limit_cuts_it(table: Table) -> None:
    documents = table({f"d{number}": text(number) for number in range(600)})
    whole = [one.id for one in sample(documents, 7)]
    assert sorted(whole) == sorted(documents["id"][:])
    assert [one.id for one in sample(documents, 7, 300)] == whole[:300]
    assert [one.id for one in sample(documents, 8)] != whole
    assert [one.number for one in sample(documents, 7, 3)] == [0, 1, 2]


def test_duplicates_are_left_out_and_counted(table: Table) -> None:
    """d1 differs from d0 in case and blanks, d2 in its last word: 55 of 57 distinct 5-grams are shared (.96).

    d3 shares half of its words with d0: 26 of 86 5-grams (.30). Short texts are compared as wholes.
    """
    words = text(0).split()
    texts = {
        "d0": " ".join(words),
        "d1": "  ".join(words).upper(),
        "d2": " ".join([*words[:-1], "other"]),
        "d3": " ".join([*words[:30], *text(1, 30).split()]),
        "d4": "too short",
        "d5": "Too  short",
        "d6": "too brief",
        "d7": " \n",
    }
    counts: Counter[str] = Counter()
    kept = {one.id for one in sample(table(texts), 0, None, counts)}
    assert len(kept & {"d0", "d1", "d2"}) == 1
    assert len(kept & {"d4", "d5"}) == 1
    assert {"d3", "d6"} < kept
    assert "d7" not in kept
    assert counts["duplicates"] + counts["near-duplicates"] == 3
    assert counts["empty documents"] == 1


def test_signatures_estimate_the_jaccard_similarity() -> None:
    """Against the sets themselves: the estimate from 32 places has a standard error of at most .09."""
    for shared in (0, 100, 200, 300, 380):
        first, other = text(1, 400).split(), text(2, 400).split()
        second = [*first[:shared], *other[shared:]]
        grams = [{tuple(words[at : at + 5]) for at in range(len(words) - 4)} for words in (first, second)]
        real = len(grams[0] & grams[1]) / len(grams[0] | grams[1])
        a, b = signature(" ".join(first)), signature(" ".join(second))
        assert a is not None
        assert b is not None
        assert abs(float((a == b).mean()) - real) < 0.25, shared
    assert signature("one two three four") is None


def test_content_is_the_same_whatever_the_order_of_the_rows(table: Table) -> None:
    assert content(table({"a": "x", "b": "y"})) == content(table({"b": "y", "a": "x"}))
    assert content(table({"a": "x", "b": "y"})) != content(table({"a": "y", "b": "x"}))
