"""Purity, base rate and lift against values worked out by hand, and a slow count of pairs."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.analyses.groups import base_rate, groups_of, queries_of
from obliq_eval.analyses.purity import COLUMNS, Purity, Share, purity
from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_eval.records import Judgments

if TYPE_CHECKING:
    from obliq_eval.analyses.groups import Values


def of(**values: str) -> dict[str, frozenset[str]]:
    """Return values by document: each letter is one."""
    return {document: frozenset(letters) for document, letters in values.items()}


TIMES = "\u00d7"
LABELS = of(a="x", b="x", c="x", d="y", e="y", f="z")
EDGES = [
    Edge("a", "b", 1), Edge("a", "d", 2), Edge("b", "c", 1), Edge("b", "a", 2), Edge("d", "f", 1), Edge("d", "e", 2),
    Edge("f", "unlabelled", 1), Edge("unlabelled", "a", 1),
]  # fmt: skip


def test_purity_base_rate_and_lift_by_hand() -> None:
    """Labelled edges: a-b yes, a-d no, b-c yes, b-a yes, d-f no, d-e yes: 4 of 6.

    Pairs of one label among six documents: 3 of x, 1 of y, of 15. Lift: (4/6) / (4/15) = 2.5.
    """
    found = purity(EDGES, LABELS, resamples=200)
    whole = found.whole
    assert (whole.edges, whole.labelled, whole.same) == (8, 6, 4)
    assert (whole.purity, whole.base, whole.lift) == (pytest.approx(4 / 6), pytest.approx(4 / 15), pytest.approx(2.5))
    assert (found.documents, found.labels, found.outside, found.inside_source) == (6, 3, 0, 0)
    assert len(whole.row()) == len(COLUMNS)


def test_by_k_counts_ranks_up_to_k() -> None:
    """Rank 1: a-b yes, b-c yes, d-f no, and two unlabelled; up to rank 2 all."""
    by_k = purity(EDGES, LABELS, resamples=200).by_k
    assert {k: (share.edges, share.labelled, share.same) for k, share in by_k.items()} == {1: (5, 3, 2), 2: (8, 6, 4)}


def test_edges_and_pairs_inside_a_source_do_not_count() -> None:
    """Of one source: a and b, so a-b and b-a go; of 14 pairs left 3 agree (a-c, b-c, d-e); of 4 edges 2 do."""
    found = purity(EDGES, LABELS, sources=of(a="s", b="s", c="t", unlabelled="u"), resamples=200)
    assert (found.inside_source, found.whole.labelled, found.whole.same) == (2, 4, 2)
    assert found.whole.base == pytest.approx(3 / 14)
    assert found.whole.lift == pytest.approx((2 / 4) / (3 / 14))


def test_documents_of_several_labels_agree_if_they_share_one() -> None:
    """Pairs: a-b share y, b-c share z, a-c nothing: 2 of 3."""
    labels = of(a="xy", b="yz", c="z")
    found = purity([Edge("a", "b", 1), Edge("a", "c", 2)], labels, resamples=200)
    assert (found.whole.labelled, found.whole.same, found.whole.base) == (2, 1, pytest.approx(2 / 3))


def test_a_lift_that_is_only_era_is_1_inside_eras() -> None:
    """Two eras of two authors each with two texts; edges join each text to every other text of its era.

    Each text meets 3 others of its era, one of them by its author: purity 1/3. All pairs: 4 of 28 agree, 1/7, lift
    7/3. Inside an era 2 of 6 pairs agree: 1/3, lift 1.
    """
    era = {1: ["a1", "a2", "b1", "b2"], 2: ["c1", "c2", "d1", "d2"]}
    labels = {d: frozenset(d[0]) for texts in era.values() for d in texts}
    strata = {d: frozenset([str(name)]) for name, texts in era.items() for d in texts}
    edges = [
        Edge(a, b, rank)
        for texts in era.values()
        for a in texts
        for rank, b in enumerate([t for t in texts if t != a], start=1)
    ]
    found = purity(edges, labels, strata=strata, resamples=500)
    assert found.whole.lift == pytest.approx(7 / 3)
    assert found.within is not None
    assert (found.within.lift, found.within.labelled, found.across) == (pytest.approx(1), 24, 0)
    assert {value: share.base for value, share in found.strata.items()} == pytest.approx({"1": 1 / 3, "2": 1 / 3})
    assert found.verdict == "not aligned"
    said = found.sentence("era")
    assert f"a lift of 2.3{TIMES}" in said
    assert f"between documents of one era 1.0{TIMES}" in said
    assert "What the graph lifts may be era alone" in said


def test_strata_weigh_by_their_edges_and_leave_out_what_is_in_none() -> None:
    """Era 1: a, b, c of x, d of y: 3 of 6 pairs agree; era 2: e of y, f of z: none of 1. g has no era.

    Edges a-b (yes) and a-d (no) of era 1 and e-f (no) of era 2: expected 2 * 1/2 + 0 = 1, same 1.
    """
    labels = of(a="x", b="x", c="x", d="y", e="y", f="z", g="x")
    strata = of(a="1", b="1", c="1", d="1", e="2", f="2", h="12")
    edges = [Edge("a", "b", 1), Edge("a", "d", 2), Edge("e", "f", 1), Edge("a", "e", 3), Edge("a", "g", 4)]
    found = purity(edges, labels, strata=strata, resamples=200)
    assert found.within is not None
    assert (found.within.labelled, found.within.same, found.within.expected) == (3, 1, pytest.approx(1))
    assert list(found.strata) == ["1", "2"]
    assert found.across == 2


def test_the_interval_resamples_anchors() -> None:
    """Three anchors with one edge each, of which one agrees: 3^3 resamples, none agrees in 8, three agree in 1.

    At 95 % the lower end is 0 (8/27 of all) and the upper end 1 (1/27 = 3.7 % above 2/3).
    """
    labels = of(a="x", b="x", c="y", d="x", e="z")
    edges = [Edge("a", "b", 1), Edge("c", "a", 1), Edge("e", "a", 1)]
    found = purity(edges, labels, resamples=4_000, seed=3)
    assert found.whole.purity_interval == (0.0, 1.0)
    assert found.whole.lift_interval == (0.0, pytest.approx(1 / found.whole.base))  # type: ignore[operator]
    assert purity(edges, labels, resamples=4_000, seed=3) == found
    one_anchor = purity(edges[:1], labels, resamples=200)
    assert (one_anchor.whole.purity_interval, one_anchor.verdict) == (None, "unknown")
    assert "too little to judge" in one_anchor.sentence()


def graph(same: int, other: int) -> list[Edge]:
    """One edge for each of `same + other` anchors, the first of them to a document of its label."""
    return [Edge(f"a{i}", f"b{i}" if i < same else f"b{(i + 1) % (same + other)}", 1) for i in range(same + other)]


def pairs(count: int) -> dict[str, frozenset[str]]:
    """Make 2 * `count` documents in pairs of one label: the base rate is 1 / (2 count - 1)."""
    return {f"{side}{i}": frozenset([str(i)]) for i in range(count) for side in "ab"}


def test_verdicts() -> None:
    """60 labels of two: base rate 1/119. All, a tenth (6 of 60: lift 11.9), and none of the edges agree."""
    good = purity(graph(60, 0), pairs(60), resamples=1_000)
    assert good.verdict == "aligned"
    told = "100.0% of the edges join documents of one label, against 0.8% of random pairs, a lift of 119.0"
    assert good.sentence().startswith(f"{told}{TIMES}")
    assert "distil the topology" in good.sentence()
    weak = purity(graph(6, 54), pairs(60), resamples=1_000)
    assert weak.verdict == "weak"  # the interval reaches below 5
    assert "train the random control" in weak.sentence()
    none = purity(graph(0, 60), pairs(60), resamples=1_000)
    assert none.verdict == "not aligned"
    assert "do not distil" in none.sentence()
    nothing = purity([Edge("p", "q", 1)], pairs(2), resamples=200)
    assert nothing.verdict == "unknown"
    assert "No edge has labels at both ends" in nothing.sentence()


def test_an_audit_says_what_the_graph_carries() -> None:
    carried = purity(graph(60, 0), pairs(60), resamples=200).sentence(audit="dialect")
    assert carried.endswith("The graph carries dialect, and whatever is distilled from it will too")
    free = purity(graph(0, 60), pairs(60), resamples=200).sentence(audit="dialect")
    assert free.endswith("The graph is not shown to carry dialect; that is no proof that it does not")


def test_groups_are_joined_by_union_find_and_irrelevant_documents_left_out() -> None:
    """q1 joins a and b, q2 b and c: one group a, b, c. q3 has d alone; e is judged 0."""
    judged = Judgments.from_dict({"q1": {"b": 1, "a": 2}, "q2": {"c": 1, "b": 1}, "q3": {"d": 1, "e": 0}, "q4": {}})
    assert groups_of(judged) == {"a": frozenset("a"), "b": frozenset("a"), "c": frozenset("a"), "d": frozenset("d")}
    assert queries_of(judged) == {
        "a": frozenset(["q1"]), "b": frozenset(["q1", "q2"]), "c": frozenset(["q2"]), "d": frozenset(["q3"]),
    }  # fmt: skip


def test_labels_are_needed_and_labelled_documents_outside_are_counted() -> None:
    with pytest.raises(UserError, match="labelled probe set"):
        purity(EDGES, {}, resamples=200)
    with pytest.raises(UserError, match="labelled probe set"):
        purity(EDGES, of(a=""), resamples=200)
    assert purity(EDGES, {**LABELS, "far": frozenset("x")}, resamples=200).outside == 1


VALUES = st.dictionaries(
    st.sampled_from("abcdefghij"), st.frozensets(st.sampled_from("xyz"), max_size=3), min_size=1, max_size=10
)


@settings(deadline=None)
@given(labels=VALUES, sources=VALUES)
def test_the_base_rate_equals_a_slow_count(labels: Values, sources: Values) -> None:
    none: frozenset[str] = frozenset()
    labelled = [document for document, values in labels.items() if values]
    allowed = [(a, b) for a, b in combinations(labelled, 2) if not sources.get(a, none) & sources.get(b, none)]
    same = sum(bool(labels[a] & labels[b]) for a, b in allowed)
    found = base_rate(labels, sources)
    assert found == (pytest.approx(same / len(allowed)) if allowed else None)


def test_records_without_edges_say_nothing() -> None:
    empty = Share(0, 0, 0, 0.0)
    assert (empty.purity, empty.base, empty.lift) == (None, None, None)
    assert isinstance(purity(EDGES, LABELS, resamples=200), Purity)


def test_a_rank_of_any_size_is_one_row_and_not_a_loop() -> None:
    found = purity([Edge("a", "b", 1), Edge("a", "c", 10**300)], {d: frozenset("x") for d in "abc"}, resamples=100)
    assert list(found.by_k) == [1, 10**300]
