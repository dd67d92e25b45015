"""`obliq quality`: files, tasks, tables and pictures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUNNER = CliRunner()
CORPUS = {"a": "Rain fell on Rome in 1870, all day.", "b": "Dry deserts and dusty roads."}


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, ["quality", *map(str, arguments)])


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.jsonl", *({"_id": key, "text": text} for key, text in CORPUS.items()))


def test_synthetic_queries(tmp_path: Path, corpus: Path) -> None:
    """Words of a: {rain, fell, rome}. The first query's {storms, rain}: coverage 1/2, Jaccard 1/4; 1870 leaks.

    The second shares nothing with b; the third repeats it for a. Means over three pairs: 1/6, 1/12, 1/3; words 5, 2, 2.
    """
    file = write(
        tmp_path / "s.jsonl",
        {"document": "a", "query": "storms in 1870 and rain", "task": "T", "lens": "l"},
        {"document": "b", "query": "quiet seas", "task": "T", "lens": "l"},
        {"document": "a", "query": "Quiet seas", "task": "T", "lens": "l"},
    )
    done = run(file, "--data", corpus, "--json")
    assert done.exit_code == 0, done.stderr
    [(name, found)] = json.loads(done.stdout).items()
    assert name == "s.jsonl: T l"
    assert (found["queries"], found["pairs"], found["copied"]) == (3, 3, 0.0)
    assert found["coverage"] == pytest.approx(1 / 6)
    assert found["jaccard"] == pytest.approx(1 / 12)
    assert found["leakage"] == pytest.approx(1 / 3)
    assert found["words"] == pytest.approx(3.0)
    assert found["duplicates"] == pytest.approx(1 / 3)


def test_the_documents_are_where_the_manifest_says(tmp_path: Path, corpus: Path) -> None:
    file = write(tmp_path / "s.jsonl", {"document": "a", "query": "quiet seas"})
    none = run(file)
    assert none.exit_code == 2
    assert "name them with --data" in none.stderr
    (tmp_path / "s.jsonl.manifest.json").write_text(json.dumps({"settings": {"source": str(corpus)}}), "utf-8")
    done = run(file)
    assert done.exit_code == 0, done.stderr
    assert "s.jsonl" in done.stdout


def test_training_rows_of_both_shapes_carry_their_documents(tmp_path: Path) -> None:
    """Instructions count for nothing; a query with two positives makes two pairs."""
    file = write(
        tmp_path / "rows.jsonl",
        {"query": ["Rome Rome", "quiet seas"], "pos": [["Find", CORPUS["a"]], ["Find", CORPUS["b"]]], "neg": []},
        {"query": "Dry deserts", "pos": [CORPUS["b"]], "source": "graph"},
    )
    done = run(file, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows.jsonl"]["queries"], found["rows.jsonl"]["pairs"], found["rows.jsonl"]["coverage"]) == (1, 2, 0)
    assert found["rows.jsonl: graph"]["coverage"] == 1.0


def test_official_queries_against_their_gold_documents(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """Grade 0 is no gold, and a judged document that does not exist is passed over."""
    folder = write_task(CORPUS, {"q": "rain in Rome"}, {"q": {"a": 1, "b": 0, "gone": 1}})
    picture = tmp_path / "q.svg"
    done = run(folder, "--json", "--plot", picture)
    assert done.exit_code == 0, done.stderr
    [found] = json.loads(done.stdout).values()
    assert (found["queries"], found["pairs"], found["coverage"], found["leakage"]) == (1, 1, 1.0, 1.0)
    first = picture.read_bytes()
    assert b"<svg" in first
    run(folder, "--plot", picture)
    assert picture.read_bytes() == first


def test_what_cannot_be_measured_is_told(tmp_path: Path, corpus: Path) -> None:
    unknown = write(tmp_path / "u.jsonl", {"document": "zz", "query": "x"}, {"document": "a"})
    other = write(tmp_path / "o.jsonl", {"text": "x"})
    empty = write(tmp_path / "e.jsonl")
    broken = tmp_path / "b.jsonl"
    broken.write_text('{"query": "x", "pos"', "utf-8")
    for file, told in (
        (unknown, "line 1: document 'zz' is not in"),
        (other, "expected synthetic queries"),
        (empty, "is empty"),
        (broken, "line 1: not a JSON object"),
    ):
        done = run(file, "--data", corpus)
        assert done.exit_code == 2, done.stdout
        assert told in done.stderr
    assert run(unknown, "--data", corpus, "--plot", tmp_path / "x.pdf").exit_code == 2
