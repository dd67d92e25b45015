"""Cross-encoders of mteb through the same interface as every other reranker."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.rerankers.base import Candidate, Query, Reranked, Reranker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SPLIT, SUBSET = "test", "default"


@dataclass(frozen=True)
class CrossEncoder(Reranker):
    """Scores each document of the pool together with the query.

    Args:
        model: A cross-encoder as mteb loads it.
        pool: How many first documents it scores.
        name: What it is called.
        batch_size: Pairs that are scored at a time.
        task: mteb's metadata of the task, from which some models take a prompt.
    """

    model: Any
    pool: int = 100
    name: str = "cross-encoder"
    batch_size: int = 32
    task: Any = field(default=None, compare=False)

    def settings(self, task: str = "") -> dict[str, Any]:  # noqa: ARG002 -- the same for every task
        """Return which model it is."""
        meta = self.model.mteb_model_meta
        return {"reranker": str(meta.name), "revision": meta.revision, "pool": self.pool}

    async def rerank(self, query: Query, pool: Sequence[Candidate]) -> Reranked:
        """Order one pool by score; equal scores keep the incoming order."""
        return (await self.rerank_all({query: pool}))[0]

    async def rerank_all(
        self, pools: Mapping[Query, Sequence[Candidate]], done: Callable[[], object] | None = None
    ) -> list[Reranked]:
        """Order every pool by score, all pairs in one pass; equal scores keep the incoming order.

        Raises:
            UserError: If the model fails, or returns scores that are not finite numbers.
        """
        scores = self._scores({query: pool for query, pool in pools.items() if len(pool) > 1})
        found = []
        for query, pool in pools.items():
            ids = [candidate.id for candidate in pool]
            mine = scores.get(query.id, {})
            constant = len(set(mine.values())) == 1
            counts = Counter({"queries with one score for all documents": 1} if constant else {})
            order = sorted(ids, key=lambda document: -mine.get(document, 0.0))
            found.append(Reranked(tuple(order), constant=constant, counts=counts))
            if done is not None:
                done()
        return found

    def _scores(self, pools: Mapping[Query, Sequence[Candidate]]) -> dict[str, dict[str, float]]:
        """Return `{query id: {document id: score}}`."""
        if not pools:
            return {}
        from mteb.models import SearchCrossEncoderWrapper

        wrapper: Any = SearchCrossEncoderWrapper(self.model)
        told = {"task_metadata": self.task, "hf_split": SPLIT, "hf_subset": SUBSET}
        options = {"batch_size": self.batch_size, "show_progress_bar": sys.stderr.isatty()}
        candidates = list({candidate.id: candidate for pool in pools.values() for candidate in pool}.values())
        wrapper.index(_table(candidates), **told, encode_kwargs=options)
        top = {query.id: [candidate.id for candidate in pool] for query, pool in pools.items()}
        longest = max(len(pool) for pool in pools.values())
        try:
            found = wrapper.search(_table(list(pools)), **told, top_k=longest, top_ranked=top, encode_kwargs=options)
        except Exception as error:  # a model of another package may raise anything
            first = (str(error).strip() or "no message").splitlines()[0]
            raise UserError(f"{self.name} failed while scoring ({type(error).__name__}: {first})") from error
        for query, scores in found.items():
            if not all(map(math.isfinite, scores.values())):
                raise UserError(f"{self.name} returned a score for query {query!r} that is not a finite number")
        return {str(query): dict(scores) for query, scores in found.items()}


def load(name: str, device: str | None = None) -> Any:
    """Load a cross-encoder by its full name.

    Raises:
        UserError: If mteb cannot load it, or it is no cross-encoder.
    """
    from mteb.models import CrossEncoderProtocol, EncoderProtocol

    from obliq_eval.running import import_mteb

    mteb = import_mteb()
    try:
        model = mteb.get_model(name, device=device)
    except UserError:
        raise
    except Exception as error:  # a loader of another package may raise anything
        first = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"the cross-encoder {name!r} could not be loaded ({type(error).__name__}: {first})") from error
    if not isinstance(model, CrossEncoderProtocol) or isinstance(model, EncoderProtocol):
        raise UserError(f"{name} is no cross-encoder, and only these rerank: name one, or one of listwise and tourrank")
    return model


def _table(pool: Sequence[Candidate | Query]) -> Any:
    import datasets

    ids, texts = ([getattr(candidate, key) for candidate in pool] for key in ("id", "text"))
    return datasets.Dataset.from_dict({"id": ids, "text": texts})
