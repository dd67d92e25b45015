"""`obliq leaderboard`: add, build, verify and check over real runs of a bundled task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import cli, runs
from obliq_eval.data.sources import load
from obliq_eval.manifest import Data, Manifest, Model
from obliq_eval.records import Run
from obliq_eval.run_files import read_run, write_run
from obliq_eval.show import UNKNOWN

if TYPE_CHECKING:
    from obliq_eval.records import Dataset

TASK = "OBLIQ-Mini-Congress"
ABOUT = ("--description", "Finds half of the passages.", "--licence", "mit")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The bundled task; each of its 170 queries has one relevant document."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OBLIQ_HOME", str(tmp_path_factory.mktemp("home")))
        return load(TASK)


def obliq(*arguments: object) -> Any:
    return CliRunner().invoke(cli.app, ["leaderboard", *map(str, arguments)], env={"COLUMNS": "300"})


def keep(searched: Dataset, answers: dict[str, dict[str, float]], depth: int = 10, **changes: Any) -> runs.StoredRun:
    """Put a run into the store."""
    manifest = Manifest(
        task=TASK, data=Data(TASK, searched.revision, "mini"), model=Model("me/half"), depth=depth,
        n_queries=len(answers), versions={}, hardware="a machine", seconds=1.7,
    )  # fmt: skip
    return runs.store(Run.of(answers, depth), replace(manifest, **changes))


def half(data: Dataset) -> dict[str, dict[str, float]]:
    """Return the relevant document first for every other query, and no answer for the rest."""
    return {q: ({next(iter(data.gold.grades[q])): 1.0} if i % 2 == 0 else {}) for i, q in enumerate(data.gold.queries)}


def test_add_build_verify_check(tmp_path: Path, data: Dataset) -> None:
    """85 of 170 queries are answered right, with the one relevant document on top: NDCG@10 is .5."""
    root = tmp_path / "boards"
    stored = keep(data, half(data))
    added = obliq("add", stored.name, "--root", root, *ABOUT, "--link", "https://a.example", "--saw-dev", "--json")
    assert added.exit_code == 0, added.output
    folder = root / "mini" / "me-half" / TASK
    assert json.loads(added.stdout) == {"written": [str(folder)]}
    assert {path.name for path in folder.iterdir()} == {"run.parquet", "manifest.json", "scores.json"}
    assert runs.diff(read_run(folder / "run.parquet"), stored.read()).same

    assert obliq("build", "--root", root).exit_code == 0
    page = (root / f"{TASK}.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| me/half | **0.5000**"))
    assert f"| all | 10 | submitter | recomputed | {UNKNOWN} / {UNKNOWN} / yes |" in row
    assert "https://a.example" in page

    verified = obliq("verify", "--root", root, "--json")
    assert verified.exit_code == 0, verified.output
    (gold,) = json.loads(verified.stdout)
    assert (gold["stated"], gold["recomputed"], gold["difference"], gold["good"]) == (0.5, 0.5, 0.0, True)
    assert obliq("check", "--root", root).exit_code == 0

    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert obliq("build", "--root", root).exit_code == 0
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_check_names_every_page_that_is_not_what_build_would_write(tmp_path: Path) -> None:
    root = tmp_path / "boards"
    missing = obliq("check", "--root", root, "--json")
    assert missing.exit_code == 1
    assert json.loads(missing.stdout)["stale"]["README.md"] == "missing"
    assert obliq("build", "--root", root).exit_code == 0
    (root / "own.md").write_text("A page of my own.\n")
    assert obliq("check", "--root", root).exit_code == 0

    page = root / "OBLIQ-Math.md"
    page.write_text(page.read_text("utf-8").replace("0.171", "0.371"), "utf-8")
    (root / "table-5.md").rename(root / "table-4.md")
    found = obliq("check", "--root", root, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["stale"] == {
        "OBLIQ-Math.md": "out of date", "table-5.md": "missing", "table-4.md": "made no more",
    }  # fmt: skip
    assert obliq("build", "--root", root).exit_code == 0
    assert obliq("check", "--root", root).exit_code == 0
    assert (root / "own.md").exists()
    assert not (root / "table-4.md").exists()


def test_verify_finds_numbers_that_do_not_follow_from_the_run(tmp_path: Path, data: Dataset) -> None:
    root = tmp_path / "boards"
    assert obliq("verify", "--root", root).exit_code == 0  # nothing to verify
    assert obliq("add", keep(data, half(data)).name, "--root", root, *ABOUT).exit_code == 0
    folder = root / "mini" / "me-half" / TASK
    scores = json.loads((folder / "scores.json").read_text("utf-8"))
    scores["judgments"]["gold"]["values"]["ndcg@10"][1] = 1.0
    (folder / "scores.json").write_text(json.dumps(scores), "utf-8")
    found = obliq("verify", "--root", root, "--json")
    assert found.exit_code == 1
    (row,) = json.loads(found.stdout)
    assert (row["good"], row["difference"]) == (False, 1.0)
    assert row["stated"] == pytest.approx(86 / 170, abs=1e-12)


def test_verify_finds_a_mean_in_the_manifest_that_differs(tmp_path: Path, data: Dataset) -> None:
    root = tmp_path / "boards"
    obliq("add", keep(data, half(data)).name, "--root", root, *ABOUT)
    manifest = root / "mini" / "me-half" / TASK / "manifest.json"
    manifest.write_text(manifest.read_text("utf-8").replace('"ndcg@10": 0.5', '"ndcg@10": 0.6'), "utf-8")
    assert obliq("verify", "--root", root).exit_code == 1


def test_verify_finds_an_exchanged_run(tmp_path: Path, data: Dataset) -> None:
    root = tmp_path / "boards"
    obliq("add", keep(data, half(data)).name, "--root", root, *ABOUT)
    right = {q: dict.fromkeys(data.gold.grades[q], 1.0) for q in data.gold.queries}
    write_run(Run.of(right, 10), root / "mini" / "me-half" / TASK / "run.parquet", "parquet")
    found = obliq("verify", "--root", root)
    assert found.exit_code == 1
    assert "not what manifest.json describes" in found.stdout


def test_everything_that_speaks_against_a_submission_is_named_at_once(tmp_path: Path, data: Dataset) -> None:
    root = tmp_path / "boards"
    answers = {**half(data), "stranger": {"no-such-document": 1.0}}
    stored = keep(data, answers, data=Data(TASK, "0" * 40, "mini"))
    refused = obliq("add", stored.name, "--root", root, "--link", "ftp://a")
    assert refused.exit_code == 2
    for part in ("description is missing", "licence is missing", "'ftp://a'", "searched revision 0000", "'stranger'",
                 "'no-such-document'"):  # fmt: skip
        assert part in refused.stderr
    assert "6 problems" in refused.stderr
    assert not root.exists()


def test_a_run_for_another_task_is_refused(tmp_path: Path, data: Dataset) -> None:
    stored = keep(data, half(data), task="OBLIQ-Mini-Writing")
    refused = obliq("add", stored.name, "--root", tmp_path / "boards", *ABOUT)
    assert refused.exit_code == 2
    assert "no queries of OBLIQ-Mini-Writing; is it a run for another task?" in refused.stderr
    unknown = keep(data, half(data), task="OBLIQ-Mini-Congres")
    refused = obliq("add", unknown.name, "--root", tmp_path / "boards", *ABOUT)
    assert 'did you mean "OBLIQ-Mini-Congress"?' in refused.stderr


def test_answers_outside_of_the_stated_coverage_are_refused(tmp_path: Path, data: Dataset) -> None:
    stored = keep(data, half(data), coverage="dev")
    refused = obliq("add", stored.name, "--root", tmp_path / "boards", *ABOUT)
    assert refused.exit_code == 2
    assert "covers the dev queries, but" in refused.stderr


def test_scores_that_are_no_numbers_are_refused(tmp_path: Path, data: Dataset) -> None:
    stored = keep(data, half(data))
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(stored.path / "run.parquet")
    bad = pa.array([float("nan")] * table.num_rows, pa.float32())
    pq.write_table(table.set_column(2, "score", bad), stored.path / "run.parquet")
    refused = obliq("add", stored.name, "--root", tmp_path / "boards", *ABOUT)
    assert refused.exit_code == 2
    assert "not a finite number" in refused.stderr


def test_excluded_documents_are_refused(tmp_path: Path) -> None:
    task = "OBLIQ-Mini-Math"
    maths = load(task)
    query, excluded = next((q, min(ids)) for q, ids in maths.exclusions.items() if ids)
    stored = keep(maths, {query: {excluded: 1.0}}, task=task)
    refused = obliq("add", stored.name, "--root", tmp_path / "boards", *ABOUT)
    assert refused.exit_code == 2
    assert "excluded for their query" in refused.stderr
    assert query in refused.stderr


def test_a_folder_is_added_and_joins_what_stands_there(tmp_path: Path, data: Dataset) -> None:
    root, folder = tmp_path / "boards", tmp_path / "mine"
    stored = keep(data, half(data))
    folder.mkdir()
    (folder / "submission.toml").write_text('system = "me/half"\ndescription = "Half."\nlicence = "mit"\n')
    empty = obliq("add", folder, "--root", root)
    assert empty.exit_code == 2
    assert "each run needs one" in empty.stderr
    (stored.path).rename(folder / "some-run")
    assert obliq("add", folder, "--root", root).exit_code == 0
    other = root / "mini" / "me-half" / "OBLIQ-Mini-Math"
    other.mkdir()
    (other / "kept").touch()
    assert obliq("add", folder, "--root", root, "--label", "The half").exit_code == 0
    assert (other / "kept").exists()
    assert 'label = "The half"' in (root / "mini" / "me-half" / "submission.toml").read_text("utf-8")


def test_two_systems_never_share_a_folder(tmp_path: Path, data: Dataset) -> None:
    root = tmp_path / "boards"
    stored = keep(data, half(data))
    assert obliq("add", stored.name, "--root", root, *ABOUT, "--system", "A b").exit_code == 0
    refused = obliq("add", stored.name, "--root", root, *ABOUT, "--system", "a/B")
    assert refused.exit_code == 2
    assert "holds another system, 'A b'" in refused.stderr


def test_a_run_is_cut_to_the_depth_that_is_measured(tmp_path: Path, data: Dataset) -> None:
    """The relevant document stands at rank 1001: it is cut, and Recall@1000 is 0."""
    from obliq_eval.data.corpus import ids_of

    query = data.gold.queries[0]
    gold = next(iter(data.gold.grades[query]))
    others = [d for d in ids_of(data.corpus.documents) if d != gold][:1000]
    answers = {query: {**{d: 2000.0 - i for i, d in enumerate(others)}, gold: 1.0}}
    root = tmp_path / "boards"
    assert obliq("add", keep(data, answers, depth=1100).name, "--root", root, *ABOUT).exit_code == 0
    folder = root / "mini" / "me-half" / TASK
    kept = read_run(folder / "run.parquet")
    assert (kept.depth, len(kept.rankings[query])) == (1000, 1000)
    assert json.loads((folder / "manifest.json").read_text("utf-8"))["scores"]["gold"]["recall@1000"] == 0.0
    assert obliq("verify", "--root", root).exit_code == 0


def test_a_file_without_manifest_is_sent_to_import(tmp_path: Path) -> None:
    file = tmp_path / "my.trec"
    file.write_text("q1 Q0 d1 1 1.0 me\n")
    refused = obliq("add", file, "--root", tmp_path / "boards", *ABOUT)
    assert refused.exit_code == 2
    assert "obliq runs import" in refused.stderr


def test_build_works_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert obliq("build").exit_code == 0
    assert "OBLIQ-IR (full)" in Path("leaderboards/README.md").read_text("utf-8")
    assert obliq("check").exit_code == 0


def test_the_queries_to_be_scored_are_chosen(tmp_path: Path, data: Dataset) -> None:
    root = tmp_path / "boards"
    stored = keep(data, half(data))
    wrong = obliq("add", stored.name, "--root", root, *ABOUT, "--queries", "heldout")
    assert wrong.exit_code == 2
    assert 'did you mean "held-out"?' in wrong.stderr
    assert obliq("add", stored.name, "--root", root, *ABOUT, "--queries", "held-out").exit_code == 0
    assert obliq("verify", "--root", root).exit_code == 0
    assert obliq("build", "--root", root).exit_code == 0
    assert "| held-out | 10 |" in (root / f"{TASK}.md").read_text("utf-8").replace("\\", "")
