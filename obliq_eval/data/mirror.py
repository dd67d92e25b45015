"""mteb's mirror of the benchmark: parquet tables, pooled judgments, exclusions written as candidate lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obliq_eval.data import hub
from obliq_eval.data.corpus import table_of
from obliq_eval.data.official import MIRROR, MIRROR_REVISION, OFFICIAL
from obliq_eval.data.sources import Loaded, assemble
from obliq_eval.errors import UserError, near
from obliq_eval.records import Corpus, Judgments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def open_mirror(name: str) -> Loaded:
    """Load one task from the mirror.

    Where the benchmark has pooled judgments, the mirror holds these alone: they become `pooled`, and `gold` is empty.

    Args:
        name: Official task name.

    Raises:
        UserError: If the task is unknown or the mirror cannot be reached.
    """
    if name not in OFFICIAL:
        raise UserError(f"the mirror has no task {name!r}{near(name, OFFICIAL)}")
    task = OFFICIAL[name]
    key = f"{MIRROR}@{MIRROR_REVISION}/{task.subset}"
    documents, facts = table_of(lambda: _texts(_table(f"{task.subset}-corpus")), key, key)
    queries = dict(_texts(_table(f"{task.subset}-queries")))
    judged = Judgments.of(
        ((str(row["query-id"]), str(row["corpus-id"]), row["score"]) for row in _table(f"{task.subset}-qrels")), key
    )
    exclusions = {}
    if task.excludes:
        candidates = {str(row["query-id"]): row["corpus-ids"] for row in _table(f"{task.subset}-top_ranked")}
        exclusions = exclusions_from_candidates(candidates, documents["id"])
    gold, pooled = (judged, None) if task.pooled is None else (Judgments({}), judged)
    dataset = assemble(Corpus(name, MIRROR_REVISION, documents, "mirror"), queries, gold, pooled, exclusions)
    return Loaded(dataset, facts, f"{MIRROR}, {task.subset}", queries)


def exclusions_from_candidates(
    candidates: Mapping[str, Iterable[str]], documents: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Turn "every other document" lists back into the few documents that are left out."""
    everything = frozenset(documents)
    excluded = {query: everything.difference(ids) for query, ids in candidates.items()}
    return {query: ids for query, ids in excluded.items() if ids}


def _table(config: str) -> Any:
    """Return a configuration's only split, whatever it is called."""
    import datasets

    with hub.hub_errors(MIRROR, MIRROR_REVISION):
        splits = datasets.load_dataset(MIRROR, config, revision=MIRROR_REVISION)
    if len(splits) != 1:
        raise UserError(f"{MIRROR}, {config}: expected one split, found {', '.join(splits)}")
    return next(iter(splits.values()))


def _texts(table: Any) -> Iterable[tuple[str, str]]:
    return ((str(row.get("_id", row.get("id"))), row["text"]) for row in table)
