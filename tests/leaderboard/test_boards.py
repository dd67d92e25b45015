"""Boards: order, bold, rank intervals, and what is never mixed."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from obliq_eval.errors import UserError
from obliq_eval.leaderboard.boards import load_boards, ranks
from obliq_eval.significance import holm, paired_bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from obliq_eval.leaderboard.entries import Board

OLD = "0" * 40


def board(root: Path, task: str = "OBLIQ-Math") -> Board:
    return next(board for board in load_boards(root) if board.task == task)


def test_rank_intervals_by_hand() -> None:
    """Two systems share the first place, a third is worse than both on every query."""
    good, bad = np.ones(50), np.zeros(50)
    assert ranks([good, bad, good.copy()]) == [(1, 2), (3, 3), (1, 2)]


def test_rank_intervals_of_few_systems() -> None:
    assert ranks([]) == []
    assert ranks([np.ones(5)]) == [(1, 1)]
    assert ranks([np.ones(5), np.ones(5)]) == [(1, 2), (1, 2)]


@pytest.mark.parametrize("seed", range(5))
def test_rank_intervals_are_what_the_definition_says(seed: int) -> None:
    """Count, for each system, over a family made in another order."""
    rng = np.random.default_rng(seed)
    values = [rng.random(40) * (rng.random(40) < 0.5) + 0.12 * i for i in range(4)]
    n = len(values)
    pairs = list(combinations(range(n), 2))[::-1]
    p = dict(zip(pairs, holm([paired_bootstrap(values[i], values[j]).p for i, j in pairs]), strict=True))
    expected = []
    for i in range(n):
        clear = [j for j in range(n) if j != i and p[min(i, j), max(i, j)] < 0.05]
        better = sum(values[j].mean() > values[i].mean() for j in clear)
        expected.append((1 + better, n - (len(clear) - better)))
    assert ranks(values) == expected


def test_measured_rows_have_intervals_and_ranks_and_reported_rows_have_none(submit: Callable[..., Path]) -> None:
    submit("mine", [1.0, 0.5, 0.0, 0.5] * 10)
    root = submit("theirs", [0.0] * 40)
    rows = {entry.label: entry for entry in board(root).entries}
    mine = rows["mine"].main
    assert mine is not None
    assert mine.value == 0.5
    assert mine.low is not None
    assert mine.high is not None
    assert mine.low < 0.5 < mine.high
    assert (rows["mine"].rank, rows["theirs"].rank) == ((1, 1), (2, 2))
    reported = rows["OBLIQ-IR (full)"]
    assert reported.main is not None
    assert (reported.rank, reported.main.low, reported.judged_at_10("pooled")) == (None, None, None)
    assert (rows["mine"].scored_by, rows["mine"].ran_by, reported.scored_by) == ("recomputed", "submitter", "reported")


def test_an_oracle_is_neither_best_nor_ranked(submit: Callable[..., Path]) -> None:
    submit("seer", [1.0] * 40, oracle=True)
    root = submit("mine", [0.9] * 40)
    shown = board(root)
    assert [entry.label for entry in shown.best] == ["mine"]
    ranked = {entry.label: entry.rank for entry in shown.entries if entry.measured}
    assert ranked == {"mine": (1, 1), "seer": None}
    oracles = [entry.oracle for entry in shown.entries]
    assert oracles == sorted(oracles)


def test_parts_of_the_queries_are_ranked_apart_and_never_best(submit: Callable[..., Path]) -> None:
    submit("on-dev", [1.0] * 20, coverage="dev")
    root = submit("mine", [0.5] * 40)
    shown = board(root)
    assert [entry.label for entry in shown.best] == ["mine"]
    assert {e.label: e.rank for e in shown.entries if e.measured} == {"mine": (1, 1), "on-dev": (1, 1)}
    assert shown.entries[-1].label == "on-dev"


def test_recall_below_the_depth_of_a_run_is_unknown(submit: Callable[..., Path]) -> None:
    entry = next(entry for entry in board(submit("mine", [0.5] * 4, depth=20)).entries if entry.measured)
    assert entry.figure("gold", "recall@10") is not None
    assert entry.figure("gold", "recall@50") is None


def test_another_revision_of_the_data_is_refused(submit: Callable[..., Path]) -> None:
    submit("mine", [0.5] * 4)
    submit("older", [0.5] * 4, revision=OLD)
    root = submit("oldest", [0.5] * 4, revision=OLD)
    with pytest.raises(UserError, match=r"(?s)2 problems.*older.*revision 0{40}.*oldest"):
        load_boards(root)


def test_runs_over_other_queries_are_refused(submit: Callable[..., Path]) -> None:
    submit("mine", [0.5] * 4)
    with pytest.raises(UserError, match="other queries"):
        load_boards(submit("zzz", [0.5] * 5))


@pytest.mark.parametrize(("kind", "task"), [("submissions", "OBLIQ-Mini-Math"), ("mini", "OBLIQ-Math")])
def test_official_and_mini_runs_are_never_in_one_folder(submit: Callable[..., Path], kind: str, task: str) -> None:
    with pytest.raises(UserError, match=f"{task} is not one of"):
        load_boards(submit("mine", [0.5] * 4, task=task, kind=kind))


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"licence": " "}, "licence is missing"),
        ({"links": ("javascript:alert(1)",)}, "not a plain http"),
        ({"links": ("https://a.example/) [x](https://b.example",)}, "not a plain http"),
        ({"label": "a\u202eb"}, "control characters"),
    ],
)
def test_what_cannot_be_shown_is_refused(submit: Callable[..., Path], about: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_boards(submit("mine", [0.5] * 4, **about))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("scores.json", "{", "damaged"),
        ("scores.json", '{"content": "other", "judgments": {}}', "belongs to another run"),
        ("manifest.json", "{}", "damaged"),
    ],
)
def test_a_damaged_submission_is_named(submit: Callable[..., Path], file: str, content: str, message: str) -> None:
    root = submit("mine", [0.5] * 4)
    (root / "submissions" / "mine" / "OBLIQ-Math" / file).write_text(content)
    with pytest.raises(UserError, match=f"mine.*{message}"):
        load_boards(root)


def test_a_score_that_is_no_number_is_refused(submit: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"mine.*damaged.*ndcg@10"):
        load_boards(submit("mine", [0.5, float("nan")]))
