"""`obliq runs`, driven as a user would."""

from __future__ import annotations

import json
from math import log2
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import runs, show
from obliq_eval.cli import app as obliq
from obliq_eval.commands.runs import app
from obliq_eval.data.sources import load
from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_eval.run_files import write_run

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from obliq_eval.records import Dataset

TREC = "q1 Q0 007 1 2.5 t\nq1 Q0 7 2 1.5 t\nq2 Q0 1e3 1 0.5 t\nq2 Q0 -5 2 0.25 t\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    (tmp_path / "in.trec").write_text(TREC)
    return tmp_path


def call(*arguments: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return result


def read(*arguments: object, exit_code: int = 0) -> Any:
    return json.loads(call(*arguments, "--json", exit_code=exit_code).stdout)


def imported(folder: Path, model: str = "org/m", *more: object) -> str:
    run: str = read("import", folder / "in.trec", "--task", "T", "--model", model, *more)["run"]
    return run


@pytest.mark.parametrize("command", ["list", "show", "diff", "export", "import"])
def test_every_command_has_help(command: str) -> None:
    assert "--json" in call(command, "--help").stdout


def test_import_export_round_trip_through_every_form(folder: Path) -> None:
    run = imported(folder)
    for form in ("ranx", "mteb", "parquet", "trec"):
        call("export", run, folder / form, "--form", form)
        assert read("diff", run, folder / form)["same"] is True
    assert (folder / "trec").read_text() == TREC.replace(" t\n", " org-m\n")


def test_list_shows_scores_under_gold(folder: Path) -> None:
    assert "no runs are stored yet" in call("list").stdout
    assert read("list") == []
    made = runs.Manifest(
        "T", runs.Data("T", "r", "hub"), runs.Model("org/m"), 1000, 2, coverage="dev",
        created="2026-02-03T04:05:06+00:00",
        scores={"gold": {"ndcg@10": 1 / 3, "recall@100": 0.5}, "pooled": {"ndcg@10": 0.9}},
    )  # fmt: skip
    stored = runs.store(Run.of({"q": {"d": 1.0}}, depth=1000), made)
    assert read("list") == [
        {
            "run": stored.name, "model": "org/m", "task": "T", "queries": 2, "coverage": "dev", "depth": 1000,
            "who": "us", "date": "2026-02-03", "NDCG@10": 1 / 3, "Recall@100": 0.5,
        }
    ]  # fmt: skip
    assert "0.333" in call("list").stdout
    imported(folder)
    assert [(row["who"], row["NDCG@10"]) for row in read("list")] == [("submitter", None), ("us", 1 / 3)]


def test_list_survives_a_damaged_entry(folder: Path) -> None:
    run, broken = imported(folder), imported(folder, "org/broken")
    (folder / "home" / "runs" / broken / "manifest.json").write_text("{")
    result = call("list")
    assert run in result.stdout
    assert broken not in result.stdout
    assert f"{broken} is damaged" in result.stderr


def test_show(folder: Path) -> None:
    run = imported(folder, "org/m", "--revision", "v2", "--who", "paper", "--depth", 1000)
    shown = read("show", run)
    assert (shown["run_id"], shown["model"]["revision"], shown["who"], shown["depth"]) == (run, "v2", "paper", 1000)
    assert (shown["data"]["revision"], shown["versions"], shown["hardware"]) == (None, {}, "")
    lines = call("show", run).stdout.splitlines()
    assert any(line.split() == ["model.revision", "v2"] for line in lines)
    assert any(line.split() == ["data.revision", show.UNKNOWN] for line in lines)
    with pytest.raises(UserError, match="without a manifest"):
        call("show", folder / "in.trec")


def test_diff_ends_with_1_when_runs_differ(folder: Path) -> None:
    """The second file swaps the documents of q2: one query of two keeps its order, scores and first document."""
    run = imported(folder)
    (folder / "b.trec").write_text("q1 Q0 007 1 2.5 t\nq1 Q0 7 2 1.5 t\nq2 Q0 -5 1 0.5 t\nq2 Q0 1e3 2 0.25 t\n")
    assert read("diff", run, folder / "b.trec", exit_code=1) == {
        "depth": 100, "common": 2, "only_a": [], "only_b": [], "same_order": 1, "same_scores": 1, "same_top1": 1,
        "max_difference": 0.25, "same": False,
    }  # fmt: skip
    table = call("diff", run, folder / "b.trec", exit_code=1).stdout
    assert "identical top-100 order" in table
    assert "2.50e-01" in table
    assert "of 2 queries" in table
    call("diff", run, folder / "in.trec", exit_code=0)


def test_import_twice_keeps_one_and_another_file_keeps_both(folder: Path) -> None:
    assert imported(folder) == imported(folder)
    (folder / "in.trec").write_text(TREC.replace("2.5", "3.5"))
    imported(folder)
    assert len(read("list")) == 2


def test_import_names_queries_without_an_answer(folder: Path) -> None:
    (folder / "in.trec").write_text('{"qid": "a", "ranking": ["x"]}\n{"qid": "b", "ranking": []}\n')
    result = call("import", folder / "in.trec", "--task", "T", "--model", "m")
    assert "1 queries have no answer: b" in result.stderr
    run = read("list")[0]["run"]
    assert read("show", run)["unanswered"] == ["b"]
    assert "left out: 'b'" in call("export", run, folder / "out.trec").stderr
    assert (folder / "out.trec").read_text() == "a Q0 x 1 1.0 m\n"


def test_mteb_parts_are_chosen(folder: Path) -> None:
    content = {"mteb_model_meta": {"model_name": "m", "revision": "r"}, "en": {"a": {"q": {"d": 1.0}}, "b": {}}}
    (folder / "in.trec").write_text(json.dumps(content))
    with pytest.raises(UserError, match="en/a, en/b"):
        imported(folder)
    assert imported(folder, "m", "--part", "en/a")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["show", "nothing"], "no run"),
        (["export", "in.trec", "out", "--form", "csv"], "unknown form"),
        (["import", "in.trec", "--task", "T", "--model", "m", "--who", "me"], "paper, us, submitter"),
        (["import", "in.trec", "--task", "T", "--model", "m", "--coverage", "tset"], 'did you mean "test"'),
        (["import", "in.trec", "--task", "T", "--model", "m", "--depth", "1"], "depth"),
        (["import", "in.trec", "--task", "OBLIQ-Maths", "--model", "m"], 'did you mean "OBLIQ-Math"'),
        (["import", "absent", "--task", "T", "--model", "m"], "cannot read"),
        (["import", "bad", "--task", "T", "--model", "m"], "line 1"),
        (["import", "in.trec", "--task", "T", "--model", ""], "--model is empty"),
        (["import", "in.trec", "--task", " ", "--model", "m"], "--task is empty"),
        (["import", "in.trec", "--task", "T", "--model", "m", "--revision", ""], "--revision is empty"),
        (["import", "in.trec", "--task", "T", "--model", "m", "--data-revision", ""], "--data-revision is empty"),
        (["import", "in.trec", "--task", "T", "--model", "a\nb"], "cannot be shown"),
        (["show", "x" * 300], "no run"),
    ],
)
def test_mistakes_are_one_sentence_and_store_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], word: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "bad").write_text("q Q0 d 1 nan t\n")
    with pytest.raises(UserError, match=word):
        call(*arguments)
    assert sorted(path.name for path in folder.iterdir()) == ["bad", "in.trec"]


