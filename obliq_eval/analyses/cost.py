"""What a system costs by stage: latency, calls to a language model, tokens (paper, section 6.4, Table 8)."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from obliq_eval.manifest import Manifest

WHOLE = "whole run"
QUERIES, CALLS, PROMPT, COMPLETION = "queries", "calls", "prompt tokens", "completion tokens"
BATCH, SINGLE = "batch microseconds", "single-query microseconds"
KINDS = (QUERIES, CALLS, PROMPT, COMPLETION, BATCH, SINGLE)
_KEY = re.compile(rf"(?P<stage>.+): (?P<kind>{'|'.join(KINDS)})")

COLUMNS = (
    "system", "stage", "queries", "single query (ms)", "in the batch (ms/query)", "queries/s",
    "calls/query", "prompt tokens/query", "completion tokens/query", "machine",
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """What one stage of a system cost. Everything but the name and the number of queries may be unknown (None).

    Args:
        name: The stage, such as `dense` or `tourrank`, or `WHOLE`: search with encoding of the corpus, and scoring.
        queries: How many queries went through it.
        batch_seconds: Wall-clock seconds for all of them together.
        single_seconds: Median wall-clock seconds of one query that is asked alone.
        calls: Calls to a language model, over all queries.
        prompt_tokens: Tokens read by it.
        completion_tokens: Tokens written by it.
    """

    name: str
    queries: int
    batch_seconds: float | None = None
    single_seconds: float | None = None
    calls: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def each(self, total: float | None) -> float | None:
        """Return a total by query; None if it is unknown or there was no query."""
        return None if total is None or not self.queries else total / self.queries

    def row(self, system: str, machine: str) -> list[object]:
        """Return one row under `COLUMNS`."""
        batch = self.each(self.batch_seconds)
        return [
            system, self.name, self.queries,
            None if self.single_seconds is None else 1000 * self.single_seconds,
            None if batch is None else 1000 * batch,
            1 / batch if batch else None,
            self.each(self.calls), self.each(self.prompt_tokens), self.each(self.completion_tokens),
            machine or None,
        ]  # fmt: skip


def stages(manifest: Manifest) -> tuple[Stage, ...]:
    """Return what a manifest says of each stage, the whole run first.

    Stages are the manifest's counts with names as `stage_counts` makes them.
    """
    found: dict[str, dict[str, int]] = {}
    for key, value in manifest.counts.items():
        if match := _KEY.fullmatch(key):
            found.setdefault(match["stage"], {})[match["kind"]] = value
    whole = Stage(WHOLE, manifest.n_queries, batch_seconds=manifest.seconds)
    return (whole, *(_stage(name, counts, manifest.n_queries) for name, counts in found.items()))


def stage_counts(stage: Stage) -> dict[str, int]:
    """Return a stage as counts for a manifest, times in whole microseconds; what is unknown is left out."""
    values = {
        QUERIES: stage.queries,
        CALLS: stage.calls,
        PROMPT: stage.prompt_tokens,
        COMPLETION: stage.completion_tokens,
        BATCH: _micro(stage.batch_seconds),
        SINGLE: _micro(stage.single_seconds),
    }
    return {f"{stage.name}: {kind}": value for kind, value in values.items() if value is not None}


def single_query_seconds(
    answer: Callable[[str], object],
    queries: Sequence[str],
    *,
    warm_up: int = 3,
    clock: Callable[[], float] = perf_counter,
) -> float:
    """Return the median seconds of one query asked alone, one after the other: a user's wait, not a batch's share.

    Args:
        answer: Answers one query; encodes and searches, with the corpus already indexed.
        queries: Query texts or ids, at least one.
        warm_up: How many of the first queries are asked once more beforehand, untimed.
        clock: Seconds from any origin.

    Raises:
        ValueError: If there is no query.
    """
    if not queries:
        raise ValueError("a latency needs at least one query")
    for query in queries[:warm_up]:
        answer(query)
    times = []
    for query in queries:
        start = clock()
        answer(query)
        times.append(clock() - start)
    return statistics.median(times)


def _stage(name: str, counts: dict[str, int], n_queries: int) -> Stage:
    return Stage(
        name,
        counts.get(QUERIES, n_queries),
        batch_seconds=_seconds(counts.get(BATCH)),
        single_seconds=_seconds(counts.get(SINGLE)),
        calls=counts.get(CALLS),
        prompt_tokens=counts.get(PROMPT),
        completion_tokens=counts.get(COMPLETION),
    )


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _micro(seconds: float | None) -> int | None:
    return None if seconds is None else round(1e6 * seconds)
