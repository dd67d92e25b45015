"""What is asked in a task, without what answers it; and what answers to its dev queries score.

Training sees a task through this module alone: it can have its dev queries scored, and reads no judgment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from obliq_eval.data.sources import load
from obliq_eval.data.split import covered
from obliq_eval.errors import UserError, raise_all
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import datasets

    from obliq_eval.records import Dataset

MEASURE = "ndcg@10"
DEPTH = 10


@dataclass(frozen=True)
class Asked:
    """Queries, and the documents that they are asked of.

    Args:
        name: Of the task.
        queries: `{query id: text}`.
        documents: Table with the string columns `id` and `text`.
        exclusions: `{query id: documents that may not be returned}`.
    """

    name: str
    queries: Mapping[str, str]
    documents: datasets.Dataset
    exclusions: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class DevTask:
    """The dev queries of a task.

    Args:
        asked: The queries and documents.
        score: From `{query id: {document id: score}}` to the mean NDCG@10 over the queries, gold judgments; a query
            without an answer counts as 0.
    """

    asked: Asked
    score: Callable[[Mapping[str, Mapping[str, float]]], float]


def asked(reference: str) -> Asked:
    """Return what is asked in a task or folder.

    Raises:
        UserError: If it is not there.
    """
    return _asked(load(reference))


def dev_tasks(references: Sequence[str]) -> tuple[DevTask, ...]:
    """Return the dev queries of tasks or folders, as far as gold judgments know them.

    Raises:
        UserError: If one is not there or has no judged dev query; all at once.
    """
    found, problems = [], []
    for reference in references:
        try:
            data = covered(load(reference), "dev")
        except UserError as error:
            problems.append(f"{reference}: {error}")
            continue
        if data.gold.queries:
            data = data.only(data.gold.queries)
            found.append(DevTask(_asked(data), _scoring(data)))
        else:
            problems.append(f"{reference}: no dev query has a relevant document")
    raise_all(problems, "evaluation.tasks")
    return tuple(found)


def _asked(data: Dataset) -> Asked:
    return Asked(data.name, data.queries, data.corpus.documents, data.exclusions)


def _scoring(data: Dataset) -> Callable[[Mapping[str, Mapping[str, float]]], float]:
    def score(answers: Mapping[str, Mapping[str, float]]) -> float:
        from obliq_eval import metrics  # heavy, so only when something is scored

        return metrics.score(Run.of(answers, DEPTH), data.gold, [MEASURE]).mean(MEASURE) or 0.0

    return score
