"""What runs are judged against, and which runs are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from obliq_eval import reference, runs
from obliq_eval.errors import UserError
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from obliq_eval.reference import Reference

CORPUS = {"a": "first text", "b": "second text", "c": "third text"}
QUERIES = {"q1": "one", "q2": "two", "q3": "three"}
GOLD = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 0}}


@pytest.fixture
def toy(write_task: Callable[..., Path]) -> Reference:
    return reference.open_task(str(write_task(CORPUS, QUERIES, GOLD, exclusions={"q1": ["b"]})))


def stored(run: Run, task: str = "toy", revision: str | None = None, **more: object) -> runs.StoredRun:
    data, model = runs.Data(task, revision, "folder"), runs.Model("me/mine", alias="mine")
    return runs.store(run, replace(runs.Manifest(task, data, model, run.depth, 2), **more))


def test_a_run_that_fits_loses_its_excluded_documents_and_says_so(toy: Reference) -> None:
    system = reference.fit(stored(Run.from_lists({"q1": ["b", "a"], "q2": ["b"]}), revision=toy.revision), toy)
    assert system.run.rankings["q1"].documents == ("a",)
    assert system.delivered.rankings["q1"].documents == ("b", "a")
    assert toy.score(system.run)["gold"].mean("ndcg@10") == 1.0
    assert system.name == "mine"
    assert system.warnings[0].startswith("mine: 1 excluded documents were dropped")


def test_unanswered_and_unjudgeable_queries_are_counted_and_named(toy: Reference) -> None:
    system = reference.fit(stored(Run.from_lists({"q1": ["a"], "q3": ["c"]})), toy)
    assert system.warnings == (
        "mine: 1 of 2 queries got no answer and score 0: 'q2'",
        "mine: 1 queries have no relevant document and are not scored: 'q3'",
    )


@pytest.mark.parametrize(
    ("run", "about", "message"),
    [
        ({"q1": ["a"]}, {"task": "other"}, r"answers other, not toy: judge it with -t other"),
        ({"q1": ["a"]}, {"revision": "0123"}, r"searched revision 0123 of toy, but the data here is revision"),
        ({"q1": ["a"]}, {"coverage": "dev"}, r"covers the dev queries alone: judge it with --queries dev"),
        ({"x1": ["a"]}, {}, r"answers none of the 2 judged queries of toy \(the run has 'x1'"),
        ({"q1": ["a", "z"]}, {}, r"returns 1 documents that toy does not have: 'z'"),
    ],
)
def test_a_run_of_something_else_is_refused_in_one_sentence(
    toy: Reference, run: dict[str, list[str]], about: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        reference.fit(stored(Run.from_lists(run), **about), toy)
    assert "\n" not in str(error.value)


def test_pooled_judgments_ask_about_the_queries_of_the_gold_ones(write_task: Callable[..., Path]) -> None:
    pooled = {"q1": {"a": 1, "b": 1}, "q3": {"c": 1}}
    found = reference.open_task(str(write_task(CORPUS, QUERIES, GOLD, pooled)))
    assert found.judgments["gold"].queries == ("q1", "q2")
    assert found.judgments["pooled"].queries == ("q1",)


def test_a_part_of_the_queries_leaves_the_answers_to_the_others_alone(write_task: Callable[..., Path]) -> None:
    queries = {f"q{i}": "text" for i in range(10)}
    folder = str(write_task(CORPUS, queries, {q: {"a": 1} for q in queries}))
    dev, test = (reference.open_task(folder, part) for part in ("dev", "test"))
    assert (len(dev.main.queries), len(test.main.queries)) == (2, 8)
    run = reference.fit(stored(Run.from_lists({q: ["a"] for q in queries})), dev).run
    assert set(run.rankings) == set(dev.main.queries)
    assert dev.score(run)["gold"].unknown == 0


def test_qrels_files_serve_as_well(tmp_path: Path) -> None:
    gold, pooled = tmp_path / "qrels.tsv", tmp_path / "pool.tsv"
    gold.write_text("q1\ta\t1\nq2\tb\t1\n", "utf-8")
    pooled.write_text("q1\ta\t1\nq1\tc\t1\n", "utf-8")
    found = reference.choose(None, gold, pooled, "all")
    assert found.name == "qrels.tsv"
    assert found.judgments["pooled"].queries == ("q1",)
    pooled.write_text("x\ta\t1\n", "utf-8")
    with pytest.raises(UserError, match="judges none of the queries"):
        reference.open_qrels(gold, pooled)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((None, None, None, "all"), "either -t TASK or --qrels FILE"),
        (("toy", "qrels", None, "all"), "either -t TASK or --qrels FILE"),
        (("toy", None, "pool", "all"), "a task brings its own pooled judgments"),
        ((None, "qrels", None, "dev"), "needs -t TASK"),
        ((None, "qrels", None, "tests"), r'not one of all, dev, test, held-out; did you mean "test"'),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str | None, ...], message: str, tmp_path: Path) -> None:
    task, qrels, pooled, queries = options
    with pytest.raises(UserError, match=message):
        reference.choose(task, qrels and tmp_path / qrels, pooled and tmp_path / pooled, queries or "all")


def test_a_model_means_its_run_of_the_task(toy: Reference) -> None:
    run = Run.from_lists({"q1": ["a"]})
    stored(run, task="aaa")
    wanted = stored(run)
    assert reference.find_run("mine", toy).name == wanted.name
    with pytest.raises(UserError, match='no run "minx"'):
        reference.find_run("minx", toy)


def test_systems_of_one_name_are_told_apart(toy: Reference, tmp_path: Path) -> None:
    first = reference.fit(stored(Run.from_lists({"q1": ["a"]})), toy)
    second = reference.fit(stored(Run.from_lists({"q1": ["c"]}), seed=1), toy)
    names = [system.name for system in reference.distinct([first, second])]
    assert names == [f"mine ({s.run_id.rpartition('-')[2]})" for s in (first, second)]
    files = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "run.txt"
        path.write_text("q1 Q0 a 1 1.0 tag\n", "utf-8")
        files.append(reference.fit(runs.load(str(path)), toy))
    assert len({system.name for system in reference.distinct(files)}) == 2


def test_documents_that_no_judgment_knows_are_mentioned(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1\ta\t1\n", "utf-8")
    (tmp_path / "run.txt").write_text("q1 Q0 DOC-a 1 1.0 tag\n", "utf-8")
    system = reference.fit(runs.load(str(tmp_path / "run.txt")), reference.open_qrels(tmp_path / "qrels"))
    assert system.warnings == ("run: no document that it returns is judged; are its document ids those of qrels?",)
