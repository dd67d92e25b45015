"""Panels against values worked out by hand and against trec_eval, from threads and in fresh processes."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval import metrics
from obliq_eval.errors import UserError
from obliq_eval.metrics import DEFAULT_MEASURES, ONE_RELEVANT_MEASURES, Panel, evaluate, parse_measure, score
from obliq_eval.records import Judgments, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND = 1 / math.log2(3)  # the discount at rank 2
CONGRESS = Path(__file__).resolve().parents[2] / "shared" / "data" / "congress-weaviate"

Scores = dict[str, dict[str, float]]
Grades = dict[str, dict[str, int]]


def trec_eval(run: Mapping[str, Mapping[str, float]], qrels: Grades, measure: str) -> dict[str, float]:
    """Return pytrec_eval's values, 0 for queries that it drops because the run lacks them."""
    name, k = parse_measure(measure)
    if name == "mrr":  # trec_eval has no cut-off here: cut the list in trec_eval's order first
        first = {q: sorted(answer, key=lambda d: (np.float32(answer[d]), d))[-k:] for q, answer in run.items()}
        run = {q: {d: run[q][d] for d in documents} for q, documents in first.items()}
    asked, key = {
        "ndcg": (f"ndcg_cut.{k}", f"ndcg_cut_{k}"),
        "recall": (f"recall.{k}", f"recall_{k}"),
        "success": (f"success.{k}", f"success_{k}"),
        "mrr": ("recip_rank", "recip_rank"),
    }[name]
    found = pytrec_eval.RelevanceEvaluator(qrels, {asked}).evaluate({q: a for q, a in run.items() if a})
    return {q: found[q][key] if q in found else 0.0 for q, grades in qrels.items() if max(grades.values()) > 0}


# Hand-worked values --------------------------------------------------------------------------------------------------


def test_graded_relevance() -> None:
    # Ranking b (grade 1), x (unjudged), a (grade 2), n (grade -1, which counts as 0).
    # DCG = 1/log2(2) + 2/log2(4) = 2; ideal order a, b, c: 2 + 1/log2(3) + 1/log2(4) = 2.5 + 1/log2(3).
    panel = evaluate(
        {"q": {"b": 4.0, "x": 3.0, "a": 2.0, "n": 1.0}},
        {"q": {"a": 2, "b": 1, "c": 1, "n": -1, "z": 0}},
        ["ndcg@10", "ndcg@1", "recall@1", "recall@4", "mrr@10", "success@1"],
        depth=100,
    )
    assert panel.means() == pytest.approx(
        {
            "ndcg@10": 2 / (2.5 + SECOND),
            "ndcg@1": 1 / 2,
            "recall@1": 1 / 3,
            "recall@4": 2 / 3,
            "mrr@10": 1.0,
            "success@1": 1.0,
        },
        abs=1e-12,
    )


def test_a_negative_grade_is_a_grade_of_zero() -> None:
    run: Scores = {"q": {"n": 2.0, "a": 1.0}}
    for grade in (-1, 0):
        panel = evaluate(run, {"q": {"a": 1, "n": grade}}, ["ndcg@10", "recall@1", "mrr@10"])
        assert panel.means() == pytest.approx({"ndcg@10": SECOND, "recall@1": 0.0, "mrr@10": 0.5}, abs=1e-12)


@pytest.mark.parametrize("documents", [["a", "b"], ["b", "a"]])
def test_ties_follow_trec_eval_whatever_the_input_order(documents: list[str]) -> None:
    # Equal scores: b before a, so the relevant a stands at rank 2.
    run = {"q": dict.fromkeys(documents, 1.0)}
    qrels = {"q": {"a": 1}}
    panel = evaluate(run, qrels)
    assert panel.mean("ndcg@10") == pytest.approx(SECOND, abs=1e-12)
    assert panel.mean("mrr@10") == 0.5
    assert trec_eval(run, qrels, "ndcg@10") == pytest.approx({"q": SECOND}, abs=1e-12)
    assert trec_eval(Run.of(run).to_dict(), qrels, "mrr@10") == {"q": 0.5}


