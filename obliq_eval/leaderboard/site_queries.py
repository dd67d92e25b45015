"""The pages on which a person reads, query by query, where the measured systems of a mini board differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from obliq_eval import comparison, comparison_page, reference, runs
from obliq_eval.leaderboard.entries import MINI_BENCH
from obliq_eval.leaderboard.site_tables import plain

if TYPE_CHECKING:
    from obliq_eval.leaderboard.entries import Board, Entry

LARGEST = 2_000_000
"""Bytes of a page; the lowest systems are left out until it is not larger."""
MOST = 6
"""Systems on a page, the baseline included."""
BASELINE = "bm25"


@dataclass(frozen=True)
class QueryPage:
    """One page.

    Args:
        path: Below the site's folder.
        content: The HTML, which needs no other file.
        baseline: Label of the system that the others are compared with; untrusted text.
        others: Labels of the others.
        left_out: Labels of measured systems that found no room.
    """

    path: str
    content: str
    baseline: str
    others: tuple[str, ...]
    left_out: tuple[str, ...]


def query_page(board: Board) -> QueryPage | None:
    """Return the page of a board, or None where there is none.

    There is one for a mini board, whose data comes with the package, with at least two measured systems over all
    queries. The baseline is BM25, or the lowest system where BM25 was not measured.

    Raises:
        UserError: If a run cannot be read.
    """
    measured = [entry for entry in board.entries if entry.folder is not None and entry.coverage == "all"]
    if board.name != MINI_BENCH or len(measured) < 2:
        return None
    baseline = next((entry for entry in measured if entry.system == BASELINE), measured[-1])
    others = [entry for entry in measured if entry is not baseline]
    judged = reference.open_task(board.task)
    systems = {entry.system: _system(entry, judged) for entry in (baseline, *others[: MOST - 1])}
    while len(systems) > 1:
        content = comparison_page.render(comparison.compare(judged, list(systems.values())))
        if len(content.encode()) <= LARGEST:
            break
        systems.popitem()
    else:
        return None
    return QueryPage(
        path=f"queries/{board.task}.html",
        content=content,
        baseline=plain(baseline.label),
        others=tuple(plain(entry.label) for entry in others if entry.system in systems),
        left_out=tuple(plain(entry.label) for entry in others if entry.system not in systems),
    )


def _system(entry: Entry, judged: reference.Reference) -> reference.System:
    return replace(reference.fit(runs.load(str(entry.folder)), judged), name=plain(entry.label))
