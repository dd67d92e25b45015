"""The measures of Appendix J on texts whose values can be counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.analyses.obliqueness import (
    content_words,
    copied_spans,
    coverage,
    entities,
    jaccard,
    leaked,
    measure,
    summarise,
)

SOURCE = 'We met Mr. John Smith in Paris. Paris was cold in 1882, I said. "Nobody," he told the United Nations, "came."'
WORDS = st.lists(st.sampled_from(["one", "two", "three", "four"]), max_size=14)


def test_content_words() -> None:
    """`met`, `was` and `he` have at most three letters; `nobody` and `told`… only the former is a stopword."""
    assert content_words("We met him; the cold Nobody told was COLD, in 1882 (so4ld)") == {"cold", "told"}


def test_coverage_and_jaccard() -> None:
    """Query {cold, rain, paris}; source {cold, paris, smith, john, told, united, nations, said, came}.

    `said` and `came` are no stopwords. Two of the query's three words are in the source; 2 of 10 in both together.
    """
    source = content_words(SOURCE)
    assert source == {"john", "smith", "paris", "cold", "said", "told", "united", "nations", "came"}
    assert coverage("cold rain, Paris", SOURCE) == pytest.approx(2 / 3)
    assert jaccard("cold rain, Paris", SOURCE) == pytest.approx(2 / 10)
    assert coverage("of the", SOURCE) == jaccard("of the", "") == 0.0


def test_entities() -> None:
    """`We`, the second `Paris` and `"Nobody` begin sentences; `Mr.` does not end one; `I` is no entity.

    Paris stands once inside a sentence, so it is an entity. After a comma and a quotation mark no sentence begins.
    """
    assert entities(SOURCE) == ("Mr", "John Smith", "Paris", "1882", "United Nations")
    assert entities("Old Man River rolls. Ask New York City") == ("Man River", "New York City")
    assert entities("Ask\nNew York about it, I'm in The Hague") == ("York", "The Hague")
    assert entities("It cost 18821 in 0999, 2024, 3001 and x1999") == ("2024",)
    assert entities("") == entities("I. I'd say so") == ()


def test_leaks_are_whole_words_in_the_same_capitals() -> None:
    assert leaked("What did John\nSmith want?", SOURCE) == ("John Smith",)
    assert leaked("What did john smith want from Parisians in 18820?", SOURCE) == ()
    assert leaked("Paris, 1882", SOURCE) == ("Paris", "1882")


def test_copied_spans() -> None:
    """Five words and six words come back; four do not. Case and punctuation do not matter."""
    source = "The quick brown fox jumps over a lazy dog and then it sleeps at home."
    query = "quick, Brown fox JUMPS over it; a lazy dog and x lazy dog and then it sleeps"
    assert copied_spans(query, source) == ("quick brown fox jumps over", "lazy dog and then it sleeps")
    assert measure(query, source).copied == 6
    assert measure(query, source).spans == 2
    assert measure("a lazy dog and", source).copied == 0


@given(WORDS, WORDS)
def test_copied_spans_against_a_slow_oracle(query: list[str], source: list[str]) -> None:
    """Word i of the query is in a span if some window of five around it stands in the source."""
    held = {tuple(source[at : at + 5]) for at in range(len(source) - 4)}
    inside = [
        any(tuple(query[at : at + 5]) in held for at in range(max(0, i - 4), i + 1) if at + 5 <= len(query))
        for i in range(len(query))
    ]
    spans = copied_spans(" ".join(query), " ".join(source))
    assert {word for span in spans for word in span.split()} == {w for w, hit in zip(query, inside, strict=True) if hit}
    assert all(len(span.split()) >= 5 for span in spans)


@given(st.text(), st.text())
def test_measures_stay_in_their_bounds(query: str, source: str) -> None:
    found = measure(query, source)
    assert 0 <= found.jaccard <= found.coverage <= 1
    assert measure(query, query).coverage in {0.0, 1.0}


def test_summary() -> None:
    """Two queries, one of them with two sources: three pairs. The first repeats nothing, the second leaks once.

    Coverage 0, 1/2 (`paris` of paris, rain) and 0: mean 1/6. Leakage 1/3. Words 1, 2, 2: mean 5/3.
    """
    measured = [measure("storms", SOURCE), measure("Paris rain", SOURCE), measure("Paris rain", "dry deserts")]
    found = summarise(measured, ["storms", "Paris rain"])
    assert (found.queries, found.pairs) == (2, 3)
    assert found.coverage == pytest.approx(1 / 6)
    assert found.leakage == pytest.approx(1 / 3)
    assert found.words == pytest.approx(5 / 3)
    assert (found.copied, found.duplicates) == (0.0, 0.0)
    assert summarise(measured, ["same  one", "Same one"]).duplicates == 0.5
    with pytest.raises(ValueError, match="nothing to summarise"):
        summarise([], [])