@pytest.mark.parametrize("qrels", [{}, {"q2": {}}, {"q2": {"a": 0}}, {"q2": {"a": 0, "b": -2}}])
def test_unjudgeable_query_is_named_and_changes_nothing(qrels: Grades) -> None:
    judged: Grades = {"q1": {"a": 1, "b": 1}, "q3": {"c": 2, "d": 1}}
    run: Scores = {"q1": {"a": 1.0}, "q3": {"x": 2.0, "d": 1.0, "c": 0.5}}
    without = evaluate(run, judged)
    panel = evaluate(run | {"q2": {"a": 1.0}}, judged | qrels)
    assert panel.queries == ("q1", "q3")
    assert panel.unjudgeable == ("q2",)
    assert panel.unknown == (0 if qrels else 1)
    assert (without.unjudgeable, without.unknown) == ((), 0)
    for measure in DEFAULT_MEASURES:
        assert panel.values[measure].tolist() == without.values[measure].tolist()
        assert ((panel.values[measure] >= 0) & (panel.values[measure] <= 1)).all()


@pytest.mark.parametrize("answers", [{}, {"q2": {}}])
def test_unanswered_query_is_named_and_scores_zero(answers: Scores) -> None:
    panel = evaluate({"q1": {"a": 1.0}} | answers, {"q1": {"a": 1}, "q2": {"b": 1}})
    assert panel.unanswered == ("q2",)
    assert panel.values["mrr@10"].tolist() == [1.0, 0.0]
    assert panel.mean("mrr@10") == 0.5


def test_a_run_without_any_answer_scores_zero() -> None:
    panel = evaluate({}, {"q1": {"a": 1}, "q2": {"b": 1, "c": 1}}, depth=1000)
    assert panel.means() == dict.fromkeys(DEFAULT_MEASURES, 0.0)
    assert panel.unanswered == ("q1", "q2")
    assert (panel.judged_at_10, panel.unjudged_at_10) == (None, 0)


def test_queries_keep_the_order_of_the_judgments() -> None:
    panel = evaluate({"q1": {"a": 1.0}, "q10": {"x": 1.0}}, {"q10": {"a": 1}, "q1": {"a": 1}}, ["mrr@1"])
    assert panel.queries == ("q10", "q1")
    assert panel.values["mrr@1"].tolist() == [0.0, 1.0]
    assert panel.values["mrr@1"].dtype == np.float64


def test_judgments_from_a_generator_score_the_same_twice() -> None:
    judgments = Judgments.of((query, "a", 1) for query in ("q1", "q2"))
    run = Run.from_lists({"q1": ["b", "a"], "q2": ["a"]}, depth=1000)
    first, second = score(run, judgments).means(), score(run, judgments).means()
    assert first == second
    assert first["mrr@10"] == 0.75


def test_ids_are_compared_verbatim() -> None:
    # "7" is not "007", and a query id may hold what it likes.
    panel = evaluate({"1e3 /é": {"7": 2.0, "007": 1.0}}, {"1e3 /é": {"007": 1}})
    assert panel.mean("mrr@10") == 0.5


# Which measures, and which are known ---------------------------------------------------------------------------------


def test_measures_for_one_relevant_document_are_added_where_every_query_has_one() -> None:
    run: Scores = {"q1": {"a": 1.0}}
    assert evaluate(run, {"q1": {"a": 1, "b": 0}, "q2": {"a": 3}}).measures == DEFAULT_MEASURES + ONE_RELEVANT_MEASURES
    assert evaluate(run, {"q1": {"a": 1, "b": 1}, "q2": {"a": 3}}).measures == DEFAULT_MEASURES
    assert evaluate(run, {"q1": {"a": 1}}, ["recall@7"]).measures == ("recall@7",)


def test_recall_beyond_the_depth_is_unknown() -> None:
    lists = {"q1": [f"d{i}" for i in range(20)], "q2": ["d3"]}
    qrels = {"q1": {"d19": 1}, "q2": {"d3": 1}}
    means = evaluate(lists, qrels).means()
    assert {measure for measure, mean in means.items() if mean is None} == {"recall@50", "recall@100", "recall@1000"}
    assert means["recall@10"] == 0.5
    assert means["ndcg@50"] == pytest.approx((1 / math.log2(21) + 1) / 2, abs=1e-12)
    assert evaluate(lists, qrels, ["recall@20", "success@20", "success@21"]).means() == {
        "recall@20": 1.0,
        "success@20": 1.0,
        "success@21": None,
    }
    assert evaluate(lists, qrels, depth=100).mean("recall@100") == 1.0
    assert evaluate(Run.from_lists(lists), qrels, depth=100).mean("recall@100") == 1.0


