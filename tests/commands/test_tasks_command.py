"""`obliq tasks`: official and mini tasks in tables of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.commands import tasks
from obliq_eval.data.official import OFFICIAL

if TYPE_CHECKING:
    from pathlib import Path

RUNNER = CliRunner()


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One bundled task: three documents, two queries (one excludes a document), one gold judgment, two pooled."""
    folder = tmp_path / "math"
    (folder / "corpus").mkdir(parents=True)
    (folder / "queries+qrels").mkdir()
    rows = "".join(f'{{"_id": "d{n}", "text": "t"}}\n' for n in range(3))
    (folder / "corpus" / "corpus.jsonl").write_text(rows)
    rest = folder / "queries+qrels"
    (rest / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n{"_id": "q2", "text": "y"}\n')
    (rest / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    (rest / "qrels_pool.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td0\t1\n")
    (rest / "per_query_excluded_ids.json").write_text('{"q1": ["d0"]}')
    monkeypatch.setattr(tasks, "MINI_FOLDER", tmp_path)
    return folder


def test_official_and_mini_tasks_are_never_in_one_table(mini: Path) -> None:
    text = RUNNER.invoke(app, ["tasks"]).stdout
    official, _, small = text.partition("OBLIQ-Mini, ")
    assert all(name in official for name in OFFICIAL)
    assert "OBLIQ-Mini" not in official
    assert "OBLIQ-Mini-Math" in small
    assert not any(f"{name} " in small for name in OFFICIAL)
    assert "507,729" in official  # WildChat's documents


def test_json_has_the_published_counts_and_those_of_the_bundled_files(mini: Path) -> None:
    found = {task["task"]: task for task in json.loads(RUNNER.invoke(app, ["tasks", "--json"]).stdout)}
    assert list(found) == [*OFFICIAL, "OBLIQ-Mini-Math"]
    writing = found["OBLIQ-Writing"]
    assert (writing["documents"], writing["queries"], writing["gold"], writing["pooled"]) == (10_389, 512, 4_615, None)
    assert (writing["exclusions"], writing["licence"], writing["benchmark"]) == (True, "cc-by-4.0", "OBLIQ-Bench")
    small = found["OBLIQ-Mini-Math"]
    assert (small["documents"], small["queries"], small["gold"], small["pooled"]) == (3, 2, 1, 2)
    assert (small["exclusions"], small["licence"], small["benchmark"]) == (True, "cc0-1.0", "OBLIQ-Mini")


def test_show_tells_everything_about_one_task(mini: Path) -> None:
    shown = json.loads(RUNNER.invoke(app, ["tasks", "show", "OBLIQ-Math", "--json"]).stdout)
    assert shown["attribute"] == "abstract proof technique"
    assert shown["source"] == "dianetc/OBLIQ-Bench, analogues/math"
    assert "abstract proof technique" in RUNNER.invoke(app, ["tasks", "show", "OBLIQ-Math"]).stdout


def test_unknown_task_suggests_the_near_name(mini: Path) -> None:
    done = RUNNER.invoke(app, ["tasks", "show", "obliq-maths"])
    assert done.exit_code == 2
    assert 'did you mean "OBLIQ-Math"?' in done.stderr
