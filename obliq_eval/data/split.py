"""How queries are split: 20 % for dev, the others for test, the same on every machine, whole groups.

Where something is to be trained on a task's own documents, a part of test is held out from it: whole groups of 44 % of
the queries, the next in the same order. The groups behind these may be trained on.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from obliq_eval.records import Coverage, Dataset

DEV_ONE_IN = 5
HELD_OUT_UP_TO = 0.64
"""Share of the queries that dev and the held-out part hold together, at least."""


def dev_queries(task: str, queries: Iterable[str], groups: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the queries on which settings may be chosen.

    Groups (a query without one is a group of its own) are taken in the order of SHA-256 over task and group until
    they hold at least 20 % of the queries, so the split depends on ids alone, never on their order.

    Args:
        task: Name of the task.
        queries: Query ids.
        groups: `{query id: group}`.
    """
    ordered = _groups(task, queries, groups)
    return frozenset(_until(ordered, lambda found, total: DEV_ONE_IN * found >= total))


def held_out_queries(task: str, queries: Iterable[str], groups: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the test queries of the groups that nothing may be trained on: the first of the order after dev.

    Args:
        task: Name of the task.
        queries: Query ids.
        groups: `{query id: group}`.
    """
    known = set(queries)
    until = _until(_groups(task, known, groups), lambda found, total: found >= HELD_OUT_UP_TO * total)
    return frozenset(until) - dev_queries(task, known, groups)


def _groups(task: str, queries: Iterable[str], groups: Mapping[str, str] | None) -> list[list[str]]:
    """Return the queries of each group, the groups in the order of their hashes."""
    members: dict[str, list[str]] = defaultdict(list)
    for query in set(queries):
        members[f"group:{groups[query]}" if groups and query in groups else f"query:{query}"].append(query)
    return [members[group] for group in sorted(members, key=lambda group: _digest(task, group))]


def _until(groups: list[list[str]], enough: Callable[[int, int], bool]) -> list[str]:
    """Return the queries of the first groups, as many as are enough."""
    total, found = sum(map(len, groups)), list[str]()
    for group in groups:
        if enough(len(found), total):
            break
        found += group
    return found


def _digest(task: str, group: str) -> bytes:
    return hashlib.sha256(f"{task}\0{group}".encode()).digest()


def covered(dataset: Dataset, coverage: Coverage) -> Dataset:
    """Return a data set restricted to its dev, test or held-out queries, or all of them.

    Raises:
        UserError: If no query is left.
    """
    if coverage == "all":
        return dataset
    of = (dataset.name, dataset.queries, dataset.groups)
    kept = held_out_queries(*of) if coverage == "held-out" else dev_queries(*of)
    part = dataset.only(set(dataset.queries) - kept if coverage == "test" else kept)
    if not part.queries:
        raise UserError(f"{dataset.name} has no {coverage} queries: {len(dataset.queries)} queries in all")
    return part
