"""`obliq compare`: tables for each task and judgment, other forms of output, the page, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.cli import app
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNER = CliRunner()
REAL = Path(__file__).parents[3] / "shared" / "data" / "congress-weaviate"
QUERIES = {"q1": "one", "q2": "two", "q3": "three"}
GOLD = {q: {"a": 1} for q in QUERIES}
GOOD, BAD = (dict.fromkeys(QUERIES, order) for order in (["a", "b"], ["b", "a"]))


def obliq(*arguments: object) -> Any:
    return RUNNER.invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture
def tasks(write_task: Callable[..., Path]) -> tuple[Path, Path]:
    """Two tasks, each with a stored run of the models `good` and `bad`."""
    corpus = {"a": "text of a", "b": "text of b"}
    folders = (
        write_task(corpus, QUERIES, GOLD, {q: {"a": 1, "b": 1} for q in QUERIES}, name="first"),
        write_task(corpus, QUERIES, GOLD, name="second"),
    )
    for folder in folders:
        for name, answers in (("good", GOOD), ("bad", BAD)):
            run = Run.from_lists(answers, 10)
            data, model = runs.Data(folder.name, None, "folder"), runs.Model(f"me/{name}", alias=name)
            runs.store(run, runs.Manifest(folder.name, data, model, 10, 3))
    return folders


def test_each_task_and_judgment_has_its_own_tables(tasks: tuple[Path, Path]) -> None:
    done = obliq("bad", "good", "-t", tasks[0], "-t", tasks[1])
    assert done.exit_code == 0, done.stderr
    for title in ("first, all queries (n = 3), gold", "first, all queries (n = 3), pooled", "second, all queries"):
        assert title in done.stdout
    assert "+0.369" in done.stdout  # rank 2 against rank 1: 1 - 1 / log2(3)
    assert "Holm over the family: 1 system against bad, gold" in done.stdout
    assert "n = 3 is small" in done.stderr
    found = json.loads(obliq("bad", "good", "-t", tasks[0], "-t", tasks[1], "--json").stdout)
    assert [one["task"] for one in found] == ["first", "second"]
    assert list(found[0]["judgments"]) == ["gold", "pooled"]


def test_markdown_and_latex_hold_the_tables_alone(tasks: tuple[Path, Path]) -> None:
    markdown = obliq("bad", "good", "-t", tasks[0], "--markdown").stdout
    assert "| good | +0.369 |" in markdown
    assert r"\begin{tabular}" in obliq("bad", "good", "-t", tasks[0], "--latex").stdout
    assert obliq("bad", "good", "-t", tasks[0], "--latex", "--json").exit_code == 2


def test_interval_resamples_seed_and_tests_are_as_asked_and_stand_in_every_form(tasks: tuple[Path, Path]) -> None:
    asked = ("bad", "good", "-t", tasks[1], "--interval", "bca", "--resamples", 500, "--seed", 7)
    both = (*asked, "--test", "student", "--test", "fisher")
    said = "95 % BCa interval, 500 resamples, seed 7"
    assert said in " ".join(obliq(*both).stdout.split())
    for form, percent in (("--markdown", "%"), ("--latex", r"\%")):
        text = obliq(*both, form).stdout
        assert said.replace("%", percent) in text
        assert "ranx student p: ranx's paired Student t-test" in text
        assert "ranx fisher p" in text
    (one,) = json.loads(obliq(*both, "--json").stdout)
    (contrast,) = one["judgments"]["gold"]["contrasts"]
    assert (contrast["method"], contrast["resamples"], contrast["seed"]) == ("bca", 500, 7)
    assert contrast["ranx_p"]["student"] < 1e-12  # the same gain on each of the three queries: t is infinite
    assert contrast["p"] == 2 / 501
    assert list(contrast["ranx_p"]) == ["student", "fisher"]
    (one,) = json.loads(obliq(*asked, "--json").stdout)
    assert one["judgments"]["gold"]["contrasts"][0]["ranx_p"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--interval", "bcaa"), 'did you mean "bca"'),
        (("--resamples", "39"), "39 resamples are too few for an interval of 95 %"),
        (("--resamples", "0"), "at least 1, not 0"),
        (("--seed", "-1"), "0 or more, not -1"),
        (("--test", "students"), 'did you mean "student"'),
    ],
)
def test_settings_that_cannot_be_are_one_sentence_and_status_2(
    tasks: tuple[Path, Path], arguments: tuple[str, ...], message: str
) -> None:
    done = obliq("bad", "good", "-t", tasks[0], *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_known_model_that_was_not_run_comes_with_the_command(tasks: tuple[Path, Path]) -> None:
    done = obliq("bad", "bm25-okapi", "-t", tasks[0])
    assert done.exit_code == 2
    assert f"no run of bm25-okapi on first yet: obliq run -m bm25-okapi --data {tasks[0]}" in done.stderr
    done = obliq("bm25", "bm25-okapi", "-t", "OBLIQ-Mini-Writing")
    assert "no run of bm25 on OBLIQ-Mini-Writing yet: obliq run -m bm25 -t OBLIQ-Mini-Writing" in done.stderr
    assert "obliq run -m bm25-okapi -t OBLIQ-Mini-Writing" in done.stderr
    assert 'no run "nothing"' in obliq("bad", "nothing", "-t", tasks[0]).stderr


def test_the_baseline_is_the_one_that_is_named(tasks: tuple[Path, Path]) -> None:
    done = obliq("bad", "good", "-t", tasks[1], "--baseline", "good", "--json")
    (one,) = json.loads(done.stdout)
    assert one["baseline"] == "good"
    assert one["judgments"]["gold"]["contrasts"][0]["difference"] < 0


def test_the_page_is_written_for_one_task(tasks: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "pages" / "page.html"
    done = obliq("bad", "good", "-t", tasks[0], "--html", page)
    assert done.exit_code == 0, done.stderr
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert f"page: {page}" in done.stdout
    assert obliq("bad", "good", "-t", tasks[0], "-t", tasks[1], "--html", page).exit_code == 2


def test_every_run_that_does_not_fit_is_named(tasks: tuple[Path, Path]) -> None:
    first = runs.load("good:first")
    assert first.manifest is not None
    wrong = replace(first.manifest, data=runs.Data("first", "0123", "folder"), seed=1, model=runs.Model("me/old"))
    old = runs.store(first.read(), wrong).name
    done = obliq("bad", "good:first", old, "-t", tasks[1])
    assert done.exit_code == 2
    assert "not compared: 2 problems" in done.stderr
    done = obliq("bad", old, "-t", tasks[0])
    assert done.exit_code == 2
    assert "searched revision 0123 of first" in done.stderr


def test_a_run_is_not_compared_with_itself(tasks: tuple[Path, Path]) -> None:
    done = obliq("bad", "bad", "-t", tasks[0])
    assert done.exit_code == 2
    assert "which is named already" in done.stderr
    done = obliq("bad", "-t", tasks[0])
    assert done.exit_code == 2
    assert "at least two runs" in done.stderr


@pytest.mark.skipif(not REAL.is_dir(), reason="the real per-query results are not beside this checkout")
def test_real_runs_are_compared_from_their_files() -> None:
    files = [REAL / "runs" / f"{name}.jsonl" for name in ("hybrid-search-1", "effort-high-1")]
    (one,) = json.loads(obliq(*files, "--qrels", REAL / "qrels.tsv", "--json").stdout)
    (contrast,) = one["judgments"]["gold"]["contrasts"]
    assert contrast["n"] == 254
    assert contrast["difference"] == pytest.approx(0.20584436593766575 - 0.053110419644538685, abs=1e-9)
    assert contrast["helped"] + contrast["hurt"] + contrast["tied"] + contrast["zero_in_both"] == 254
