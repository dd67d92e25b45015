"""Stored runs against reported figures: tolerances worked out by hand, verdicts, explanations, exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.cli import app
from obliq_eval.data import sources
from obliq_eval.data.official import OFFICIAL, REVISION
from obliq_eval.errors import UserError
from obliq_eval.leaderboard import paper
from obliq_eval.leaderboard.explanations import ABOUT, ABOUT_SYSTEM, BM25_VARIANTS, SETTINGS, explain
from obliq_eval.leaderboard.paper import Reported
from obliq_eval.leaderboard.verify_paper import NAMES, REFERENCE, paper_system, tolerance, verifiable, verify
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MATH = 0.1402566065886442
ADAPTER = "DataScience-UIBK/OBLIQ-IR-3B-LoRA"
CARD = {
    "query_prefix": "query: ", "document_prefix": "passage: ", "query_length": 256, "document_length": 1024,
    "dtype": "bfloat16", "pooling": "mean", "normalize": True,
}  # fmt: skip
RUN = Run.from_lists({"q1": ["a", "b"], "q2": ["c"]}, depth=100)


def store(
    name: str = "obliq/bm25", alias: str | None = "bm25", task: str = "OBLIQ-Math", ndcg: float | None = 0.5,
    settings: dict[str, Any] | None = None, run: Run = RUN, **changes: Any,
) -> runs.StoredRun:  # fmt: skip
    manifest = runs.Manifest(
        task=task,
        data=runs.Data(task, REVISION, "hub", "x" if OFFICIAL[task].excludes else ""),
        model=runs.Model(name, "r", settings or {}, alias),
        depth=100,
        n_queries=2,
        scores={} if ndcg is None else {"gold": {"ndcg@10": ndcg}},
        versions={"transformers": "5.23.0"},
        hardware="Linux x86_64, 2 cores",
    )
    return runs.store(run, replace(manifest, **changes))


def figure(system: str = "bm25", task: str = "OBLIQ-Math", value: float = 0.5, decimals: int = 3) -> Reported:
    return Reported(task, system, "gold", "ndcg@10", value, decimals, "a paper", "Table 1")


def stored() -> list[runs.StoredRun]:
    return runs.scan()[0]


@pytest.mark.parametrize(
    ("system", "task", "measure", "decimals", "wanted"),
    [
        ("bm25", "OBLIQ-Writing", "ndcg@10", 3, 0.0005),
        ("obliq-ir", "OBLIQ-Writing", "ndcg@10", 3, 0.00065),
        ("obliq-ir", "OBLIQ-Writing", "ndcg@10", 17, 0.00015),
        ("obliq-ir", "OBLIQ-Congress", "ndcg@10", 3, 0.00106),
        ("obliq-ir", "OBLIQ-Congress", "recall@10", 3, 0.0005),
        ("obliq-ir", "OBLIQ-Math", "ndcg@10", 16, 0.0),
        ("obliq-ir", "OBLIQ-Twitter", "ndcg@10", 4, 0.00005),
        ("obliq-ir", "OBLIQ-Math", "recall@100", 2, 0.005),
        ("obliq-ir-full", "OBLIQ-Congress", "ndcg@10", 3, 0.0005),
    ],
)
def test_each_figure_has_its_own_tolerance(system: str, task: str, measure: str, decimals: int, wanted: float) -> None:
    assert tolerance(system, task, measure, decimals) == pytest.approx(wanted, abs=2e-12)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [(0.5, "within"), (0.50049, "within"), (0.49951, "within"), (0.50051, "differs"), (0.49949, "differs")],
)
def test_a_rounded_figure_stands_for_every_number_that_rounds_to_it(measured: float, verdict: str) -> None:
    store(ndcg=measured)
    (check,) = verify([figure()], stored()).checks
    assert check.verdict == verdict
    assert check.difference == pytest.approx(measured - 0.5)


@pytest.mark.parametrize(("measured", "differs"), [(MATH, False), (MATH + 1e-15, False), (MATH + 1e-9, True)])
def test_math_must_repeat_to_the_last_digit(measured: float, differs: bool) -> None:
    store(ADAPTER, None, ndcg=measured, settings=CARD)
    found = verify([f for f in paper.reported() if (f.system, f.measure) == (REFERENCE, "ndcg@10")], stored())
    assert [check.reported for check in found.checks] == [MATH]
    assert found.differs is differs


def test_what_a_run_is_too_shallow_to_know_is_unknown_and_no_difference() -> None:
    store()
    deep = replace(figure(), measure="recall@1000")
    found = verify([figure(), deep], stored())
    assert [check.verdict for check in found.checks] == ["within", "unknown"]
    assert found.checks[1].difference is None
    assert not found.differs


def test_the_newest_run_of_each_model_is_compared() -> None:
    store(ndcg=0.1, created="2026-01-01T00:00:00+00:00", settings={"k1": 1})
    newest = store(ndcg=0.5, created="2026-02-01T00:00:00+00:00", settings={"k1": 2})
    okapi = store("obliq/bm25-okapi", "bm25-okapi", ndcg=0.5)
    found = verify([figure()], stored())
    assert {check.run for check in found.checks} == {newest.name, okapi.name}


def test_runs_that_cannot_be_compared_are_told_with_the_reason() -> None:
    store(data=runs.Data("OBLIQ-Math", "f" * 40, "mirror"))
    store("obliq/bm25-okapi", "bm25-okapi", data=runs.Data("OBLIQ-Math", None, "import"))
    store("obliq/b", "bm25", coverage="dev")
    store(task="OBLIQ-Congress")
    store("someone/else", "else")
    found = verify([figure()], stored())
    assert found.checks == ()
    told = "\n".join(found.left_out)
    assert f"it searched data revision {'f' * 12}" in told
    assert "--data-revision" in told
    assert "covers the dev queries only" in told
    assert "states no figure for this system on this task" in told
    assert "someone" not in told
    assert len(found.left_out) == 4


def test_an_older_run_serves_where_the_newest_cannot() -> None:
    store(created="2026-02-01T00:00:00+00:00", coverage="test")
    whole = store(created="2026-01-01T00:00:00+00:00")
    assert [check.run for check in verify([figure()], stored()).checks] == [whole.name]


def test_a_run_without_scores_is_scored_without_the_excluded_documents(
    write_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_task(
        {"a": "1", "b": "2", "c": "3"}, {"q1": "x", "q2": "y"}, {"q1": {"b": 1}, "q2": {"a": 1}}, None, {"q1": ["a"]}
    )
    data = sources.load(folder)
    monkeypatch.setattr(sources, "load", {"OBLIQ-Math": data}.__getitem__)
    store(ndcg=None)  # q1: a (excluded), b; q2: c
    (check,) = verify([figure()], stored()).checks
    assert check.measured == 0.5  # q1 finds b at rank 1, q2 finds nothing


@pytest.mark.parametrize(
    ("name", "alias", "system"),
    [
        ("obliq/bm25", "bm25", "bm25"),
        ("obliq/bm25-okapi", "bm25-okapi", "bm25"),
        ("obliq/bm25-stem", "bm25-stem", None),
        (ADAPTER, None, "obliq-ir"),
        ("Qwen/Qwen3-Embedding-4B", None, "qwen3-embed-4b"),
        ("paper/obliq-ir-full", "obliq-ir-full", "obliq-ir-full"),
        ("me/lateon", None, "lateon"),
        ("me/mine", "mine", None),
    ],
)
def test_models_are_known_by_table_alias_and_name(name: str, alias: str | None, system: str | None) -> None:
    known = {figure.system for figure in paper.reported()}
    assert paper_system(runs.Model(name, None, {}, alias), known) == system


def test_every_name_and_setting_belongs_to_a_system_of_the_paper() -> None:
    known = {figure.system for figure in paper.reported()}
    assert {*NAMES.values(), *SETTINGS, *ABOUT_SYSTEM, *(system for system, _ in ABOUT)} <= known
    assert {*BM25_VARIANTS, *(task for _, task in ABOUT)} <= OFFICIAL.keys()


def test_order_is_compared_with_the_authors_own_run() -> None:
    mine = store(ADAPTER, None, settings=CARD)
    figures = [figure(REFERENCE)]
    assert "import-authors" in verify(figures, stored()).hints[0]
    own = store("paper/obliq-ir", "obliq-ir", who="paper")
    found = verify(figures, stored())
    assert [(o.run, o.reference, o.verdict, o.found.same_order) for o in found.orders] == [
        (mine.name, own.name, "within", 2)
    ]
    assert found.hints == ()


@pytest.mark.parametrize(("machine", "verdict"), [("2 x NVIDIA H100", "differs"), ("2 cores", "other hardware")])
def test_another_order_is_a_difference_on_the_papers_hardware_only(machine: str, verdict: str) -> None:
    store(ADAPTER, None, settings=CARD, hardware=machine)
    store("paper/obliq-ir", "obliq-ir", who="paper", run=Run.from_lists({"q1": ["b", "a"], "q2": ["c"]}, depth=100))
    found = verify([figure(REFERENCE)], stored())
    assert [(o.verdict, o.found.same_order) for o in found.orders] == [(verdict, 1)]
    assert found.differs is (verdict == "differs")
    assert any(machine in sentence for sentence in found.explanations[found.orders[0].run])


def explained(system: str, worst: float = 0.002, **given: Any) -> str:
    one = store(**given)
    assert one.manifest is not None
    return "\n".join(explain(one.manifest, system, worst))


def test_other_settings_than_the_cards_explain_a_difference() -> None:
    wrong = CARD | {"query_prefix": "", "document_length": 512, "dtype": "torch.float32", "task_prompt": True}
    del wrong["pooling"]
    told = explained(REFERENCE, name=ADAPTER, alias=None, settings=wrong)
    assert "query_prefix is '', reported with 'query: '" in told
    assert "document_length is 512, reported with 1024" in told
    assert "dtype is 'torch.float32', reported with 'bfloat16'" in told
    assert "does not say pooling; reported with pooling 'mean'" in told
    assert "instruction stands before the queries" in told
    assert "document_prefix" not in told
    assert "hidden state" not in told


def test_the_cards_settings_leave_the_machine_and_a_large_difference_the_attention() -> None:
    told = explained(REFERENCE, 0.05, name=ADAPTER, alias=None, settings=CARD | {"dtype": "bf16"})
    first, second = told.splitlines()
    assert "first token's hidden state" in first
    assert second.endswith("this run: Linux x86_64, 2 cores")


def test_bm25_is_explained_by_its_tokens() -> None:
    told = explained("bm25", task="OBLIQ-WildChat", settings={"variant": "default"})
    assert "variant 'default'; the published row's are those of 'okapi'" in told
    assert "do not share one tokenizer" in told
    told = explained("bm25", task="OBLIQ-Congress", settings={"variant": "default"})
    assert "variant" not in told


def test_what_happened_to_the_answers_explains_a_difference() -> None:
    told = explained(
        "lateon", settings={"reranked": True}, unanswered=("q1",), data=runs.Data("OBLIQ-Math", REVISION, "hub")
    )
    assert "reranks the candidates" in told
    assert "excluded documents were left out" in told
    assert "1 queries got no answer and count as 0" in told
    assert "LateOn-Code" in told


def test_rows_that_may_be_an_artefact_say_so() -> None:
    assert "artefact" in explained("gpt-multihop", name="me/gpt-multihop", alias=None, task="OBLIQ-Writing")


def test_the_authors_own_run_needs_no_other_explanation_than_that() -> None:
    told = explained("bm25", name="paper/bm25", who="paper", task="OBLIQ-Congress")
    assert told.startswith("this is the authors' own run")
    assert "tokenizer" not in told


def test_explanations_come_with_differences_only() -> None:
    store(ndcg=0.5)
    store("obliq/bm25-okapi", "bm25-okapi", ndcg=0.4)
    found = verify([figure()], stored())
    assert [name.partition("_")[0] for name in found.explanations] == ["bm25-okapi"]


def test_unknown_names_are_refused_with_a_near_one() -> None:
    with pytest.raises(UserError) as refused:
        verify([figure()], [], ["bm-25"], ["OBLIQ-Maths"])
    assert 'did you mean "bm25"?' in str(refused.value)
    assert 'did you mean "OBLIQ-Math"?' in str(refused.value)


def test_every_row_of_the_paper_can_be_verified_by_name() -> None:
    rows = {(system, task): (number, alias) for system, task, number, alias in verifiable(paper.reported())}
    assert rows["bm25", "OBLIQ-Writing"] == (5, "bm25")
    assert sum(number for number, _ in rows.values()) == len(paper.reported())


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["verify-paper", *arguments])


def test_without_a_run_the_command_lists_what_could_be_verified() -> None:
    done = invoke("bm25")
    assert done.exit_code == 2
    assert "no stored run can be compared" in done.stderr
    assert "obliq run -m bm25 -t OBLIQ-Writing" in done.stdout
    assert "lateon" not in done.stdout


def test_the_command_ends_with_0_within_and_1_outside_the_tolerance() -> None:
    scores = {f.measure: f.value for f in paper.reported() if (f.system, f.task) == ("bm25", "OBLIQ-Writing")}
    store(task="OBLIQ-Writing", scores={"gold": scores})
    done = invoke("bm25", "-t", "OBLIQ-Writing")
    assert done.exit_code == 0, done.output
    assert "5 figures within their tolerance, 0 not" in done.stdout
    changed = scores | {"ndcg@10": 0.074}
    store(task="OBLIQ-Writing", scores={"gold": changed}, settings={"k1": 2}, created="2126-01-01T00:00:00+00:00")
    done = invoke("bm25", "-t", "OBLIQ-Writing")
    assert done.exit_code == 1
    assert "-0.003000" in done.stdout
    assert "do not share one tokenizer" in done.stdout


def test_json_holds_full_precision() -> None:
    store(ADAPTER, None, ndcg=MATH, settings=CARD)
    done = invoke("obliq-ir", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    main = next(c for c in told["checks"] if (c["measure"], c["judgments"]) == ("ndcg@10", "gold"))
    assert (main["reported"], main["measured"], main["verdict"]) == (MATH, MATH, "within")
    assert told["explanations"] == {}
