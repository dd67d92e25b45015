"""mteb's mirror of the benchmark: parquet tables, pooled judgments, exclusions written as candidate lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obliq_eval.data import hub
from obliq_eval.data.corpus import ids_of, table_of
from obliq_eval.data.files import queries_of, with_title
from obliq_eval.data.official import MIRROR, MIRROR_REVISION, OFFICIAL
from obliq_eval.data.sources import Loaded, assemble
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.home import home
from obliq_eval.records import Corpus, Judgments, id_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import datasets

    from obliq_eval.data.corpus import CorpusFacts


def open_mirror(name: str) -> Loaded:
    """Load one task from the mirror.

    Where the benchmark has pooled judgments, the mirror holds these alone: they become `pooled`, and `gold` is empty.

    Args:
        name: Official task name.

    Raises:
        UserError: If the task is unknown or the mirror cannot be reached.
    """
    documents, facts = open_mirror_corpus(name)
    task = OFFICIAL[name]
    key = f"{MIRROR}@{MIRROR_REVISION}/{task.subset}"
    queries = queries_of(_texts(f"{task.subset}-queries"), key)
    judged = Judgments.of(_rows(f"{task.subset}-qrels", "query-id", "corpus-id", "score"), key)
    exclusions = {}
    if task.excludes:
        candidates = _rows(f"{task.subset}-top_ranked", "query-id", "corpus-ids")
        exclusions = exclusions_from_candidates(candidates, ids_of(documents))
        raise_all([fault for query in exclusions if (fault := id_fault(query))], key)
    gold, pooled = (judged, None) if task.pooled is None else (Judgments({}), judged)
    dataset = assemble(Corpus(name, MIRROR_REVISION, documents, "mirror"), queries, gold, pooled, exclusions)
    return Loaded(dataset, facts, f"{MIRROR}, {task.subset}", queries, exclusions)


def open_mirror_corpus(name: str) -> tuple[datasets.Dataset, CorpusFacts]:
    """Load the documents of one task from the mirror, and nothing else of it.

    Args:
        name: Official task name.

    Raises:
        UserError: If the task is unknown or the mirror cannot be reached.
    """
    if name not in OFFICIAL:
        raise UserError(f"the mirror has no task {name!r}{near(name, OFFICIAL)}")
    subset = OFFICIAL[name].subset
    key = f"{MIRROR}@{MIRROR_REVISION}/{subset}"
    return table_of(lambda: _texts(f"{subset}-corpus"), key, key)


def exclusions_from_candidates(
    candidates: Iterable[tuple[str, Iterable[str]]], documents: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Turn "every other document" lists back into the few documents that are left out.

    Args:
        candidates: `(query id, every document that it may return)`, read one at a time: at the size of
            OBLIQ-Writing they are 5.3 million ids.
        documents: Every document id.
    """
    everything = frozenset(documents)
    excluded = {query: everything.difference(ids) for query, ids in candidates}
    return {query: ids for query, ids in excluded.items() if ids}


def _texts(config: str) -> Iterator[tuple[str, str]]:
    table = _table(config, "text")
    key = "_id" if "_id" in table.column_names else "id"
    for number, row in enumerate(table, start=1):
        identifier, title, text = row[key], row.get("title") or "", row["text"]
        if fault := id_fault(identifier):
            raise UserError(f"{MIRROR}, {config}, row {number}: {fault}")
        if not isinstance(title, str) or not isinstance(text, str):
            raise UserError(f"{MIRROR}, {config}, row {number}: expected text, found {title!r} and {text!r}")
        yield identifier, with_title(title, text)


def _rows(config: str, *columns: str) -> Iterator[Any]:
    return (tuple(row[column] for column in columns) for row in _table(config, *columns))


def _table(config: str, *columns: str) -> Any:
    """Return a configuration's only split, whatever it is called, if it has these columns."""
    # Without the network, or refused by the hub, `datasets` takes whatever revision its cache holds and wraps the
    # reason away. So the card is asked for first, and the tables have a cache in which there is only this revision.
    hub.snapshot(MIRROR, MIRROR_REVISION, "", ["README.md"])
    import datasets

    cache = str(home() / "mirror" / MIRROR_REVISION)
    with hub.hub_errors(MIRROR, MIRROR_REVISION, datasets.exceptions.DatasetsError):
        splits = datasets.load_dataset(MIRROR, config, revision=MIRROR_REVISION, cache_dir=cache)
    if len(splits) != 1:
        raise UserError(f"{MIRROR}, {config}: expected one split, found {', '.join(splits)}")
    table = next(iter(splits.values()))
    if missing := set(columns) - set(table.column_names):
        raise UserError(f"{MIRROR}, {config}: no column {min(missing)!r} among {', '.join(table.column_names)}")
    return table
