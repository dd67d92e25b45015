"""A dose of a graph, and the controls that keep its anchors and ranks."""

from __future__ import annotations

from collections import Counter

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_train.controls import random_graph, sample_edges

ALL = tuple(Edge(f"a{i}", f"b{i}", 1 + i % 3) for i in range(30))


def corpus(**texts: str) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"id": list(texts), "text": list(texts.values())})


@given(seed=st.integers(0, 5), dose=st.integers(1, 30), smaller=st.integers(1, 30))
def test_a_dose_is_seeded_in_order_and_part_of_a_larger_one(seed: int, dose: int, smaller: int) -> None:
    drawn = sample_edges(ALL, dose, seed)
    assert len(set(drawn)) == dose
    assert list(drawn) == [edge for edge in ALL if edge in drawn]
    assert drawn == sample_edges(ALL, dose, seed)
    if smaller <= dose:
        assert set(sample_edges(ALL, smaller, seed)) <= set(drawn)


def test_every_edge_is_drawn_as_often() -> None:
    """Over 3,000 seeds each of 30 edges is in a dose of 10 in a third of them: 1,000, standard deviation 26."""
    counts = Counter(edge for seed in range(3_000) for edge in sample_edges(ALL, 10, seed))
    assert len(counts) == 30
    assert all(abs(count - 1_000) < 130 for count in counts.values())


@pytest.mark.parametrize("dose", [0, 31])
def test_a_dose_that_cannot_be_is_refused(dose: int) -> None:
    with pytest.raises(UserError, match="give 1 to 30"):
        sample_edges(ALL, dose)


NUMBERS = corpus(**{f"d{i}": str(i) for i in range(8)}, copy="3", blank="")


def test_random_positives_keep_anchors_ranks_and_what_is_forbidden() -> None:
    """d3's text is `copy`'s too, so neither is drawn for d3 or for `copy`; of the two, only d3 stands for it."""
    edges = [Edge("d3", "d1", 1), Edge("d3", "d2", 3), Edge("d0", "d1", 1)]
    sources = {"d0": frozenset("s"), "d1": frozenset("s"), "d2": frozenset("s")}
    drawn: dict[str, set[str]] = {"d3": set(), "d0": set()}
    for seed in range(200):
        found = random_graph(NUMBERS, edges, seed=seed, sources=sources)
        assert [(e.anchor, e.rank) for e in found.edges] == [("d3", 1), ("d3", 3), ("d0", 1)]
        assert found.edges[0].neighbour != found.edges[1].neighbour
        assert found.counts == {"edges asked for": 3, "edges without a document left to draw": 0}
        for edge in found.edges:
            drawn[edge.anchor].add(edge.neighbour)
    assert drawn == {"d3": {"d0", "d1", "d2", "d4", "d5", "d6", "d7"}, "d0": {"d3", "d4", "d5", "d6", "d7"}}
    assert random_graph(NUMBERS, edges, seed=1).edges == random_graph(NUMBERS, edges, seed=1).edges


def test_matched_positives_have_the_value_of_the_old_ones() -> None:
    """d0 and d1 are of 1800, d2 to d4 of 1900, the rest of none; only d1 is left for a neighbour of d0 in 1800."""
    decades = {f"d{i}": frozenset(["1800" if i < 2 else "1900"]) for i in range(5)}
    edges = [Edge("d0", "d1", 1), Edge("d0", "d2", 2), Edge("d0", "d6", 3)]
    drawn: list[set[str]] = [set(), set(), set()]
    for seed in range(100):
        found = random_graph(NUMBERS, edges, seed=seed, match=decades)
        assert found.counts["neighbours without a value to match"] == 1
        for place, edge in zip(drawn, found.edges, strict=True):
            place.add(edge.neighbour)
    assert drawn == [{"d1"}, {"d2", "d3", "d4"}, {"d5", "d6", "d7"}]


def test_what_cannot_be_drawn_is_counted() -> None:
    """Of 1800 there is d1 alone beside the anchor, so that its second neighbour of 1800 cannot be replaced."""
    decades = {"d0": frozenset(["1800"]), "d1": frozenset(["1800"]), "copy": frozenset(["1800"])}
    edges = [Edge("d0", "d1", 1), Edge("d0", "copy", 2)]
    found = random_graph(corpus(d0="0", d1="1", copy="1"), edges, match=decades)
    assert [edge[:2] for edge in found.edges] == [("d0", "d1")]
    assert found.counts["edges without a document left to draw"] == 1


def test_edges_of_another_corpus_are_refused() -> None:
    with pytest.raises(UserError, match="'elsewhere' of the edges is not in the corpus"):
        random_graph(NUMBERS, [Edge("d0", "elsewhere", 1)])
