"""The records that cross every boundary: canonical order, grades, and what they refuse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_eval.records import UNANSWERED, Corpus, Dataset, Judgments, Ranking, Run, parse_grade

if TYPE_CHECKING:
    from collections.abc import Sequence


# Canonical order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("documents", [["a", "b"], ["b", "a"]])
def test_ties_are_ordered_by_descending_id_whatever_the_input_order(documents: list[str]) -> None:
    assert Ranking.of(documents, [1.0, 1.0]).documents == ("b", "a")


def test_higher_score_comes_first() -> None:
    ranking = Ranking.of(["a", "c", "b"], [0.5, 0.1, 2.0])
    assert ranking.documents == ("b", "a", "c")
    assert ranking.scores.dtype == np.float32
    assert ranking.scores.tolist() == [2.0, 0.5, np.float32(0.1)]


def test_scores_that_float32_cannot_tell_apart_are_ties() -> None:
    # float32 keeps 24 bits: near 1 its steps are 1.2e-7, so 1e-8 is lost and the ids decide, while 1e-6 remains.
    assert Ranking.of(["a", "b"], [1.0 + 1e-8, 1.0]).documents == ("b", "a")
    assert Ranking.of(["a", "b"], [1.0 + 1e-6, 1.0]).documents == ("a", "b")


def test_numerals_are_ordered_as_text() -> None:
    # Descending by code point: é, a, 7, 1, 0, - in this order; "1e3" before "10" since e comes above 0.
    ids = ["10", "7", "007", "1e3", "-5", "é", "a b/c"]
    assert Ranking.of(ids, [0.0] * 7).documents == ("é", "a b/c", "7", "1e3", "10", "007", "-5")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=3),
        st.sampled_from([0.0, -1.0, 0.5, 1.0, 1.0 + 1e-8, 3.4e38]),
    ),
    st.randoms(use_true_random=False),
)
def test_order_is_that_of_sorted_utf8_bytes_for_any_input_order(answer: dict[str, float], random: Any) -> None:
    items = list(answer.items())
    random.shuffle(items)
    ranking = Ranking.of([d for d, _ in items], [s for _, s in items])
    slow = sorted(answer, key=lambda d: d.encode(), reverse=True)
    slow.sort(key=lambda d: -float(np.float32(answer[d])))
    assert ranking.documents == tuple(slow)
    assert ranking.scores.tolist() == [float(np.float32(answer[d])) for d in slow]


# What is refused -----------------------------------------------------------------------------------------------------


def test_duplicate_document_is_refused_naming_query_and_document() -> None:
    with pytest.raises(UserError, match=r"r\.trec: query 'q1': document 'd1' is ranked more than once"):
        Run.build([("q1", ["d1", "d1", "d2"], [3.0, 2.0, 1.0])], source="r.trec")
    with pytest.raises(UserError, match="query 'q 2/x': document 'd1' is ranked more than once"):
        Run.from_lists({"q1": ["d1"], "q 2/x": ["d2", "d1", "d1"]})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e39])
def test_score_that_is_not_finite_is_refused_naming_query_and_document(bad: float) -> None:
    # 1e39 is above float32's largest number, 3.4e38.
    with pytest.raises(UserError, match="query 'q1': document 'b' has a score that is not a finite number"):
        Run.of({"q1": {"a": 1.0, "b": bad}})


def test_all_problems_of_a_run_are_told_at_once() -> None:
    rows: list[tuple[str, Sequence[str], Sequence[float]]] = [
        ("q1", ["a", "a"], [1.0, 2.0]),
        ("q2", ["a"], [math.nan]),
        ("q3", ["a", "b"], [1.0]),
        ("q4", ["a"], [1.0]),
        ("q4", ["b"], [1.0]),
    ]
    with pytest.raises(UserError) as caught:
        Run.build(rows)
    assert str(caught.value).splitlines() == [
        "run: 4 problems",
        "  - query 'q1': document 'a' is ranked more than once",
        "  - query 'q2': document 'a' has a score that is not a finite number",
        "  - query 'q3': 2 documents but 1 scores",
        "  - query 'q4' is answered more than once",
    ]


NO_IDS: list[tuple[Any, str]] = [
    ("a\0b", r"'a\\x00b' holds a NUL character"),
    (7, "7 is not a string"),
    (None, "None is not a string"),
    (b"a", "b'a' is not a string"),
    ("half \ud800", r"'half \\ud800' is not valid Unicode"),
]


@pytest.mark.parametrize(("identifier", "fault"), NO_IDS)
def test_what_is_no_id_is_refused_in_runs_and_judgments(identifier: Any, fault: str) -> None:
    for query, document in ((identifier, "d"), ("q", identifier)):
        with pytest.raises(UserError, match=f"r.trec: the id {fault}" if query != "q" else f"r.trec: .*{fault}"):
            Run.of({query: {"fine": 2.0, document: 1.0}}, source="r.trec")
        with pytest.raises(UserError, match=f"q.tsv: the id {fault}"):
            Judgments.of([("fine", "d", 1), (query, document, 1)], "q.tsv")
        with pytest.raises(UserError, match=fault):
            Judgments.from_dict({"fine": {"d": 1}, query: {document: 1}})
    with pytest.raises(UserError, match=fault):
        Ranking.of(["fine", identifier], [2.0, 1.0])
    with pytest.raises(UserError, match=fault):
        Run.from_lists({identifier: []})
    with pytest.raises(UserError, match=fault):
        Judgments.from_dict({identifier: {}})


def test_the_id_of_an_empty_answer_is_no_document_s() -> None:
    """A document of that name would be found in every empty answer; a query may have it, or a longer name."""
    assert UNANSWERED == "obliq:unanswered"
    for refused in (
        lambda: Run.of({"q": {"d": 2.0, "obliq:unanswered": 1.0}}),
        lambda: Judgments.of([("q", "obliq:unanswered", 1)]),
    ):
        with pytest.raises(UserError, match="'obliq:unanswered' is reserved"):
            refused()
    scores = {"obliq:unanswered": {"obliq:unanswered2": 1.0, "obliq:": 0.5, "unanswered": 0.25}}
    assert Run.of(scores).to_dict() == scores
    assert Judgments.of([("obliq:unanswered", "obliq:unanswered2", 1)]).queries == ("obliq:unanswered",)


# Runs ----------------------------------------------------------------------------------------------------------------


def test_lists_without_scores_keep_their_order() -> None:
    run = Run.from_lists({"q1": ["b", "c", "a"], "q2": []})
    assert run.rankings["q1"].documents == ("b", "c", "a")
    assert run.rankings["q1"].scores.tolist() == [3.0, 2.0, 1.0]
    assert len(run.rankings["q2"]) == 0


def test_depth_is_the_longest_answer_unless_given() -> None:
    assert Run.from_lists({"q1": ["a"], "q2": ["a", "b"]}).depth == 2
    assert Run.from_lists({"q1": ["a"]}, depth=1000).depth == 1000
    assert Run.of({}).depth == 0


def test_exclusions_apply_before_the_cut() -> None:
    run = Run.of({"q": {"x1": 0.9, "x2": 0.8, "g": 0.7, "h": 0.6, "i": 0.5}, "other": {"x1": 1.0}})
    cut = run.without({"q": frozenset({"x1", "x2"})}, depth=2)
    assert cut.rankings["q"].documents == ("g", "h")
    assert cut.rankings["q"].scores.tolist() == [np.float32(0.7), np.float32(0.6)]
    assert cut.rankings["other"].documents == ("x1",)
    assert cut.depth == 2


def test_run_goes_through_a_dict_and_back() -> None:
    run = Run.of({"q 1": {"007": 1.0, "7": 1.0}, "q2": {}})
    assert run.to_dict() == {"q 1": {"7": 1.0, "007": 1.0}, "q2": {}}
    assert list(run.to_dict()["q 1"]) == ["7", "007"]
    assert Run.of(run.to_dict()).to_dict() == run.to_dict()


def test_only_keeps_the_depth_and_the_named_answers() -> None:
    run = Run.of({"q1": {"a": 1.0}, "q2": {"a": 1.0, "b": 2.0}}).only(["q1", "absent"])
    assert list(run.rankings) == ["q1"]
    assert run.depth == 2


# Judgments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, "1", "1.0", 1.0, np.int64(1), np.float32(1)])
def test_whole_grades_become_integers(value: object) -> None:
    grade = parse_grade(value)
    assert grade == 1
    assert type(grade) is int


@pytest.mark.parametrize("value", [0.9, 1.5, "0.9", "1.5", "nan", "inf", "high", "", None])
def test_other_grades_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        parse_grade(value)


@pytest.mark.parametrize("value", ["1_0", "\u0661", "\uff11", "1\u00a0", True])
def test_a_grade_that_only_python_reads_as_a_number_is_refused(value: object) -> None:
    """An underscore; an Arabic and a full-width one; a no-break space; a truth value."""
    with pytest.raises(ValueError, match="is not a whole number"):
        parse_grade(value)


@pytest.mark.parametrize("value", [1001, "1001", 300_000_000, "1e15", 1e300, -1001, "-1e300", "9" * 300])
def test_a_grade_beyond_what_trec_eval_can_count_is_refused(value: object) -> None:
    assert [parse_grade(1000), parse_grade("-1e3")] == [1000, -1000]
    with pytest.raises(ValueError, match=r"^grade .{1,40} is beyond 1,000"):
        parse_grade(value)
    with pytest.raises(UserError, match=r"query 'q1', document 'd 1': grade .* is beyond 1,000"):
        Judgments.of([("q1", "d 1", value)])


def test_fractional_grades_are_all_named() -> None:
    with pytest.raises(UserError) as caught:
        Judgments.of([("q1", "a", 0.9), ("q1", "b", "1.0"), ("q2", "c d", 1.5)], source="qrels.tsv")
    heading, first, second = str(caught.value).splitlines()
    assert heading == "qrels.tsv: 2 problems"
    assert "query 'q1', document 'a': grade 0.9 is not a whole number" in first
    assert "query 'q2', document 'c d': grade 1.5 is not a whole number" in second


def test_a_pair_judged_twice_is_refused_only_if_the_grades_differ() -> None:
    assert Judgments.of([("q", "a", 1), ("q", "a", "1.0")]).grades == {"q": {"a": 1}}
    with pytest.raises(UserError, match="query 'q', document 'a' is judged both 1 and 2"):
        Judgments.of([("q", "a", 1), ("q", "a", 2)])


def test_judgments_from_a_generator_can_be_read_twice() -> None:
    judgments = Judgments.of((query, "a", 1) for query in ("q1", "q2"))
    assert list(judgments.pairs()) == list(judgments.pairs()) == [("q1", "a", 1), ("q2", "a", 1)]
    assert len(judgments) == 2


def test_queries_without_a_relevant_document_are_unjudgeable() -> None:
    judgments = Judgments.from_dict({"z": {"a": 1}, "none": {}, "zero": {"a": 0, "b": -1}, "b": {"a": 0, "b": 2}})
    assert judgments.queries == ("z", "b")
    assert judgments.unjudgeable == ("none", "zero")
    assert judgments.only(["zero", "b"]).queries == ("b",)


def test_ids_like_numbers_stay_apart() -> None:
    ids = ["007", "7", "1e3", "-5"]
    judgments = Judgments.of((q, d, 1) for q in ids for d in ids)
    assert judgments.queries == tuple(ids)
    assert len(judgments) == 16


# Data sets -----------------------------------------------------------------------------------------------------------


def test_dataset_for_some_queries_keeps_corpus_and_exclusions() -> None:
    import datasets

    corpus = Corpus("toy", "r1", datasets.Dataset.from_dict({"id": ["a", "b"], "text": ["x", "y"]}))
    gold = Judgments.from_dict({"q1": {"a": 1}, "q2": {"b": 1}})
    pooled = Judgments.from_dict({"q1": {"a": 1, "b": 1}, "q2": {"b": 1}})
    dataset = Dataset(corpus, {"q1": "?", "q2": "!"}, gold, pooled, exclusions={"q1": frozenset({"b"})})
    part = dataset.only(["q1"])
    assert len(part.corpus) == 2
    assert part.queries == {"q1": "?"}
    assert {name: judgments.grades for name, judgments in part.judgments().items()} == {
        "gold": {"q1": {"a": 1}},
        "pooled": {"q1": {"a": 1, "b": 1}},
    }
    assert part.exclusions == {"q1": frozenset({"b"})}
    assert (part.name, part.revision) == ("toy", "r1")
    assert list(Dataset(corpus, {}, gold).judgments()) == ["gold"]