@pytest.mark.parametrize("measure", ["ndcg", "ndcg@0", "map@10", "recall@-1", "NDCG@10", "recall@10x"])
def test_unknown_measure_is_refused(measure: str) -> None:
    with pytest.raises(UserError, match=f"measure '{measure}' is unknown"):
        evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}, [measure])


def test_values_cannot_be_changed() -> None:
    panel = evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}})
    with pytest.raises(ValueError, match="read-only"):
        panel.values["ndcg@10"][0] = 0.0


# Judged@10 -----------------------------------------------------------------------------------------------------------


def test_judged_at_10_counts_every_judgment_among_the_first_ten() -> None:
    # q1: 12 documents, of the first ten d0, d1 (grade 0), d2 (grade -1) are judged: 3/10; d11 stands too deep.
    # q2: two documents, one judged: 1/2. q3 is unanswered and left out. Mean .4; unjudged 7 + 1.
    lists = {"q1": [f"d{i}" for i in range(12)], "q2": ["a", "b"], "q3": []}
    qrels = {"q1": {"d0": 1, "d1": 0, "d2": -1, "d11": 1}, "q2": {"b": 1}, "q3": {"a": 1}}
    panel = evaluate(lists, qrels)
    assert panel.judged_at_10 == pytest.approx(0.4, abs=1e-12)
    assert panel.unjudged_at_10 == 8


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qrels", [{}, {"q": {}}, {"q": {"a": 0}}])
def test_judgments_without_a_relevant_document_are_refused(qrels: Grades) -> None:
    with pytest.raises(UserError, match="no query has a relevant document") as caught:
        evaluate({"q": {"a": 1.0}}, qrels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ({7: {"a": 1.0}}, {"7": {"a": 1}}, "run: query id 7 is not a string"),
        ({"q": {7: 1.0}}, {"q": {"7": 1}}, "run: query 'q': document id 7 is not a string"),
        ({"q": ["7", 7]}, {"q": {"7": 1}}, "run: query 'q': document id 7 is not a string"),
        ({"q": {"7": 1.0}}, {"q": {7: 1}}, "qrels: query 'q': document id 7 is not a string"),
        ({"q": "abc"}, {"q": {"a": 1}}, "run: query 'q' must have a list of document ids, not str"),
        ({"q": {"a": 1.0}, "r": ["a"]}, {"q": {"a": 1}}, "run: query 'r' must have a dict"),
        ({"q": {"a": 1.0}}, {"q": ["a"]}, "qrels: query 'q' must have a dict {document id: grade}, not list"),
        ({"q": {"a": 1.0}}, {"q": {"a": 0.9}}, "grade 0.9 is not a whole number"),
        ({"q": ["d1", "d1", "d2"]}, {"q": {"a": 1}}, "run: query 'q': document 'd1' is ranked more than once"),
        ({"q": {"a": math.nan}}, {"q": {"a": 1}}, "document 'a' has a score that is not a finite number"),
    ],
)
def test_bad_input_is_told_in_one_sentence(run: Any, qrels: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        evaluate(run, qrels)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Against trec_eval, and from threads ---------------------------------------------------------------------------------

QUERIES = st.sampled_from(["q1", "q 2", "7", "007", "é/x"])
DOCUMENTS = st.sampled_from([f"d{i}" for i in range(9)] + ["7", "007", "a b", "é", "Z/\\'\""])
# Few values, so that ties are the rule; two of them differ by less than float32 can tell.
SCORES = st.sampled_from([-1.5, 0.0, 0.5, 1.0, 1.0 + 1e-8, 2.0])
MEASURES = ["ndcg@3", "ndcg@10", "recall@2", "recall@10", "mrr@2", "mrr@10", "success@1", "success@5"]


@settings(deadline=None, max_examples=100)
@given(
    run=st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, SCORES)),
    qrels=st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, st.integers(-1, 3), min_size=1), min_size=1).filter(
        lambda qrels: any(grade > 0 for grades in qrels.values() for grade in grades.values())
    ),
)
def test_every_value_equals_pytrec_eval(run: Scores, qrels: Grades) -> None:
    panel = evaluate(run, qrels, MEASURES)
    for measure in MEASURES:
        expected = trec_eval(run, qrels, measure)
        assert panel.queries == tuple(expected)
        np.testing.assert_allclose(panel.values[measure], list(expected.values()), rtol=0, atol=1e-12)


