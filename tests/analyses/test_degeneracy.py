"""The collapse test of Appendix H."""

from __future__ import annotations

from obliq_eval.analyses.degeneracy import COLUMNS, degeneracy
from obliq_eval.records import Run


def test_the_papers_collapsed_model() -> None:
    # 366 of 512 queries share one first document, and the other 146 have 19 more between them
    tops = ["same"] * 366 + [f"other{i % 19}" for i in range(146)]
    run = Run.from_lists({f"q{i}": [top, "x"] for i, top in enumerate(tops)})
    found = degeneracy(run, run.rankings)
    assert (found.queries, found.answered, found.distinct) == (512, 512, 20)
    assert found.first[0] == ("same", 366)
    assert found.share == 366 / 512
    assert found.collapsed
    assert len(found.row("s")) == len(COLUMNS)


def test_a_sound_model_and_an_order_that_does_not_depend_on_the_input() -> None:
    run = Run.from_lists({"q1": ["b"], "q2": ["a"], "q3": [], "other": ["c"]})
    found = degeneracy(run, ["q3", "q2", "q1", "q4"])
    assert found.first == (("a", 1), ("b", 1))
    assert (found.queries, found.answered, found.share, found.collapsed) == (4, 2, 0.5, False)


def test_one_answer_is_no_collapse_and_none_has_no_share() -> None:
    assert not degeneracy(Run.from_lists({"q": ["a"]}), ["q"]).collapsed
    nothing = degeneracy(Run({}, 10), ["q"])
    assert (nothing.share, nothing.collapsed) == (None, False)
    assert nothing.row("s") == ["s", 1, 0, 0, None, None, None]
