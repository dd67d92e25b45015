"""`obliq data`: from the loopback hub, offline afterwards, and over folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.data.official import OFFICIAL
from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.toy import official_repo, toy_task, write_official

if TYPE_CHECKING:
    from pathlib import Path

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def obliq(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: the hub's client reads its settings when it is imported."""
    return subprocess.run(
        [sys.executable, "-c", "from obliq_eval.cli import main; main()", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **env},
    )  # fmt: skip


def test_get_fetches_once_and_everything_works_offline_afterwards(tmp_path: Path) -> None:
    with LoopbackHub([official_repo(tmp_path / "repo")]) as hub:
        got = obliq("data", "get", "--all", "--json", HF_ENDPOINT=hub.url)
        assert got.returncode == 0, got.stderr
        assert any(path.endswith("math/corpus/corpus.jsonl") for _, path in hub.requests)
    found = {one["task"]: one for one in json.loads(got.stdout)}
    assert list(found) == list(OFFICIAL)
    for name, one in found.items():
        toy = toy_task(OFFICIAL[name].folder)
        assert (one["documents"], one["gold"]) == (len(toy.corpus), len(toy.gold))
        assert one["files"].endswith(OFFICIAL[name].folder)
    assert got.stderr == ""

    offline = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
    table = obliq("data", "get", "OBLIQ-Math", **offline)
    assert table.returncode == 0, table.stderr
    assert found["OBLIQ-Math"]["converted"] in table.stdout
    checked = obliq("data", "check", "OBLIQ-Math", "--json", **offline)
    assert checked.returncode == 1  # the toy is smaller than the published data
    findings = {finding["what"]: finding for finding in json.loads(checked.stdout)}
    assert findings["documents differ from the published count"]["detail"] == "published: 3508"
    exported = obliq("data", "export", "OBLIQ-Math", str(tmp_path / "out"), "--format", "beir", **offline)
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "out" / "qrels" / "test.tsv").exists()


def test_get_names_what_can_be_fetched() -> None:
    done = RUNNER.invoke(app, ["data", "get"])
    assert done.exit_code == 2
    assert "OBLIQ-WildChat" in done.stderr


def test_get_of_an_unknown_task_suggests_the_near_name() -> None:
    done = RUNNER.invoke(app, ["data", "get", "OBLIQ-Maths"])
    assert done.exit_code == 2
    assert 'did you mean "OBLIQ-Math"?' in done.stderr


def sound(folder: Path) -> Path:
    """Write a BEIR folder in which everything fits together."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "who?"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


def test_check_of_a_sound_folder_ends_with_0(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["data", "check", str(sound(tmp_path / "mine"))])
    assert done.exit_code == 0
    assert "0 errors, 0 warnings" in done.stdout


def test_check_of_a_folder_with_an_error_ends_with_1(tmp_path: Path) -> None:
    folder = sound(tmp_path / "mine")
    (folder / "qrels" / "test.tsv").write_text("q1\td1\t1\nq1\tlost\t1\n")
    done = RUNNER.invoke(app, ["data", "check", str(folder), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)[0] == {
        "level": "error", "what": "gold documents not in the corpus", "count": 1, "detail": "'lost'",
    }  # fmt: skip


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    folder = sound(tmp_path / "mine")
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n{"_id": "d2", "te')
    done = RUNNER.invoke(app, ["data", "check", str(folder)])
    assert done.exit_code == 2
    assert "corpus.jsonl, line 2" in done.stderr


def test_export_says_what_the_form_cannot_hold(tmp_path: Path) -> None:
    write_official(tmp_path / "in", "descriptive/wildchat")  # ids with spaces
    done = RUNNER.invoke(app, ["data", "export", str(tmp_path / "in"), str(tmp_path / "out"), "--format", "trec"])
    assert done.exit_code == 0
    assert "percent-encoded" in done.stderr
    assert "in the trec layout" in done.stdout
    again = RUNNER.invoke(app, ["data", "export", str(tmp_path / "in"), str(tmp_path / "out")])
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert (tmp_path / "out" / "topics.tsv").exists()


def test_export_refuses_an_unknown_form(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["data", "export", "OBLIQ-Math", str(tmp_path / "out"), "--format", "csv"])
    assert done.exit_code == 2
    assert "official" in done.stderr
