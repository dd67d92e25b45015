"""The audit: each finding once, on data made for it and on the toy repositories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.data.audit import Finding, audit
from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI, load, open_source
from obliq_eval.demo.toy import TASKS, write_official
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from obliq_eval.data.audit import Level


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))


CLEAN: dict[str, Any] = {
    "documents": [("d1", "one"), ("d2", "two"), ("d3", "three")],
    "queries": [("q1", "first?"), ("q2", "second?")],
    "gold": [("q1", "d1", 1), ("q2", "d2", 2)],
    "pooled": None,
    "excluded": {"q1": ["d3"]},
    "groups": {"q1": "Ada"},
}


def folder(root: Path, **changes: Any) -> Path:
    """Write a folder in the official layout: the clean data set, with changes."""
    data = CLEAN | changes
    judged = root / "queries+qrels"
    judged.mkdir(parents=True)
    (root / "corpus").mkdir()
    for path, rows in ((root / "corpus/corpus.jsonl", "documents"), (judged / "queries.jsonl", "queries")):
        path.write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in data[rows]))
    for name, rows in (("qrels.tsv", "gold"), ("qrels_pool.tsv", "pooled")):
        if data[rows] is not None:
            lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in data[rows])]
            (judged / name).write_text("\n".join(lines))
    (judged / "per_query_excluded_ids.json").write_text(json.dumps(data["excluded"]))
    (judged / "groups.json").write_text(json.dumps(data["groups"]))
    return root


def found(path: Path) -> list[Finding]:
    """Return what the audit of a folder finds, sizes apart."""
    return [finding for finding in audit(open_source(path)) if finding.level != "info"]


def test_a_clean_folder_has_sizes_alone(tmp_path: Path) -> None:
    assert audit(open_source(folder(tmp_path / "f"))) == [
        Finding("info", "documents", 3),
        Finding("info", "distinct texts", 3),
        Finding("info", "queries", 2),
        Finding("info", "gold judgments", 2),
        Finding("info", "excluded documents", 1),
    ]


GOLD, POOL = [("q1", "d1", 1), ("q2", "d2", 2)], [("q1", "d1", 1), ("q2", "d2", 2), ("q2", "d3", 1)]
CASES: dict[str, tuple[dict[str, Any], Level, int, str]] = {
    "document ids that occur more than once": (
        {"documents": [*CLEAN["documents"], ("d1", "four"), ("d1", "five")]}, "error", 2, "'d1'",
    ),
    "gold documents not in the corpus": ({"gold": [*GOLD, ("q1", "gone", 1)]}, "error", 1, "'gone'"),
    "pooled documents not in the corpus": ({"pooled": [*POOL, ("q1", "gone", 1)]}, "error", 1, "'gone'"),
    "gold queries without a text": ({"gold": [*GOLD, ("who", "d1", 1)]}, "error", 1, "'who'"),
    "pooled queries without a text": ({"pooled": [*POOL, ("who", "d1", 1)]}, "error", 1, "'who'"),
    "documents both gold and excluded for a query": ({"excluded": {"q1": ["d1", "d3"]}}, "error", 1, "'q1 / d1'"),
    "documents relevant in the pool alone, and excluded for the query": (
        {"pooled": POOL, "excluded": {"q2": ["d3"]}}, "warning", 1, "'q2 / d3'",
    ),
    "excluded documents not in the corpus": ({"excluded": {"q1": ["gone"], "q2": ["gone"]}}, "warning", 1, "'gone'"),
    "queries without judgments": ({"queries": [*CLEAN["queries"], ("q3", "?")]}, "warning", 1, "'q3'"),
    "queries whose text is empty": ({"queries": [("q1", " "), ("q2", "?")]}, "warning", 1, "'q1'"),
    "queries in the exclusions file without a text": ({"excluded": {"Q1": ["d3"]}}, "warning", 1, "'Q1'"),
    "queries in the groups file without a text": ({"groups": {"Q1": "Ada"}}, "warning", 1, "'Q1'"),
    "gold queries judged, but with no relevant document": (
        {"gold": [("q1", "d1", 1), ("q2", "d2", 0)]}, "warning", 1, "'q2'",
    ),
    "negative gold grades, counted as not relevant": ({"gold": [*GOLD, ("q1", "d2", -1)]}, "warning", 1, ""),
    "gold documents that the pool does not call relevant": (
        {"pooled": [("q1", "d1", 1), ("q2", "d2", 0), ("q2", "d3", 1)]}, "warning", 1, "'q2 / d2'",
    ),
    "empty texts": ({"documents": [("d1", ""), ("d2", " "), ("d3", "x")]}, "warning", 2, ""),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_each_finding_is_found_once_and_alone(what: str, tmp_path: Path) -> None:
    changes, level, count, detail = CASES[what]
    (finding,) = found(folder(tmp_path / "f", **changes))
    assert (finding.level, finding.what, finding.count) == (level, what, count)
    assert detail in finding.detail


def test_queries_that_are_not_counted_are_mentioned(tmp_path: Path) -> None:
    """Two of three texts have no relevant document: one is not judged, of one every grade is 0."""
    path = folder(tmp_path / "f", queries=[*CLEAN["queries"], ("q3", "?")], gold=[("q1", "d1", 1), ("q2", "d2", 0)])
    assert Finding("info", "queries", 1, "2 more have no relevant document") in audit(open_source(path))
    none = folder(tmp_path / "g", gold=[], excluded={}, groups={})
    assert Finding("info", "queries", 0, "2 more have no relevant document") in audit(open_source(none))


def test_a_judgment_of_nought_is_not_gold(tmp_path: Path) -> None:
    assert found(folder(tmp_path / "f", gold=[*GOLD, ("q1", "d3", 0)])) == []


def test_copies_are_counted_and_no_fault(tmp_path: Path) -> None:
    loaded = open_source(folder(tmp_path / "f", documents=[("d1", "one"), ("d2", "one"), ("d3", "one")]))
    assert Finding("info", "documents that repeat another's text", 2) in audit(loaded)
    assert {f.level for f in audit(loaded)} == {"info"}


def test_errors_come_first_and_long_lists_are_cut(tmp_path: Path) -> None:
    gone = [("q1", f"gone{n}", 1) for n in range(9)]
    findings = audit(open_source(folder(tmp_path / "f", gold=[*GOLD, *gone], excluded={"q1": ["absent"]})))
    assert [f.level for f in findings] == sorted((f.level for f in findings), key=["error", "warning", "info"].index)
    assert (findings[0].count, findings[0].detail) == (9, "'gone0', 'gone1', 'gone2', …")


def test_loading_refuses_what_would_score_wrongly(tmp_path: Path) -> None:
    twice = folder(tmp_path / "a", documents=[*CLEAN["documents"], ("d1", "x")], gold=[*GOLD, ("who", "d1", 1)])
    with pytest.raises(UserError) as caught:
        load(twice)
    assert "2 problems" in str(caught.value)
    assert "1 documents repeat an id, among them 'd1'" in str(caught.value)
    assert "1 judged queries have no text, among them 'who'" in str(caught.value)


@pytest.mark.parametrize("task", TASKS)
def test_the_toy_has_the_quirks_that_it_was_given(task: str, tmp_path: Path) -> None:
    write_official(tmp_path / "toy", task)
    findings = {f.what: (f.level, f.count) for f in audit(open_source(tmp_path / "toy")) if f.level != "info"}
    gone = {"gold documents not in the corpus": ("error", 1), "pooled documents not in the corpus": ("error", 1)}
    assert (
        findings
        == {
            "descriptive/twitter": {**gone, "queries without judgments": ("warning", 1)},
            "descriptive/wildchat": {**gone, "empty texts": ("warning", 1)},
            "analogues/math": {"documents both gold and excluded for a query": ("error", 1)},
            "analogues/writing": {},
            "tip-of-tongue/congress": {},
        }[task]
    )


def test_official_names_are_held_against_the_published_counts(tmp_path: Path) -> None:
    write_official(tmp_path / "OBLIQ-Math", "analogues/math")
    findings = {f.what: f for f in audit(open_source(tmp_path / "OBLIQ-Math")) if "published" in f.what}
    task = OFFICIAL["OBLIQ-Math"]
    published = {
        "documents": task.documents,
        "distinct texts": task.distinct_texts,
        "queries": task.queries,
        "gold judgments": task.gold,
        "pooled judgments": task.pooled,
    }
    assert set(findings) == {f"{what} differ from the published count" for what in published}
    for what, count in published.items():
        finding = findings[f"{what} differ from the published count"]
        assert (finding.level, finding.detail) == ("error", f"published: {count}")


@pytest.mark.parametrize("name", MINI)
def test_the_bundled_sets_have_no_error(name: str) -> None:
    assert [f for f in audit(open_source(name)) if f.level == "error"] == []
