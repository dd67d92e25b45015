"""`obliq eval`: one run of any form under gold and pooled judgments."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.show import UNKNOWN
from obliq_eval.significance import mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNER = CliRunner()
REAL = Path(__file__).parents[3] / "shared" / "data" / "congress-weaviate"
GOLD = {"q1": {"a": 1}, "q2": {"b": 1}}


def evaluated(*arguments: object) -> Any:
    """Return what `obliq eval --json` prints."""
    done = RUNNER.invoke(app, ["eval", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    path = tmp_path / "qrels.tsv"
    path.write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq2\tb\t1\n", "utf-8")
    return path


@pytest.mark.skipif(not REAL.is_dir(), reason="the real per-query results are not beside this checkout")
@pytest.mark.parametrize("name", ["hybrid-search-1", "effort-medium-1", "effort-high-1", "effort-ultrahigh-1"])
def test_published_means_come_out(name: str) -> None:
    published = json.loads((REAL / "published.json").read_text("utf-8"))[name]
    measures = "ndcg@10,recall@1,recall@5,recall@20,recall@50"
    found = evaluated(REAL / "runs" / f"{name}.jsonl", "--qrels", REAL / "qrels.tsv", "--measures", measures)
    means = found["judgments"]["gold"]["means"]
    assert means["ndcg@10"] == pytest.approx(published["avg_nDCG_at_10"], abs=1e-9)
    for k in (1, 5, 20):
        assert means[f"recall@{k}"] == pytest.approx(published[f"avg_recall_at_{k}"], abs=1e-9)
    assert means["recall@50"] is None  # published as Recall@20 under another name
    assert found["judgments"]["gold"]["n_queries"] == 254


FORMS = {
    "trec": "q1 Q0 x 1 2.0 t\nq1 Q0 a 2 1.0 t\n",
    "ranx": json.dumps({"q1": {"a": 1.0, "x": 2.0}}),
    "jsonl": json.dumps({"query_id": "q1", "retrieved_ids": ["x", "a"]}) + "\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_panel_and_an_unanswered_query_scores_0(
    form: str, qrels: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.write_text(FORMS[form], "utf-8")
    panel = evaluated(run, "--qrels", qrels)["judgments"]["gold"]
    assert panel["means"]["mrr@10"] == 0.25  # 1/2 and 0
    assert panel["unanswered"] == ["q2"]
    assert panel["means"]["recall@10"] is None  # the run has 2 documents
    assert panel["unjudged@10"] == 1


def test_the_table_shows_both_judgments_interval_and_what_is_missing(
    write_task: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_task(
        dict.fromkeys("abcx", "text"),
        dict.fromkeys(("q1", "q2"), "text"),
        GOLD,
        {"q1": {"a": 1, "x": 1}, "q2": {"b": 1}},
    )
    run = tmp_path / "run.txt"
    run.write_text(FORMS["trec"], "utf-8")
    done = RUNNER.invoke(app, ["eval", str(run), "-t", str(folder)])
    assert done.exit_code == 0, done.stderr
    rows = {line.strip().rpartition("  ")[0].split("  ")[0].strip(): line.split() for line in done.stdout.splitlines()}
    assert rows["judged@10"][1:] == ["0.500", "1.000"]
    assert rows["Recall@1000"][1:] == [UNKNOWN, UNKNOWN]
    assert "95 % interval" in done.stdout
    assert "10,000 resamples, seed 0, n = 2" in done.stdout
    assert "1 of 2 queries got no answer and score 0: 'q2'" in done.stderr
    assert "n = 2 is small" in done.stderr


def test_interval_resamples_and_seed_are_as_asked(qrels: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.write_text(FORMS["trec"], "utf-8")
    asked = (run, "--qrels", qrels, "--interval", "bca", "--resamples", 500, "--seed", 7)
    found = evaluated(*asked)["judgments"]["gold"]["interval"]
    values = [1 / math.log2(3), 0.0]
    expected = vars(mean_interval(values, resamples=500, seed=7, method="bca"))
    assert found == pytest.approx({**expected, "measure": "ndcg@10"})
    done = RUNNER.invoke(app, ["eval", *map(str, asked)])
    assert "95 % BCa interval, 500 resamples, seed 7, n = 2" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--interval", "bcaa"), 'did you mean "bca"'),
        (("--resamples", "39"), "39 resamples are too few for an interval of 95 %"),
        (("--resamples", "0"), "at least 1, not 0"),
        (("--seed", "-1"), "0 or more, not -1"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence_and_status_2(
    qrels: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    run = tmp_path / "run"
    run.write_text(FORMS["trec"], "utf-8")
    done = RUNNER.invoke(app, ["eval", str(run), "--qrels", str(qrels), *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_one_query_has_scores_but_no_interval(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1\ta\t1\n", "utf-8")
    (tmp_path / "run").write_text(FORMS["trec"], "utf-8")
    done = RUNNER.invoke(app, ["eval", str(tmp_path / "run"), "--qrels", str(tmp_path / "qrels")])
    assert done.exit_code == 0
    assert "interval" not in done.stdout
    assert "an interval needs at least two queries" in done.stderr


@pytest.mark.parametrize("name", ["values.csv", "values.jsonl"])
def test_values_of_each_query_are_written(name: str, qrels: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.write_text(FORMS["trec"], "utf-8")
    file = tmp_path / name
    done = RUNNER.invoke(app, ["eval", str(run), "--qrels", str(qrels), "--per-query", str(file)])
    assert done.exit_code == 0
    text = file.read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines())) if name.endswith("csv") else list(map(json.loads, text.splitlines()))
    assert [(row["query"], row["judgments"], float(row["mrr@10"])) for row in rows] == [
        ("q1", "gold", 0.5), ("q2", "gold", 0.0),
    ]  # fmt: skip
    assert rows[0]["recall@100"] in {None, ""}


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("z1 Q0 a 1 1.0 t\n", "answers none of the 2 judged queries"),
        ("q1 Q0 a 1 nan t\n", "not a finite number"),
        ("q1 Q0 a 1 1.0 t\nq1 Q0 a 2 0.5 t\n", "ranked more than once"),
        ("", "holds no run"),
    ],
)
def test_a_run_that_cannot_be_scored_is_one_sentence_and_status_2(
    run: str, message: str, qrels: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    path.write_text(run, "utf-8")
    done = RUNNER.invoke(app, ["eval", str(path), "--qrels", str(qrels)])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unknown_measures_are_all_named(qrels: Path) -> None:
    done = RUNNER.invoke(app, ["eval", "x", "--qrels", str(qrels), "--measures", "map@10,ndcg", "--measures", "mrr@10"])
    assert done.exit_code == 2
    assert "map@10" in done.stderr
    assert "'ndcg'" in done.stderr