def random_run(queries: int, documents: int, seed: int = 0) -> tuple[Scores, Grades]:
    rng = np.random.default_rng(seed)
    ids = [f"d{i}" for i in range(3 * documents)]
    run: Scores = {}
    qrels: Grades = {}
    for q in range(queries):
        returned = rng.choice(ids, documents, replace=False)
        run[f"q{q}"] = dict(zip(returned.tolist(), rng.integers(0, 50, documents).astype(float).tolist(), strict=True))
        judged = rng.choice(ids, 40, replace=False).tolist()
        qrels[f"q{q}"] = dict(zip(judged, rng.integers(0, 4, 40).tolist(), strict=True))
    return run, qrels


def test_default_panel_equals_pytrec_eval_at_depth() -> None:
    run, qrels = random_run(queries=30, documents=1000)
    panel = evaluate(run, qrels)
    for measure in DEFAULT_MEASURES:
        expected = list(trec_eval(run, qrels, measure).values())
        np.testing.assert_allclose(panel.values[measure], expected, rtol=0, atol=1e-12)
        assert panel.mean(measure) == pytest.approx(np.mean(expected), abs=1e-12)


def test_eight_threads_get_the_values_of_one() -> None:
    run, qrels = random_run(queries=40, documents=200)
    canonical, judgments = Run.of(run, depth=1000), Judgments.from_dict(qrels)
    alone = score(canonical, judgments)
    with ThreadPoolExecutor(8) as pool:
        panels = list(pool.map(lambda _: score(canonical, judgments), range(64)))
    assert len(panels) == 64
    for panel in panels:
        for measure in alone.measures:
            assert panel.values[measure].tolist() == alone.values[measure].tolist()


@pytest.mark.skipif(not CONGRESS.is_dir(), reason="the published Congress runs are not beside this repository")
def test_published_means_come_out() -> None:
    lines = (CONGRESS / "qrels.tsv").read_text().splitlines()
    judgments = Judgments.of(tuple(line.split("\t")) for line in lines[1:])  # type: ignore[misc] # three columns
    assert len(judgments.queries) == 254
    measures = ["ndcg@10", "recall@1", "recall@5", "recall@20", "recall@50"]
    for system, published in json.loads((CONGRESS / "published.json").read_text()).items():
        rows = [json.loads(line) for line in (CONGRESS / "runs" / f"{system}.jsonl").read_text().splitlines()]
        panel = evaluate({row["query_id"]: row["retrieved_ids"] for row in rows}, judgments, measures)
        assert set(panel.unanswered) == {row["query_id"] for row in rows if not row["retrieved_ids"]}
        assert panel.mean("ndcg@10") == pytest.approx(published["avg_nDCG_at_10"], abs=1e-9)
        for k in (1, 5, 20):
            assert panel.mean(f"recall@{k}") == pytest.approx(published[f"avg_recall_at_{k}"], abs=1e-9)
        assert panel.mean("recall@50") is None


# How ranx is loaded --------------------------------------------------------------------------------------------------


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | environment
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)


TINY = "evaluate({'q': {'a': 1.0, 'b': 1.0}}, {'q': {'a': 1}}, ['mrr@10']).mean('mrr@10')"


def test_ranx_and_numba_are_imported_by_the_first_score_only() -> None:
    heavy = "[m for m in ('numba', 'ranx', 'ranx.metrics', 'pandas', 'matplotlib', 'ir_datasets') if m in sys.modules]"
    code = f"import sys\nfrom obliq_eval.metrics import evaluate\nprint({heavy})\n{TINY}\nprint({heavy})"
    assert python(code).stdout.splitlines() == ["[]", "['numba', 'ranx.metrics']"]


