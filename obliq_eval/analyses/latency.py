"""One query at a time, as a user waits for it: measured apart from a batch (paper, section 6.4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.analyses.cost import Stage, single_query_seconds
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from obliq_eval.manifest import Manifest

ALONE = "search, timed now"


def time_alone(manifest: Manifest, task: str, count: int, device: str | None = None) -> Stage:
    """Load a run's model again, index the task's corpus, and ask queries one after the other.

    Encoding the corpus is not part of the time; encoding the query, search, exclusions and checks of the answer are.

    Args:
        manifest: What made the run; its model is loaded by name and revision.
        task: Task name or folder.
        count: How many queries to time, evenly spaced over the task's.
        device: Device of the model; by default CUDA where there is one.

    Raises:
        UserError: If the model cannot be loaded.
    """
    from obliq_eval.exclusions import ExcludingSearch
    from obliq_eval.running import Request, find_model, find_tasks
    from obliq_eval.tasks import SPLIT, ObliqTask

    folder = Path(task)
    request = Request(
        model=manifest.model.alias or manifest.model.name,
        tasks=() if folder.is_dir() else (task,),
        folders=(folder,) if folder.is_dir() else (),
        revision=manifest.model.revision,
        device=device,
    )
    (found,) = find_tasks(request)
    if not isinstance(found, ObliqTask):
        raise UserError(f"{task} is a task of mteb's own; single queries are timed on ours and on folders")
    found.load_data()
    split = found.dataset["default"][SPLIT]
    search = ExcludingSearch(find_model(request), found.data.exclusions)
    about: dict[str, Any] = {
        "task_metadata": found.metadata,
        "hf_split": SPLIT,
        "hf_subset": "default",
        "encode_kwargs": {"show_progress_bar": False},
        "num_proc": None,
    }
    search.index(split["corpus"], **about)
    queries: Any = split["queries"]
    rows = {queries[row]["id"]: queries.select([row]) for row in evenly(len(queries), count)}

    def answer(query: str) -> object:
        return search.search(rows[query], top_k=manifest.depth, **about)

    return Stage(ALONE, len(rows), single_seconds=single_query_seconds(answer, list(rows)))


def evenly(length: int, count: int) -> list[int]:
    """Return at most `count` different numbers below `length`, evenly spaced."""
    count = min(count, length)
    return [i * length // count for i in range(count)]
