"""The dev/test split: 20 % of the queries, the same on every machine, whole groups."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from obliq_eval.records import Coverage, Dataset

DEV_ONE_IN = 5


def dev_queries(task: str, queries: Iterable[str], groups: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the queries on which settings may be chosen.

    Groups (a query without one is a group of its own) are taken in the order of SHA-256 over task and group until
    they hold at least 20 % of the queries, so the split depends on ids alone, never on their order.

    Args:
        task: Name of the task.
        queries: Query ids.
        groups: `{query id: group}`.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for query in set(queries):
        members[f"group:{groups[query]}" if groups and query in groups else f"query:{query}"].append(query)
    total = sum(map(len, members.values()))
    dev: list[str] = []
    for group in sorted(members, key=lambda group: _digest(task, group)):
        if DEV_ONE_IN * len(dev) >= total:
            break
        dev += members[group]
    return frozenset(dev)


def _digest(task: str, group: str) -> bytes:
    return hashlib.sha256(f"{task}\0{group}".encode()).digest()


def covered(dataset: Dataset, coverage: Coverage) -> Dataset:
    """Return a data set restricted to its dev queries, its test queries, or all of them.

    Raises:
        UserError: If no query is left.
    """
    if coverage == "all":
        return dataset
    dev = dev_queries(dataset.name, dataset.queries, dataset.groups)
    part = dataset.only(dev if coverage == "dev" else set(dataset.queries) - dev)
    if not part.queries:
        raise UserError(f"{dataset.name} has no {coverage} queries: {len(dataset.queries)} queries in all")
    return part
