"""Systems against a baseline: differences worked out by hand, warnings, refusals, and the tables they become."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from obliq_eval import markup, significance
from obliq_eval.comparison import Comparison, compare, ordered, stages
from obliq_eval.comparison_tables import bounds, caution, label, notes, settings, views
from obliq_eval.errors import UserError
from obliq_eval.manifest import Data, Manifest, Model
from obliq_eval.records import Judgments, Run
from obliq_eval.reference import Reference, System, open_qrels
from obliq_eval.run_files import read_run

REAL = Path(__file__).parents[2] / "shared" / "data" / "congress-weaviate"
SECOND = 1 / math.log2(3)  # NDCG of a single relevant document at rank 2
FILL = [f"x{i}" for i in range(10)]
GOLD = Judgments({f"q{i}": {f"g{i}": 1} for i in range(1, 6)})
REFERENCE = Reference("toy", {"gold": GOLD})

BASE = {"q1": ["x0", "g1"], "q2": ["g2"], "q3": ["g3"], "q4": FILL, "q5": FILL}
BETTER = {"q1": ["g1"], "q2": ["g2"], "q3": ["g3"], "q4": [*FILL, "g4"], "q5": ["g5"]}
OTHER = {"q1": ["g1"], "q2": ["x0", "g2"], "q3": ["g3"], "q4": [*FILL, "g4"], "q5": FILL}


def system(name: str, answers: dict[str, list[str]], depth: int = 100, manifest: Manifest | None = None) -> System:
    run = Run.from_lists(answers, depth)
    return System(name, run, run, manifest.run_id if manifest else name, manifest)


def manifest(name: str, revision: str | None = None, **more: object) -> Manifest:
    model = Model(f"me/{name}", alias=name, settings=dict(more.pop("settings", {})))  # type: ignore[call-overload]
    return Manifest("toy", Data("toy", revision, "folder"), model, 100, 5, run_id=f"{name}_toy-1", **more)  # type: ignore[arg-type]


def compared(*systems: System) -> Comparison:
    return compare(REFERENCE, systems, resamples=2_000)


def test_means_differences_and_queries_are_those_worked_out_by_hand() -> None:
    found = compared(system("base", BASE), system("other", OTHER))
    (part,) = found.parts
    # base: SECOND, 1, 1, 0, 0; other: 1, SECOND, 1, 0, 0
    assert part.panels["base"].mean("ndcg@10") == pytest.approx((SECOND + 2) / 5)
    (contrast,) = part.contrasts
    assert contrast.test.difference == pytest.approx(0)
    assert contrast.test.low < 0 < contrast.test.high
    assert contrast.test.n == 5
    failures = contrast.failures
    assert (failures.helped, failures.hurt, failures.tied) == (("q1",), ("q2",), ("q3",))
    assert (failures.in_pool, failures.outside_pool) == (("q4",), ("q5",))


def test_the_sign_of_a_difference_is_system_less_baseline() -> None:
    (contrast,) = compared(system("base", BASE), system("better", BETTER)).parts[0].contrasts
    assert contrast.test.difference == pytest.approx((1 - SECOND + 1) / 5)  # q1 and q5


def test_holm_is_over_the_systems_and_not_the_baseline() -> None:
    found = compared(system("base", BASE), system("better", BETTER), system("other", OTHER))
    part = found.parts[0]
    assert [c.system for c in part.contrasts] == ["better", "other"]
    assert tuple(c.adjusted_p for c in part.contrasts) == significance.holm([c.test.p for c in part.contrasts])
    assert part.family == "2 systems against base, gold"


def test_identical_runs_do_not_differ() -> None:
    (contrast,) = compared(system("base", BASE), system("again", BASE)).parts[0].contrasts
    test = contrast.test
    assert (test.difference, test.low, test.high, test.p, contrast.adjusted_p) == (0, 0, 0, 1, 1)
    assert not contrast.failures.helped
    assert not contrast.failures.hurt


def test_the_pool_of_a_reranker_is_what_its_retriever_found() -> None:
    cut = {**BASE, "q4": FILL}  # the reranker returned 10 documents of the baseline's 11
    base = system("dense", {**BASE, "q4": [*FILL, "g4"]}, manifest=manifest("dense"))
    reranked = compared(base, system("dense+judge", cut, manifest=manifest("dense+judge")))
    unrelated = compared(base, system("lexical", cut, manifest=manifest("lexical")))
    assert reranked.parts[0].contrasts[0].failures.in_pool == ("q4",)
    assert unrelated.parts[0].contrasts[0].failures.in_pool == ()


def test_a_pipeline_against_another_retriever_differs_in_two_stages() -> None:
    base = system("lexical", BASE, manifest=manifest("lexical"))
    both = system("dense+judge", OTHER, manifest=manifest("dense+judge"))
    assert any(
        warning.startswith("dense+judge and lexical differ in 2 stages (lexical → dense, none → judge)")
        for warning in compared(base, both).warnings
    )
    one = system("lexical+judge", OTHER, manifest=manifest("lexical+judge"))
    assert not any("stages" in warning for warning in compared(base, one).warnings)


def test_stages_come_from_names_and_manifests() -> None:
    assert stages(system("a + b", {})) == ("a", "b")
    assert stages(system("obliq-ir-full", {})) == ("obliq-ir", "policy")
    assert stages(system("x", {}, manifest=manifest("judge", settings={"reranked": True}))) == (
        "candidates of another run", "judge",
    )  # fmt: skip


def test_differences_in_depth_coverage_and_size_are_mentioned() -> None:
    base = system("base", BASE, manifest=manifest("base"))
    other = system("other", OTHER, depth=20, manifest=manifest("other", coverage="dev"))
    warnings = "\n".join(compared(base, other).warnings)
    assert "differ in depth (base 100, other 20)" in warnings
    assert "cover different queries (base all, other dev)" in warnings
    assert "n = 5 is small" in warnings


def test_recall_beyond_the_depth_is_unknown() -> None:
    found = compared(system("base", BASE), system("short", OTHER, depth=20))
    means = found.to_dict()["judgments"]["gold"]["means"]
    assert means["base"]["recall@100"] is not None
    assert means["short"]["recall@100"] is None


def test_mixed_revisions_one_run_and_one_query_are_refused() -> None:
    one = system("one", BASE, manifest=manifest("one", "aaa"))
    with pytest.raises(UserError, match=r"different revisions of the data \(one searched aaa, two searched bbb\)"):
        compared(one, system("two", OTHER, manifest=manifest("two", "bbb")))
    with pytest.raises(UserError, match="at least two runs"):
        compared(one)
    single = Reference("toy", {"gold": GOLD.only(["q1"])})
    with pytest.raises(UserError, match="an interval or a test needs at least 2"):
        compare(single, (one, system("two", OTHER)))


def test_the_baseline_may_be_named() -> None:
    systems = (system("one", BASE), system("two", OTHER))
    assert [s.name for s in ordered(systems, "two")] == ["two", "one"]
    assert ordered(systems, None) == systems
    with pytest.raises(UserError, match='none of the systems one, two; did you mean "one"'):
        ordered(systems, "onee")


def test_the_tables_name_test_resamples_seed_n_and_family() -> None:
    found = compared(system("base", BASE), system("other", OTHER))
    means, tests, queries = views(found, found.parts[0])
    assert means.rows[1][:2] == ("other", pytest.approx((SECOND + 2) / 5))
    assert tests.rows[0][:2] in {("other", "+0.000"), ("other", "-0.000")}
    assert queries.rows == (("other", 1, 1, 1, 2, 1, 1),)
    assert queries.columns[-2:] == ("gold outside the pool", "gold in it, below rank 10")
    note, _ = notes(found, found.parts[0])
    for words in ("paired bootstrap", "2,000 resamples", "seed 0", "n = 5", "family: 1 system against base, gold"):
        assert words in note


def test_the_tables_and_json_name_the_method_and_the_tests_of_ranx() -> None:
    systems = (system("base", BASE), system("better", BETTER), system("other", OTHER))
    found = compare(REFERENCE, systems, resamples=500, seed=3, method="bca", tests=("student", "fisher"))
    (part,) = found.parts
    base = part.panels["base"].values["ndcg@10"]
    for contrast in part.contrasts:
        own = part.panels[contrast.system].values["ndcg@10"]
        assert contrast.test == significance.paired_bootstrap(own, base, resamples=500, seed=3, method="bca")
        assert contrast.ranx_p == {
            "student": significance.ranx_test(own, base), "fisher": significance.ranx_test(own, base, "fisher"),
        }  # fmt: skip
    assert [c.adjusted_p for c in part.contrasts] == list(significance.holm([c.test.p for c in part.contrasts]))
    tests = views(found, part)[1]
    assert tests.columns[-4:] == ("p", "Holm p", "ranx student p", "ranx fisher p")
    assert tests.rows[1][-2:] == tuple(f"{p:.4f}" for p in part.contrasts[1].ranx_p.values())
    note, _ = notes(found, part)
    for words in (
        "95 % BCa interval, 500 resamples, seed 3",
        "ranx student p: ranx's paired",
        "seed 0, can be 0), not",
    ):
        assert words in note
    told = found.to_dict()["judgments"]["gold"]["contrasts"][0]
    assert told["ranx_p"] == part.contrasts[0].ranx_p
    assert (told["method"], told["resamples"], told["seed"]) == ("bca", 500, 3)
    plain = compared(*systems)
    assert "ranx" not in notes(plain, plain.parts[0])[0]
    assert len(views(plain, plain.parts[0])[1].columns) == 5


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"method": "bcaa"}, 'mean "bca"'), ({"tests": ("t",)}, '"t" is unknown'), ({"resamples": 39}, "too few")],
)
def test_settings_that_cannot_be_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(REFERENCE, (system("base", BASE), system("other", OTHER)), **setting)


def test_hostile_names_are_escaped_in_markdown() -> None:
    found = compared(system("base", BASE), system("<script>|x", OTHER))
    text = markup.markdown(views(found, found.parts[0])[1].columns, views(found, found.parts[0])[1].rows)
    assert "<script>" not in text
    assert all(line.replace("\\|", "").count("|") == 6 for line in text.splitlines())


def test_everything_is_json() -> None:
    found = compared(system("base", BASE), system("other", OTHER)).to_dict()
    assert json.loads(json.dumps(found)) == found
    contrast = found["judgments"]["gold"]["contrasts"][0]
    assert {"difference", "low", "high", "p", "adjusted_p", "n", "seed", "resamples", "helped"} <= contrast.keys()


def test_words_for_measures_intervals_and_few_queries() -> None:
    interval = significance.mean_interval([0.0, 1.0], resamples=2_000)
    assert label("ndcg@10") == "NDCG@10"
    assert bounds(interval) == "[0.000, 1.000]"
    assert bounds(None) is None
    assert "paired" not in settings(interval)
    assert caution(100) is None
    assert "n = 99" in str(caution(99))


@pytest.mark.skipif(not REAL.is_dir(), reason="the real per-query results are not beside this checkout")
def test_real_runs_differ_as_their_published_means_do() -> None:
    published = json.loads((REAL / "published.json").read_text("utf-8"))
    names = ("hybrid-search-1", "effort-high-1", "effort-ultrahigh-1")
    systems = [System(n, r, r, n) for n in names for r in (read_run(REAL / "runs" / f"{n}.jsonl"),)]
    found = compare(open_qrels(REAL / "qrels.tsv"), systems)
    for contrast in found.parts[0].contrasts:
        gap = published[contrast.system]["avg_nDCG_at_10"] - published[names[0]]["avg_nDCG_at_10"]
        assert contrast.test.difference == pytest.approx(gap, abs=1e-9)
        assert contrast.test.low > 0
        assert contrast.failures.n == 254


def test_a_baseline_that_may_be_two_runs_is_refused() -> None:
    systems = (replace(system("one", BASE), run_id="bm25_T-1"), replace(system("two", OTHER), run_id="bm25_T-2"))
    assert ordered(systems, "bm25_T-2")[0].name == "two"
    with pytest.raises(UserError, match=r"begins the run ids of bm25_T-1, bm25_T-2"):
        ordered(systems, "bm25")
    with pytest.raises(UserError, match="none of the systems"):
        ordered(systems, "")
