"""`obliq analyze` from the command line, on a toy task and on the bundled data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.analyses.cost import Stage, stage_counts
from obliq_eval.cli import app
from obliq_eval.data.sources import load
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCS = {f"d{i}": f"text {i}" for i in range(12)}
GOLD = {"q1": {"d0": 1}, "q2": {"d1": 1}, "q3": {"d2": 1}}
TAIL = [f"d{i}" for i in range(3, 12)]
# the first run finds d0 at rank 1, d1 at rank 2 and d2 nowhere; the second moves d1 up and loses d0
FIRST = {"q1": ["d0", *TAIL], "q2": ["d3", "d1"], "q3": TAIL}
SECOND = {"q1": TAIL, "q2": ["d1", "d3"], "q3": TAIL}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["analyze", *arguments])


@pytest.fixture
def task(write_task: Callable[..., Path]) -> Path:
    """A toy task with two stored runs, `first` and `second`."""
    folder = write_task(DOCS, dict.fromkeys(GOLD, "words"), GOLD)
    data = load(folder)
    for name, answers, counts in (
        ("first", FIRST, {}),
        ("second", SECOND, stage_counts(Stage("llm", 3, calls=39, prompt_tokens=300))),
    ):
        manifest = runs.Manifest(
            data.name, runs.Data(data.name, data.revision, "folder"), runs.Model(f"o/{name}", alias=name), 10, 3,
            counts=counts, seconds=6.0, hardware="a machine",
        )  # fmt: skip
        runs.store(Run.from_lists(answers, depth=10), manifest)
    return folder


def results(*arguments: str) -> dict[str, Any]:
    found = invoke(*arguments, "--json")
    assert found.exit_code == 0, found.output
    payload: dict[str, Any] = json.loads(found.stdout)
    return payload


def test_every_analysis_prints_its_numbers(task: Path) -> None:
    both = ("first", "second", "-t", str(task))
    found = results("recall", *both)
    assert (found["n_queries"], found["judgments"], found["queries"]) == (3, "gold", "all")
    assert found["results"]["first"]["values"][:2] == [pytest.approx(2 / 3), None]  # the runs end at 10
    assert results("depth", *both)["results"]["gains"]["second"]["queries"] == ["q1", "q3", "q2"]
    failures = results("failures", *both)["results"]["second"]
    assert (failures["helped"], failures["hurt"], failures["outside_pool"]) == (["q2"], ["q1"], ["q3"])
    assert results("degeneracy", *both)["results"]["second"]["first"] == [["d3", 2], ["d1", 1]]
    oracle = results("oracle", "second", "-t", str(task), "--oracle", "first")["results"]["second"]
    assert oracle["oracle"] == pytest.approx((1 + 0.6309297535714575) / 3)
    shuffle = results("shuffle", *both, "--shuffles", "5", "--seed", "1")["results"]["first"]
    assert (shuffle["shuffles"], shuffle["seed"], shuffle["pool"]) == (5, 1, 10)
    cost = results("cost", *both)["results"]["second"]
    assert [stage["calls"] for stage in cost] == [None, 39]
    assert cost[0]["machine"] == "a machine"


@pytest.mark.parametrize("name", ["recall", "depth", "shuffle", "oracle", "failures", "cost", "degeneracy"])
def test_tables_and_pictures(task: Path, tmp_path: Path, name: str) -> None:
    picture = tmp_path / "picture.svg"
    arguments = (name, "first", "second", "-t", str(task))
    plain = invoke(*arguments, "--plot", str(picture))
    assert plain.exit_code == 0, plain.output
    assert "second" in plain.stdout
    assert picture.read_text("utf-8").startswith("<?xml")
    assert "| ---" in invoke(*arguments, "--markdown").stdout
    assert r"\toprule" in invoke(*arguments, "--latex").stdout


def test_failures_of_the_same_run_twice_are_refused(task: Path) -> None:
    found = invoke("failures", "first", "second", "first:toy", "-t", str(task))
    assert found.exit_code == 2
    assert "is named twice; compare it with another one" in found.stderr
    assert "first" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_what_cannot_be_done_is_said_in_a_sentence(task: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("recall", "first", "-t", str(task), "--json", "--latex"), "exclude each other"),
        (("recall", "first", "-t", str(task), "--plot", str(tmp_path / "a.pdf")), ".svg or .png"),
        (("recall", "first", "-t", str(task), "--judgments", "pooled"), "no 'pooled' judgments, only gold"),
        (("failures", "first", "-t", str(task)), "need two runs"),
        (("recall", "nothing", "-t", str(task)), 'no run "nothing"'),
        (("recall", "first"), "-t TASK"),
    ):
        found = invoke(*arguments)
        assert found.exit_code == 2
        assert words in " ".join(found.stderr.split())


def test_a_collapsed_run_is_called_so(task: Path) -> None:
    found = invoke("degeneracy", "second", "-t", str(task))
    assert "may have collapsed" in found.stderr  # d3 comes first for two of three queries


def test_a_single_query_is_timed_on_request(task: Path) -> None:
    """Load bm25 again, as its manifest names it, and ask it alone."""
    data = load(task)
    manifest = runs.Manifest(
        data.name, runs.Data(data.name, data.revision, "folder"), runs.Model("obliq/bm25", alias="bm25"), 10, 3
    )
    runs.store(Run.from_lists(FIRST, depth=10), manifest)
    whole, alone = results("cost", "bm25", "-t", str(task), "--time", "2")["results"]["bm25"]
    assert whole["single_seconds"] is None
    assert alone["queries"] == 2
    assert alone["single_seconds"] > 0
