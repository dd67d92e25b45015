"""The authors' runs: found by form, ids and words in a layout made up for the test; nothing is skipped unseen."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from obliq_eval.data import sources
from obliq_eval.data.official import REVISION
from obliq_eval.demo.hub import LoopbackHub, Repo
from obliq_eval.demo.toy import official_repo, toy_task, write_official
from obliq_eval.errors import UserError
from obliq_eval.leaderboard import paper
from obliq_eval.leaderboard.author_files import Figure, look, measure_in
from obliq_eval.leaderboard.author_names import recognise_system
from obliq_eval.leaderboard.author_runs import Found, TaskData, find, held_back, import_all, stated
from obliq_eval.leaderboard.author_source import REPOSITORY
from obliq_eval.records import Run
from obliq_eval.run_files import write_run

if TYPE_CHECKING:
    from pathlib import Path

SYSTEMS = tuple(dict.fromkeys(figure.system for figure in paper.reported()))
COMMIT = "ab" * 20
MATH, CONGRESS = toy_task("analogues/math"), toy_task("tip-of-tongue/congress")
CONGRESS_EXTRA = (CONGRESS.corpus[-1][0],)  # with the gold documents alone the run would be the judgments


def perfect(task: Any = MATH, extra: tuple[str, ...] = ()) -> Run:
    """Rank the gold documents first for every query, then `extra`."""
    gold: dict[str, list[str]] = {}
    for query, document, _ in task.gold:
        gold.setdefault(query, []).append(document)
    barred = task.excluded or {}
    return Run.from_lists({
        q: [d for d in documents if d not in barred.get(q, ())] + [d for d in extra if d not in documents]
        for q, documents in gold.items()
    })  # fmt: skip


def ranked(run: Run) -> dict[str, list[str]]:
    return {query: list(ranking.documents) for query, ranking in run.rankings.items()}


@pytest.fixture
def tasks(tmp_path: Path) -> list[TaskData]:
    """Return Math and Congress at toy size."""
    made = []
    for name, folder, toy in (("math", "analogues/math", MATH), ("congress", "tip-of-tongue/congress", CONGRESS)):
        write_official(tmp_path / name, folder)
        made.append(TaskData(name, frozenset(q for q, _ in toy.queries), partial(sources.load, str(tmp_path / name))))
    return made


def layout(root: Path) -> Path:
    """Write an invented layout: runs in several forms, tables, and files that are neither."""
    run, folder = perfect(), root / "repository"
    (folder / "outputs" / "math").mkdir(parents=True)
    (folder / "outputs" / "tot").mkdir()
    outputs = folder / "outputs" / "math"
    write_run(run, outputs / "bm25.trec.gz", "trec")
    write_run(run, outputs / "OBLIQ_IR.parquet", "parquet")
    write_run(run, outputs / "dense_g.json", "ranx")
    (outputs / "Multi-Hop agent.json").write_text(json.dumps({"config": {"hops": 4}, "results": ranked(run)}))
    write_run(perfect(CONGRESS, CONGRESS_EXTRA), folder / "outputs" / "tot" / "no_distill.json", "mteb")
    rows = [{"query_id": q, "ranking": d} for q, d in ranked(run).items()]
    (outputs / "run-17.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flat = [
        {"qid": q, "docid": d, "score": 1 / (rank + 1)} for q, ids in ranked(run).items() for rank, d in enumerate(ids)
    ]
    pq.write_table(pa.Table.from_pylist(flat), outputs / "qwen3_4b.parquet")
    (folder / "README.md").write_text(
        "# Runs\n\nText.\n\n| system | math NDCG@10 |\n|---|---|\n| BM25 | **.9** |\n| Gemini-2-Embedding | 0.8 |\n"
    )
    (folder / "scores.json").write_text(json.dumps({"math": {"bm25": {"gold": {"ndcg_at_10": 0.9}, "n": 6}}}))
    (folder / "train.jsonl").write_text((json.dumps({"anchor": "a", "positive": "b", "negative_1": "c"}) + "\n") * 2)
    (folder / "broken.trec").write_text((outputs / "dense_g.json").read_text()[:40] + "\n")
    (folder / "half.trec").write_text("q Q0 d 1 3.5 t\nq Q0\n")
    write_run(Run.from_lists({"x1": ["y"], "x2": ["z"]}), folder / "foreign.trec", "trec")
    (folder / "qrels.json").write_text(json.dumps(judged(MATH.gold)))
    (folder / "excluded.json").write_text(json.dumps({q: list(ids) for q, ids in (MATH.excluded or {}).items()}))
    (folder / "adapter.bin").write_bytes(b"\x01\0\0" * 50)
    (folder / "all.zip").write_bytes(b"PK\x03\x04....")
    (folder / "LICENSE").write_text("All rights, and so on.\n")
    return folder


def judged(rows: Any) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in rows:
        grades.setdefault(query, {})[document] = grade
    return grades


def files(found: Found) -> dict[str, tuple[str, str | None]]:
    return {one.path: (one.task.name, one.system) for one in found.runs}


def test_runs_of_several_forms_are_found_with_task_and_system(tmp_path: Path, tasks: list[TaskData]) -> None:
    found = find(layout(tmp_path), SYSTEMS, tasks)
    assert files(found) == {
        "outputs/math/bm25.trec.gz": ("math", "bm25"),
        "outputs/math/OBLIQ_IR.parquet": ("math", "obliq-ir"),
        "outputs/math/dense_g.json": ("math", None),
        "outputs/math/Multi-Hop agent.json#results": ("math", "gpt-multihop"),
        "outputs/math/run-17.jsonl": ("math", None),
        "outputs/math/qwen3_4b.parquet": ("math", "qwen3-embed-4b"),
        "outputs/tot/no_distill.json#default/test": ("congress", None),
    }
    for one in found.runs:
        wanted = perfect(CONGRESS, CONGRESS_EXTRA) if one.task.name == "congress" else perfect()
        assert ranked(one.run) == ranked(wanted), one.path


def test_every_file_is_accounted_for_with_a_reason(tmp_path: Path, tasks: list[TaskData]) -> None:
    folder = layout(tmp_path)
    found = find(folder, SYSTEMS, tasks)
    held = {path.partition("#")[0] for path in files(found)} | {table.path for table in found.tables} | set(found.other)
    assert held == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {table.path for table in found.tables} == {"README.md", "scores.json"}
    for name, words in {
        "train.jsonl": "JSON lines with the keys anchor, positive, negative_1",
        "broken.trec": "cut off",
        "half.trec": "line 2: 2 columns, where TREC has six",
        "foreign.trec": "its query ids are no task's",
        "qrels.json": "it repeats the gold judgments of math",
        "excluded.json": "it repeats the exclusions of math",
        "adapter.bin": "binary data of no known form",
        "all.zip": "unpack it",
        "LICENSE": "text without a run",
    }.items():
        assert words in found.other[name], name


def test_a_name_given_by_hand_wins_and_what_lacks_one_is_held_back(tmp_path: Path, tasks: list[TaskData]) -> None:
    found = find(layout(tmp_path), SYSTEMS, tasks, {"run-17": "lateon", "no_distill": "obliq-ir-no-distillation"})
    systems = {path.rpartition("/")[2]: system for path, (_, system) in files(found).items()}
    assert systems["run-17.jsonl"] == "lateon"
    held = {one.path: held_back(one) for one in found.runs}
    assert held["outputs/math/run-17.jsonl"] is None
    assert "name it with --system" in str(held["outputs/math/dense_g.json"])
    made = import_all(found, REPOSITORY, COMMIT)
    assert {one.found.system for one in made} == {
        "bm25", "obliq-ir", "gpt-multihop", "qwen3-embed-4b", "lateon", "obliq-ir-no-distillation",
    }  # fmt: skip


def test_an_imported_run_is_the_papers_and_scored_here(tmp_path: Path, tasks: list[TaskData]) -> None:
    made = {one.found.system: one for one in import_all(find(layout(tmp_path), SYSTEMS, tasks), REPOSITORY, COMMIT)}
    manifest = made["bm25"].stored.manifest
    assert manifest is not None
    assert (manifest.who, manifest.task, manifest.coverage) == ("paper", "math", "all")
    assert (manifest.model.alias, manifest.model.revision) == ("bm25", COMMIT)
    assert manifest.data.revision == tasks[0].data.revision
    # gold documents come first for every query; the first query has one that is excluded, so that it cannot be found
    golds = {q: len(documents) for q, documents in judged(MATH.gold).items()}
    assert max(golds.values()) <= 10
    first = golds[MATH.queries[0][0]]
    gains = [1 / math.log2(rank + 1) for rank in range(1, first + 1)]
    mean = (len(golds) - 1 + sum(gains[:-1]) / sum(gains)) / len(golds)
    assert manifest.scores["gold"]["ndcg@10"] == pytest.approx(mean, abs=1e-12)
    assert "pooled" in manifest.scores
    assert made["bm25"].stored.read().rankings.keys() == perfect().rankings.keys()


def test_excluded_and_unknown_documents_are_dropped_and_counted(tmp_path: Path, tasks: list[TaskData]) -> None:
    barred = {q: ids[0] for q, ids in (MATH.excluded or {}).items()}
    answers = {q: [barred[q], *d] for q, d in ranked(perfect()).items()}
    first = next(iter(answers))
    answers[first].append("no such document")
    (tmp_path / "in").mkdir()
    write_run(Run.from_lists(answers), tmp_path / "in" / "bm25.json", "ranx")
    one = import_all(find(tmp_path / "in", SYSTEMS, tasks), "folder")[0]
    assert one.stored.manifest is not None
    assert one.stored.manifest.counts == {
        "excluded documents dropped from the answers": len(answers),
        "documents that are not in the corpus dropped": 1,
    }
    assert ranked(one.stored.read()) == ranked(perfect())


def test_a_run_of_few_queries_is_held_back(tmp_path: Path, tasks: list[TaskData]) -> None:
    few = dict(list(ranked(perfect(extra=(MATH.corpus[-1][0],))).items())[:2])
    (tmp_path / "in").mkdir()
    write_run(Run.from_lists(few), tmp_path / "in" / "bm25.json", "ranx")
    found = find(tmp_path / "in", SYSTEMS, tasks)
    assert f"answers only 2 of {len(MATH.queries)} queries" in str(held_back(found.runs[0]))
    assert import_all(found, "folder") == []
    one = import_all(found, "folder", incomplete=True)[0]
    assert one.stored.manifest is not None
    assert len(one.stored.manifest.unanswered) == len(MATH.queries) - 2
    assert one.panels["gold"].values["ndcg@10"].shape == (len(MATH.queries),)


@pytest.mark.parametrize(
    ("path", "system"),
    [
        ("runs/writing/bm25_top1000.json", "bm25"),
        ("obliq-ir/math.trec", "obliq-ir"),
        ("OBLIQ_IR_full/twitter.json", "obliq-ir-full"),
        ("obliq-ir-no-distillation/m.json", "obliq-ir-no-distillation"),
        ("obliqir_nodistill.json", "obliq-ir-no-distillation"),
        ("obliq_ir_merged.trec", "obliq-ir-merged"),
        ("Qwen3-Embedding-0.6B/run.trec", "qwen3-embed-0.6b"),
        ("qwen3_embed_4b.trec", "qwen3-embed-4b"),
        ("gemini-embedding-2.trec", "gemini-2-embedding"),
        ("Gemini2.trec", "gemini-2-embedding"),
        ("gpt5.2 query rewriting.json", "gpt-query-rewriter"),
        ("agent/congress.json", "gpt-multihop"),
        ("LateOn/x.parquet", "lateon"),
        ("luar.trec", "authorship-encoder"),
        ("oracle.json", "oracle-tournament"),
        ("obliq_ir_tourrank_y5.json", "obliq-ir+tourrank-y5"),
        ("obliq-ir_tourrank.json", None),  # which of the reranked ones?
        ("obliq-ir/bm25.json", None),  # either
        ("obliq-ir_oracle.json", None),
        ("qwen3.json", None),
        ("agents_of_change.json", None),
        ("run-17.json", None),
    ],
)
def test_the_words_of_a_path_name_a_system_or_leave_it_open(path: str, system: str | None) -> None:
    found, doubt = recognise_system(path, SYSTEMS, {})
    assert found == system
    assert bool(doubt) == (system is None)


@pytest.mark.parametrize(
    ("key", "measure"),
    [
        ("ndcg@10", "ndcg@10"), ("pooled_ndcg_at_10", "ndcg@10"), ("NDCG@50 (gold)", "ndcg@50"),
        ("Recall 100", "recall@100"), ("recall_1000", "recall@1000"), ("precall@10", None), ("ndcg", None),
        ("score", None),
    ],
)  # fmt: skip
def test_keys_that_name_a_measure(key: str, measure: str | None) -> None:
    assert measure_in(key) == measure


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ('[{"system": "a", "ndcg@10": 0.5, "n": 3}]', [Figure(("a", "ndcg@10"), "ndcg@10", 0.5)]),
        ('{"a": {"ndcg@10": {"mean": 0.5, "std": 0.1}}}', [Figure(("a", "ndcg@10", "mean"), "ndcg@10", 0.5)]),
        ('{"metric": "recall@100", "value": 0.25}', [Figure(("recall@100",), "recall@100", 0.25)]),
        ("system,ndcg@10\na,.5\nb,\n", [Figure(("a", "ndcg@10"), "ndcg@10", 0.5)]),
        ("system\tmeasure\tvalue\na\tndcg_10\t0.5\n", [Figure(("a", "ndcg_10", "value"), "ndcg@10", 0.5)]),
    ],
)
def test_tables_of_results_in_several_forms(tmp_path: Path, text: str, figures: list[Figure]) -> None:
    (tmp_path / "x").write_text(text)
    assert [(f.measure, f.value) for f in look(tmp_path / "x").figures] == [(f.measure, f.value) for f in figures]
    assert [set(f.words) for f in look(tmp_path / "x").figures] == [set(f.words) for f in figures]


def test_a_packed_text_and_an_id_that_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b'{"query_id": "007", "documents": ["7", "x"]}\n'))
    assert ranked(look(tmp_path / "a").runs[0].run) == {"007": ["7", "x"]}
    (tmp_path / "b").write_text('{"query_id": 7, "documents": ["7", "x"]}\n')
    assert look(tmp_path / "b").runs == ()
    assert "is not a string" in look(tmp_path / "b").reason


def test_a_document_that_is_ranked_twice_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"q": [["d", 1.0], ["d", 0.5]]}')
    assert "ranked more than once" in look(tmp_path / "a").reason


def test_no_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        find(tmp_path / "nowhere", SYSTEMS, [])


def test_the_repositorys_own_tables_are_set_beside_a_run(tmp_path: Path, tasks: list[TaskData]) -> None:
    found = find(layout(tmp_path), SYSTEMS, tasks)
    one = next(one for one in found.runs if one.system == "bm25")
    assert stated(one, found.tables, SYSTEMS) == [0.9]


def obliq(home: Path, url: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: the hub's client reads its settings when it is imported."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {"HF_ENDPOINT": url, "HF_HOME": str(home / "hf"), "OBLIQ_HOME": str(home / "obliq"), "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-c", "from obliq_eval.cli import main; main()", *arguments],
        capture_output=True, text=True, check=False, env={**inherited, **own, **env},
    )  # fmt: skip


def test_from_the_hub_into_the_store_and_against_the_paper(tmp_path: Path) -> None:
    repos = [official_repo(tmp_path / "official"), Repo("dataset", REPOSITORY, layout(tmp_path), COMMIT)]
    with LoopbackHub(repos) as hub:
        got = obliq(tmp_path, hub.url, "import-authors", "--json", "--system", "dense_g=gemini-2-embedding")
    assert got.returncode == 0, got.stderr
    told = json.loads(got.stdout)
    assert told["revision"] == COMMIT
    runs = {one["system"]: one for one in told["runs"] if one["run"]}
    assert set(runs) == {"bm25", "obliq-ir", "gpt-multihop", "qwen3-embed-4b", "gemini-2-embedding"}
    assert runs["bm25"]["task"] == "OBLIQ-Math"
    assert runs["bm25"]["stated"] == [0.9]
    assert told["not_recognised"]["foreign.trec"].startswith("a run (2 queries")
    assert {table["file"] for table in told["tables"]} == {"README.md", "scores.json"}

    offline = obliq(tmp_path, "http://127.0.0.1:9", "verify-paper", "bm25", "--json", HF_HUB_OFFLINE="1")
    assert offline.returncode == 1, offline.stderr  # the toy is easier than the benchmark
    checks = json.loads(offline.stdout)["checks"]
    assert {(c["task"], c["judgments"], c["measure"]) for c in checks} >= {("OBLIQ-Math", "gold", "ndcg@10")}
    assert REVISION in (tmp_path / "obliq" / "runs" / checks[0]["run"] / "manifest.json").read_text()


def test_a_repository_that_is_absent_and_a_wrong_option_are_one_sentence(tmp_path: Path) -> None:
    with LoopbackHub([]) as hub:
        gone = obliq(tmp_path, hub.url, "import-authors")
    assert gone.returncode == 2
    assert f"{REPOSITORY} is not on the hub" in gone.stderr
    wrong = obliq(tmp_path, "http://127.0.0.1:9", "import-authors", "--system", "x=bm-25")
    assert wrong.returncode == 2
    assert 'did you mean "bm25"?' in wrong.stderr
