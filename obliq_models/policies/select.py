"""The choice of a reranker for each task, by NDCG@10 on its dev queries; test queries are only ever reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval import metrics
from obliq_eval.data.split import dev_queries
from obliq_eval.errors import UserError
from obliq_models import reranking
from obliq_models.policies import Policy
from obliq_models.rerankers import stage
from obliq_models.rerankers.progress import watch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from obliq_eval.records import Dataset, Judgments, Run
    from obliq_models.llm.client import Client
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.rerankers.steps import Step
    from obliq_models.reranking import Source

MEASURE = "ndcg@10"


@dataclass(frozen=True)
class Tried:
    """One candidate on one task.

    Args:
        step: The reranker.
        dev: NDCG@10 on the dev queries.
        calls: Calls to a language model by query.
        test: NDCG@10 on the test queries, for the chosen one and for those whose run was there already.
    """

    step: Step
    dev: float
    calls: float
    test: float | None = None


@dataclass(frozen=True)
class Choice:
    """What was chosen for a task.

    Args:
        task: Its name.
        revision: Revision of its data.
        queries: How many dev and test queries it has.
        tried: The candidates, in the order in which they were given.
        chosen: The step.
    """

    task: str
    revision: str
    queries: tuple[int, int]
    tried: tuple[Tried, ...]
    chosen: Step

    def figures(self) -> dict[str, Any]:
        """Return what the policy file says of the dev queries."""
        return {
            "measure": MEASURE,
            "queries": self.queries[0],
            "data_revision": self.revision,
            "candidates": {one.step.name: round(one.dev, 5) for one in self.tried},
        }


@dataclass(frozen=True)
class Split:
    """A task's gold judgments in two halves.

    Args:
        dev: Those of the dev queries, which decide.
        test: Those of the test queries, which decide nothing.
    """

    dev: Judgments
    test: Judgments


def split(data: Dataset) -> Split:
    """Return the judgments of dev and test queries; the split follows from the queries' ids and groups alone.

    Raises:
        UserError: If there is no dev query with a relevant document.
    """
    dev = dev_queries(data.name, data.queries, data.groups)
    parts = Split(data.gold.only(dev), data.gold.only(set(data.queries) - dev))
    if not parts.dev.queries:
        raise UserError(f"{data.name} has no dev query with a relevant document, so nothing can be chosen on it")
    return parts


def best(tried: Sequence[Tried]) -> Step:
    """Return the candidate with the highest dev figure; of equal ones the cheapest, then the first."""
    first = max(tried, key=lambda one: (round(one.dev, 9), -one.calls))
    return first.step


def choose(
    source: Source,
    candidates: Sequence[Step],
    stored: Mapping[Step, Run],
    llm: LLMSettings,
    client: Client | None,
    *,
    threshold: float = stage.THRESHOLD,
    report_test: bool = True,
) -> Choice:
    """Try every candidate on a task's dev queries and choose one.

    Args:
        source: The run that is reranked.
        candidates: The rerankers.
        stored: Runs of candidates that are there already.
        llm: The language model.
        client: What asks it.
        threshold: Share of failed questions that may pass.
        report_test: Also rerank the test queries with the one that was chosen.

    Raises:
        UserError: If the task has no dev queries, or a candidate's run is refused.
    """
    parts = split(source.data)
    work = _Work(source, llm, client, threshold)
    tried = []
    for step in candidates:
        found, calls = (stored[step], 0.0) if step in stored else work.rerank(step, parts.dev.queries)
        tried.append(Tried(step, _ndcg(found, parts.dev), calls if step not in stored else _calls(source, step, llm)))
    chosen = best(tried)
    reported = []
    for one in tried:
        test = None
        if parts.test.queries and (
            one.step in stored or (report_test and one.step == chosen) or not one.step.needs_llm
        ):
            found = stored[one.step] if one.step in stored else work.rerank(one.step, parts.test.queries)[0]
            test = _ndcg(found, parts.test)
        reported.append(Tried(one.step, one.dev, one.calls, test))
    counts = (len(parts.dev.queries), len(parts.test.queries))
    return Choice(source.task, source.data.revision, counts, tuple(reported), chosen)


def policy(name: str, choices: Sequence[Choice], about: str) -> Policy:
    """Return the policy of these choices."""
    steps = {choice.task: choice.chosen for choice in choices}
    return Policy(name, steps, about, {choice.task: choice.figures() for choice in choices})


@dataclass(frozen=True)
class _Work:
    source: Source
    llm: LLMSettings
    client: Client | None
    threshold: float

    def rerank(self, step: Step, queries: Collection[str]) -> tuple[Run, float]:
        """Return the run of these queries, reranked, and the calls by query."""
        reranker = reranking.build(self.source, step, self.llm, self.client)
        data = self.source.data
        texts = {query: data.queries[query] for query in queries if query in data.queries}
        pools = stage.pools(
            self.source.system.run.only(texts), texts, data.corpus.documents, self.source.task, reranker.pool
        )
        staged = stage.rerank(pools, reranker, threshold=self.threshold, watch=watch)
        return staged.run, staged.questions / max(len(texts), 1)


def _ndcg(run: Run, judgments: Judgments) -> float:
    return metrics.score(run.only(judgments.queries), judgments, [MEASURE]).means()[MEASURE] or 0.0


def _calls(source: Source, step: Step, llm: LLMSettings) -> float:
    """Return the calls that a step costs by query."""
    if not step.needs_llm:
        return 0.0
    reranker = step.build(llm)
    lengths = [len(ranking) for ranking in source.system.run.rankings.values()]
    return sum(reranker.calls(min(length, reranker.pool)) for length in lengths) / max(len(lengths), 1)