@pytest.mark.slow
def test_all_of_ranx_can_be_imported_afterwards(tmp_path: Path) -> None:
    code = (
        f"from obliq_eval.metrics import evaluate\nprint({TINY})\n"
        f"import ranx\nfrom ranx.metrics import ndcg\nprint(ranx.Qrels, ndcg)\nprint({TINY})"
    )
    values = python(code, IR_DATASETS_HOME=str(tmp_path)).stdout.splitlines()
    assert (values[0], values[-1]) == ("0.5", "0.5")


def test_compilation_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    import numba

    def compiled(x: int) -> int:
        return x + 1

    function: Any = numba.njit(compiled)
    with caplog.at_level(logging.INFO, logger="obliq"), metrics._compilation_announced():
        assert (function(1), function(1.5)) == (2, 2.5)
    assert [record.name for record in caplog.records] == ["obliq"]
    caplog.clear()
    with metrics._compilation_announced():
        function(1)
    assert caplog.records == []


CHOOSE = "import os\nfrom pathlib import Path\nfrom obliq_eval.metrics import _choose_numba_cache, evaluate\n"


def test_compiled_code_is_kept_in_obliq_home_where_the_installation_is_read_only(tmp_path: Path) -> None:
    code = CHOOSE + "_choose_numba_cache(Path({!r}))\nprint(os.environ.get('NUMBA_CACHE_DIR'))"
    absent, home = str(tmp_path / "absent"), str(tmp_path / "home")
    assert python(code.format(absent), OBLIQ_HOME=home).stdout.strip() == str(tmp_path / "home" / "numba")
    assert python(code.format(str(tmp_path)), OBLIQ_HOME=home).stdout.strip() == "None"
    assert python(code.format(absent), OBLIQ_HOME=home, NUMBA_CACHE_DIR="mine").stdout.strip() == "mine"


def test_compiled_code_goes_to_a_temporary_folder_where_nothing_else_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # no folder can be made inside a file, by anyone
    code = CHOOSE + f"_choose_numba_cache(Path({str(tmp_path / 'absent')!r}))\nprint(os.environ['NUMBA_CACHE_DIR'])"
    done = python(code, OBLIQ_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path))
    assert Path(done.stdout.strip()).parent == tmp_path
    assert "cannot write" in done.stderr
    assert "OBLIQ_HOME" in done.stderr


@pytest.mark.slow
def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    code = CHOOSE + f"_choose_numba_cache(Path({str(tmp_path / 'absent')!r}))\nprint({TINY})"
    first, second = (python(code, OBLIQ_HOME=str(tmp_path)) for _ in range(2))
    assert first.stdout == second.stdout == "0.5\n"
    assert first.stderr.count("compiling ranx's measures") == 1
    assert second.stderr == ""
    assert list((tmp_path / "numba").rglob("*.nbc"))


def test_panel_is_frozen() -> None:
    panel = evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}})
    assert isinstance(panel, Panel)
    with pytest.raises(AttributeError):
        panel.depth = 5  # type: ignore[misc]


def test_evaluate_cuts_to_the_depth_that_it_is_given() -> None:
    """The gold d is second: cut to one document, nothing is found."""
    panel = evaluate({"q": ["a", "d"]}, {"q": {"d": 1}}, ["ndcg@10", "recall@1"], depth=1)
    assert (panel.mean("ndcg@10"), panel.mean("recall@1")) == (0.0, 0.0)
    for depth in (0, -1, 1.5):
        with pytest.raises(UserError, match="not a whole number of documents"):
            evaluate({"q": ["a"]}, {"q": {"a": 1}}, depth=depth)  # type: ignore[arg-type]


@pytest.mark.parametrize("measure", ["ndcg@99999999999999999999", "ndcg@0", "ndcg@1000000"])
def test_a_cut_off_beyond_reason_is_refused(measure: str) -> None:
    with pytest.raises(UserError, match="is unknown"):
        evaluate({"q": ["a"]}, {"q": {"a": 1}}, [measure])


def test_a_score_too_long_for_a_float_is_refused() -> None:
    with pytest.raises(UserError, match="query 'q': scores must be numbers"):
        evaluate({"q": {"a": 10**400}}, {"q": {"a": 1}})
