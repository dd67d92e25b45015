"""The reported figures: which systems stand on which board, with what precision, and what stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from obliq_eval.data.official import OFFICIAL
from obliq_eval.leaderboard import paper
from obliq_eval.leaderboard.boards import load_boards

if TYPE_CHECKING:
    from pathlib import Path

IN_THE_MAIN_TABLES = {
    "bm25", "lateon", "qwen3-embed-0.6b", "qwen3-embed-4b", "gemini-2-embedding", "gpt-query-rewriter", "gpt-multihop",
    "obliq-ir-no-distillation", "obliq-ir", "obliq-ir-full", "oracle-tournament",
}  # fmt: skip


@pytest.mark.parametrize("task", ["OBLIQ-Twitter", "OBLIQ-Math", "OBLIQ-Writing", "OBLIQ-Congress"])
def test_every_system_of_the_main_tables_is_on_every_board(task: str) -> None:
    assert {entry.system for entry in paper.reported_entries(task)} >= IN_THE_MAIN_TABLES


def test_systems_of_single_tasks_are_on_their_boards() -> None:
    on = {task: {entry.system for entry in paper.reported_entries(task)} for task in OFFICIAL}
    assert [task for task in OFFICIAL if "authorship-encoder" in on[task]] == ["OBLIQ-Writing"]
    assert [task for task in OFFICIAL if "oracle-tournament-with-solutions" in on[task]] == ["OBLIQ-Math"]
    assert [task for task in OFFICIAL if "obliq-ir-merged" in on[task]] == ["OBLIQ-Twitter", "OBLIQ-Math"]


# Copied by hand from the paper's Tables 3 and 4 and the model card, NDCG@10 under gold judgments.
@pytest.mark.parametrize(
    ("task", "system", "text"),
    [
        ("OBLIQ-Writing", "qwen3-embed-0.6b", "0.046"),
        ("OBLIQ-Writing", "authorship-encoder", "0.206"),
        ("OBLIQ-Writing", "obliq-ir-full", "0.211"),
        ("OBLIQ-Congress", "bm25", "0.000"),
        ("OBLIQ-Congress", "oracle-tournament", "0.913"),
        ("OBLIQ-Twitter", "obliq-ir-full", "0.177"),
        ("OBLIQ-Math", "obliq-ir-merged", "0.1407"),
    ],
)
def test_reported_numbers_are_those_of_the_source(task: str, system: str, text: str) -> None:
    entry = next(entry for entry in paper.reported_entries(task) if entry.system == system)
    assert entry.main is not None
    assert entry.main.text == text
    assert (entry.ran_by, entry.scored_by, entry.rank, entry.depth) == ("paper", "reported", None, None)


def test_a_number_keeps_the_precision_of_its_source() -> None:
    rows = {(r.task, r.system, r.judgments, r.measure): r for r in paper.reported()}
    exact = rows["OBLIQ-Math", "obliq-ir", "gold", "ndcg@10"]
    assert (exact.value, exact.decimals) == (0.1402566065886442, 16)
    round_one = rows["OBLIQ-Writing", "qwen3-embed-0.6b", "gold", "ndcg@50"]
    assert (round_one.value, round_one.decimals) == (0.06, 3)
    assert len(rows) == len(paper.reported())


def test_what_no_source_states_is_unknown_and_not_zero() -> None:
    lateon = next(entry for entry in paper.reported_entries("OBLIQ-Math") if entry.system == "lateon")
    assert lateon.figures == {}
    assert lateon.main is None
    assert lateon.exposure.trained_on_corpus is None


def test_the_boards_of_an_empty_folder_hold_the_reported_rows(tmp_path: Path) -> None:
    boards = load_boards(tmp_path / "nothing here")
    assert [board.task for board in boards if board.entries] == list(OFFICIAL)
    assert [board.name for board in boards] == ["OBLIQ-Bench"] * 5 + ["OBLIQ-Mini"] * 3
    best = {board.task: {entry.label for entry in board.best} for board in boards}
    assert best["OBLIQ-Congress"] == {"OBLIQ-IR (full)"}
    assert best["OBLIQ-Writing"] == {"OBLIQ-IR (full)", "OBLIQ-IR (dense)"}  # the reranking policy is "none" there
    assert best["OBLIQ-Mini-Math"] == set()


def test_each_table_of_the_paper_is_whole() -> None:
    tables = {page.slug: page.tables[0] for page in paper.table_pages()}
    assert set(tables) == {"table-5", "table-h1", "table-d1"}
    for table in tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    control = next(row for row in tables["table-h1"].rows if row[0] and row[0].startswith("random graph"))
    by_task = dict(zip(tables["table-h1"].columns, control, strict=True))
    assert (by_task["OBLIQ-Writing"], by_task["OBLIQ-Congress"], by_task["OBLIQ-Math"]) == ("0.001", "0.000", "0.140")
    listwise = next(row for row in tables["table-5"].rows if row[0] == "task-aware listwise")
    assert listwise == ("task-aware listwise", "0.175", None, None, None)
    assert "< 0.001" in {row[-1] for row in tables["table-d1"].rows}
