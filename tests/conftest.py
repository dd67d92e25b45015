"""Every test keeps its runs and caches to itself."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from obliq_eval import catalogue
from obliq_eval.registry import AliasRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it for its workers, and tables would be cut to it
os.environ["OMP_NUM_THREADS"] = "1"
"""Two processes test on two cores. With more threads than cores each waits for the others, which makes the suite nearly
three times as long, and sums are rounded as their number of threads has it."""
LONGEST = (
    *("test_readme.py", "test_obliq_ir_verbatim.py", "test_end_to_end.py", "test_trainer.py", "test_sources.py"),
    *("test_hook.py", "test_engines.py", "test_example.py", "test_build.py", "test_twins.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that neither of two processes waits for the other at the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(autouse=True)
def obliq_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point `$OBLIQ_HOME` at a folder of the test's own."""
    folder = tmp_path / "obliq-home"
    monkeypatch.setenv("OBLIQ_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def same_models_as_before() -> Iterator[None]:
    """Forget the models that a test registers, here and in mteb."""
    known = dict(catalogue._registered)
    yield
    new = [entry for alias, (entry, _) in catalogue._registered.items() if alias not in known]
    catalogue._registered.clear()
    catalogue._registered.update(known)
    registry = getattr(sys.modules.get("mteb.models.model_implementations"), "MODEL_REGISTRY", None)
    if isinstance(registry, AliasRegistry):
        for entry in new:
            registry.aliases.pop(entry.alias, None)
            registry.pop(entry.name, None)


@pytest.fixture
def write_task(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a task folder in the official layout and returns its path."""

    def write(
        corpus: dict[str, str],
        queries: dict[str, str],
        gold: dict[str, dict[str, int]],
        pooled: dict[str, dict[str, int]] | None = None,
        exclusions: dict[str, list[str]] | None = None,
        name: str = "toy",
    ) -> Path:
        folder = tmp_path / name
        judged = folder / "queries+qrels"
        (folder / "corpus").mkdir(parents=True)
        judged.mkdir()
        for path, texts in ((folder / "corpus" / "corpus.jsonl", corpus), (judged / "queries.jsonl", queries)):
            path.write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in texts.items()), "utf-8")
        for file, grades in (("qrels.tsv", gold), ("qrels_pool.tsv", pooled)):
            if grades is not None:
                rows = [f"{q}\t{d}\t{g}\n" for q, row in grades.items() for d, g in row.items()]
                (judged / file).write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), "utf-8")
        if exclusions is not None:
            (judged / "per_query_excluded_ids.json").write_text(json.dumps(exclusions), "utf-8")
        return folder

    return write
