"""NDCG@10 of a model that is being trained, on dev queries alone: the test queries are never asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval.data.sources import load
from obliq_eval.data.split import covered
from obliq_eval.errors import UserError, raise_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from sentence_transformers import SentenceTransformer

    from obliq_eval.records import Dataset
    from obliq_models.retrievers.base import Texts

MEASURE = "ndcg@10"
DEPTH = 10


@dataclass(frozen=True)
class Dev:
    """The dev queries of some tasks.

    Args:
        tasks: Data sets that hold dev queries alone.
    """

    tasks: tuple[Dataset, ...]

    @classmethod
    def of(cls, references: Sequence[str]) -> Dev:
        """Load tasks or folders, and keep their dev queries.

        Raises:
            UserError: If one is not there or has no judged dev query; all at once.
        """
        tasks, problems = [], []
        for reference in references:
            try:
                found = covered(load(reference), "dev")
                if not found.gold.queries:
                    raise UserError("no dev query has a relevant document")  # noqa: TRY301 -- told with the others
                tasks.append(found.only(found.gold.queries))
            except UserError as error:
                problems.append(f"{reference}: {error}")
        raise_all(problems, "evaluation.tasks")
        return cls(tuple(tasks))

    def scores(self, model: SentenceTransformer) -> dict[str, float]:
        """Return `{task: mean NDCG@10 over its dev queries}`, gold judgments, exclusions applied.

        Texts are read as the finished model reads them, with its own prefixes and lengths. The model is left as it
        was, evaluation mode or not.
        """
        from obliq_models.encoders.sentence import SentenceEncoder

        training = model.training
        encoder = SentenceEncoder(model, "the model that is being trained", "0")
        try:
            return {data.name: _score(encoder, data) for data in self.tasks}
        finally:
            model.train(training)


def _score(encoder: Any, data: Dataset) -> float:
    import datasets

    from obliq_eval.metrics import score
    from obliq_eval.records import Run

    ids = list(data.queries)
    excluded = [sorted(data.exclusions.get(query, ())) for query in ids]
    queries = datasets.Dataset.from_dict({"id": ids, "text": list(data.queries.values()), "excluded_ids": excluded})
    search = _search(encoder)
    search.index(data.corpus.documents)
    run = Run.of(search.search(queries, top_k=DEPTH), DEPTH)
    found = score(run, data.gold, [MEASURE]).mean(MEASURE)
    return 0.0 if found is None else found


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
