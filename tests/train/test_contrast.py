"""Which texts answer an anchor: worked out by hand, and against a slow reading of the rule over random rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.edges import Edge
from obliq_train.contrast import answers, keys
from obliq_train.rows import Passage, Row


def row(query: str, positive: str, *negatives: str, source: str = "s", anchor: str = "") -> Row:
    """A row whose documents' ids are their texts in capitals."""
    return Row(
        query=Passage("", query),
        positives=(Passage("", positive),),
        negatives=tuple(Passage("", text) for text in negatives),
        source=source,
        query_id=anchor,
        positive_ids=(positive.upper(),),
        negative_ids=tuple(text.upper() for text in negatives),
    )


def known(*texts: str) -> frozenset[int]:
    return frozenset(map(keys, texts))


def test_keys_are_64_bits_and_know_no_white_space() -> None:
    assert keys(" a  whale\n") == keys("a whale") != keys("a Whale")
    assert all(-(2**63) <= keys(str(i)) < 2**63 for i in range(500))
    assert len({keys(str(i)) for i in range(500)}) == 500


def test_answers_of_rows_with_the_same_query_text_or_id() -> None:
    """Query q stands with a and, under id X, with b; r, under X as well, with c; r's own text is no answer to q."""
    rows = [row("q", "a"), row(" q ", "b", anchor="X"), row("r", "c", anchor="X"), row("t", "d", "a")]
    assert answers(rows, {}) == [
        known("q", "a", "b"),
        known("q", "a", "b", "c"),
        known("r", "b", "c"),
        known("t", "d"),
    ]


def test_an_id_names_a_query_within_its_source_alone() -> None:
    rows = [row("q", "a", source="one", anchor="X"), row("r", "b", source="two", anchor="X")]
    assert answers(rows, {}) == [known("q", "a"), known("r", "b")]


def test_neighbours_and_the_source_document_are_answers_where_a_row_gives_their_text() -> None:
    """X's edges lead to A, C and E; C is a negative of the second row, X its positive; nobody holds E."""
    rows = [row("q", "a", anchor="X"), row("r", "x", "c", anchor="Y"), row("s", "z", anchor="X", source="other")]
    edges = {"s": [Edge("X", "A", 1), Edge("X", "C", 2), Edge("X", "E", 3)]}
    assert answers(rows, edges) == [known("q", "a", "c", "x"), known("r", "x"), known("s", "z")]


def test_a_row_without_an_id_has_no_neighbours() -> None:
    assert answers([row("q", "a"), row("r", "b")], {"s": [Edge("", "B", 1)]}) == [known("q", "a"), known("r", "b")]


names = st.sampled_from("abcdef")
rows_of_any_kind = st.lists(
    st.builds(
        lambda query, positive, negatives, source, anchor: row(
            query, positive, *negatives, source=source, anchor=anchor.upper()
        ),
        names,
        names,
        st.lists(names, max_size=3),
        st.sampled_from("st"),
        st.one_of(st.just(""), names),
    ),
    min_size=1,
    max_size=6,
)
any_edges = st.lists(st.tuples(names, names).map(lambda ends: Edge(ends[0].upper(), ends[1].upper(), 1)), max_size=8)


def answers_it(text: str, this: Row, rows: list[Row], edges: dict[str, list[Edge]]) -> bool:
    """The rule, read out slowly, for one text and one row."""
    if text == this.query.text:
        return True
    for other in rows:
        same_id = this.query_id and (this.source, this.query_id) == (other.source, other.query_id)
        if this.query.text != other.query.text and not same_id:
            continue
        documents = {
            (passage.text, identifier)
            for near in rows
            if near.source == other.source
            for passage, identifier in zip(
                near.positives + near.negatives, near.positive_ids + near.negative_ids, strict=True
            )
        }
        wanted = {other.query_id} | {e.neighbour for e in edges.get(other.source, []) if e.anchor == other.query_id}
        if text == other.positives[0].text or (other.query_id and any((text, i) in documents for i in wanted)):
            return True
    return False


@given(rows_of_any_kind, any_edges, any_edges)
def test_answers_are_what_the_rule_says(rows: list[Row], one: list[Edge], two: list[Edge]) -> None:
    edges = {"s": one, "t": two}
    for this, found in zip(rows, answers(rows, edges), strict=True):
        assert {t for t in "abcdef" if keys(t) in found} == {t for t in "abcdef" if answers_it(t, this, rows, edges)}
