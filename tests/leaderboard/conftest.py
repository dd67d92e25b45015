"""Submissions of toy size, written as `obliq leaderboard add` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from obliq_eval.commands.tasks import known_tasks
from obliq_eval.leaderboard.submissions import ABOUT, MANIFEST, SCORES, About, scores_text
from obliq_eval.manifest import Data, Manifest, Model
from obliq_eval.metrics import Panel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

REVISIONS = {facts.task: facts.revision for facts in known_tasks()}


def panel(values: Sequence[float], depth: int) -> Panel:
    """Return a panel in which every measure has the same value for a query."""
    row = np.array(values, np.float64)
    measures = ("ndcg@10", "ndcg@50", "recall@10", "recall@50", "recall@100", "recall@1000")
    queries = tuple(f"q{i}" for i in range(len(values)))
    return Panel(queries, dict.fromkeys(measures, row), depth, (), (), 0, 0.25, 3)


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes one submission without its run, and returns the leaderboard's folder."""

    def write(
        system: str,
        values: Sequence[float],
        task: str = "OBLIQ-Math",
        kind: str = "submissions",
        revision: str | None = None,
        depth: int = 1000,
        coverage: Any = "all",
        judgments: Sequence[str] = ("gold",),
        **about: Any,
    ) -> Path:
        root = tmp_path / "boards"
        said = About(**{"system": system, "description": "A toy.", "licence": "mit", **about})
        folder = root / kind / said.slug / task
        folder.mkdir(parents=True)
        (folder.parent / ABOUT).write_text(said.to_toml(), "utf-8")
        manifest = Manifest(
            task, Data(task, revision or REVISIONS[task], "hub"), Model(system), depth, len(values), coverage,
            created="2026-01-02T03:04:05+00:00", versions={}, hardware="a machine", seconds=12.0, content="abc",
        )  # fmt: skip
        (folder / MANIFEST).write_text(manifest.to_json(), "utf-8")
        (folder / SCORES).write_text(scores_text(dict.fromkeys(judgments, panel(values, depth)), "abc"), "utf-8")
        return root

    return write