def test_usage_errors_end_with_2(folder: Path) -> None:
    call("import", folder / "in.trec", exit_code=2)
    call("diff", "a", "b", "--depth", "0", exit_code=2)


def test_import_for_a_bundled_task_is_checked_and_scored(folder: Path) -> None:
    """Each query is answered with one of its gold documents: NDCG@1 would be 1, Recall@10 is 1 / (gold documents)."""
    gold = load("OBLIQ-Mini-Math").gold
    answers = {query: {next(d for d, g in gold.grades[query].items() if g > 0): 1.0} for query in gold.queries}
    write_run(Run.of(answers, depth=10), folder / "math.trec", "trec")
    listed = read("import", folder / "math.trec", "--task", "OBLIQ-Mini-Math", "--model", "me/x", "--depth", "10")
    expected = fmean(1 / sum(g > 0 for g in gold.grades[q].values()) for q in gold.queries)
    assert listed["scores"]["gold"]["recall@10"] == pytest.approx(expected)
    assert "recall@50" not in listed["scores"]["gold"]
    assert set(listed["scores"]) == {"gold", "pooled"}
    with pytest.raises(UserError, match="OBLIQ-Mini-Math"):
        call("import", folder / "in.trec", "--task", "OBLIQ-Mini-Math", "--model", "me/wrong")


def test_import_refuses_a_document_that_is_named_twice(folder: Path) -> None:
    (folder / "in.trec").write_text("q1 Q0 a 1 2.5 t\nq1 Q0 b 2 1.5 t\nq1 Q0 a 3 0.5 t\n")
    done = CliRunner().invoke(obliq, ["runs", "import", str(folder / "in.trec"), "--task", "T", "--model", "m"])
    assert done.exit_code == 2
    assert "'q1'" in done.stderr
    assert "'a'" in done.stderr
    assert read("list") == []


def test_import_drops_excluded_documents_and_says_so(folder: Path) -> None:
    """Two queries are answered with a document they exclude, before their gold one: first of one, NDCG@10 is whole."""
    data = load("OBLIQ-Mini-Writing")
    answers: dict[str, dict[str, float]] = {}
    forbidden: dict[str, str] = {}
    for query in data.gold.queries:
        own = relevant(data, query)[0]
        answers[query] = {own: 1.0}
        if len(forbidden) < 2 and data.exclusions.get(query):
            forbidden[query] = min(data.exclusions[query])
            answers[query] = {forbidden[query]: 2.0, own: 1.0}
    assert len(forbidden) == 2
    scores = []
    for name, given in (("with", answers), ("clean", Run.of(answers).without(data.exclusions, 10).to_dict())):
        write_run(Run.of(given, depth=10), folder / f"{name}.trec", "trec")
        words = ("import", folder / f"{name}.trec", "--task", "OBLIQ-Mini-Writing", "--model", f"me/{name}")
        result = call(*words, "--depth", "10", "--json")
        assert ("2 excluded documents were dropped" in result.stderr) == (name == "with")
        scores.append(json.loads(result.stdout)["scores"])
    assert scores[0] == scores[1]
    best = fmean(1 / sum(1 / log2(r + 2) for r in range(min(10, len(relevant(data, q))))) for q in data.gold.queries)
    assert scores[0]["gold"]["ndcg@10"] == pytest.approx(best)


def relevant(data: Dataset, query: str) -> list[str]:
    return [document for document, grade in data.gold.grades[query].items() if grade > 0]
