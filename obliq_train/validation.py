"""NDCG@10 of a model that is being trained, on dev queries alone: the test queries are never asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval.asked import DEPTH, DevTask, dev_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from sentence_transformers import SentenceTransformer

    from obliq_eval.asked import Asked
    from obliq_models.retrievers.base import Texts


@dataclass(frozen=True)
class Dev:
    """The dev queries of some tasks.

    Args:
        tasks: Their texts, and how answers to them are scored.
    """

    tasks: tuple[DevTask, ...]

    @classmethod
    def of(cls, references: Sequence[str]) -> Dev:
        """Load the dev queries of tasks or folders.

        Raises:
            UserError: If one is not there or has no judged dev query; all at once.
        """
        return cls(dev_tasks(references))

    def scores(self, model: SentenceTransformer) -> dict[str, float]:
        """Return `{task: mean NDCG@10 over its dev queries}`, gold judgments, exclusions applied.

        Texts are read as the finished model reads them, with its own prefixes and lengths. The model is left as it
        was, evaluation mode or not.
        """
        from obliq_models.encoders.sentence import SentenceEncoder

        training = model.training
        encoder = SentenceEncoder(model, "the model that is being trained", "0")
        try:
            return {task.asked.name: task.score(_answers(encoder, task.asked)) for task in self.tasks}
        finally:
            model.train(training)


def _answers(encoder: Any, asked: Asked) -> dict[str, dict[str, float]]:
    import datasets

    ids = list(asked.queries)
    excluded = [sorted(asked.exclusions.get(query, ())) for query in ids]
    queries = datasets.Dataset.from_dict({"id": ids, "text": list(asked.queries.values()), "excluded_ids": excluded})
    search = _search(encoder)
    search.index(asked.documents)
    answers: dict[str, dict[str, float]] = search.search(queries, top_k=DEPTH)
    return answers


def _search(encoder: Any) -> Any:
    """Return exact search with vectors that are kept nowhere: the next step has others."""
    import torch

    from obliq_models.retrievers.base import Retriever
    from obliq_models.search import products

    class Passing(Retriever):
        def fit(self, texts: Texts) -> None:
            self.documents = torch.from_numpy(encoder.encode(list(texts), "document").vectors)

        def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
            yield from products(torch.from_numpy(encoder.encode(texts, "query").vectors), self.documents)

    return Passing()
