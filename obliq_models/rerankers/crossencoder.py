"""Cross-encoders of mteb through the same interface as every other reranker."""

from __future__ import annotations

import math
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.rerankers.base import Candidate, Query, Reranked, Reranker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
        scores = self.scores({query: pool for query, pool in pools.items() if len(pool) > 1})
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

    def scores(self, pools: Mapping[Query, Sequence[Candidate]]) -> dict[str, dict[str, float]]:
        """Return `{query id: {document id: score}}`, all pairs in one pass.

        Raises:
            UserError: If the model fails, or returns scores that are not finite numbers.
        """
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
        with self._told():
            found = wrapper.search(_table(list(pools)), **told, top_k=longest, top_ranked=top, encode_kwargs=options)
        for query, scores in found.items():
            if not all(map(math.isfinite, scores.values())):
                raise UserError(f"{self.name} returned a score for query {query!r} that is not a finite number")
        return {str(query): dict(scores) for query, scores in found.items()}

    def grouped(self, groups: Sequence[tuple[Query, Sequence[str]]]) -> list[list[float]]:
        """Score each query's texts as a batch of their own, so that its scores depend on nothing but themselves.

        Args:
            groups: Queries with their texts, at least one each.

        Raises:
            UserError: If the model fails, or returns scores that are not finite numbers.
        """
        queries: list[str] = []
        texts: list[str] = []
        batches: list[list[int]] = []
        for query, own in groups:
            batches.append(list(range(len(texts), len(texts) + len(own))))
            queries += [query.text] * len(own)
            texts += own
        told = {"task_metadata": self.task, "hf_split": SPLIT, "hf_subset": SUBSET, "show_progress_bar": False}
        with self._told():
            found = self.model.predict(
                _loader({"text": queries, "query": queries}, batches),
                _loader({"text": texts}, batches),
                batch_size=max(map(len, batches), default=1),
                **told,
            )
        scores = [float(score) for score in found]
        if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
            raise UserError(f"{self.name} did not return one finite number for each of {len(texts):,} pairs")
        return [[scores[at] for at in batch] for batch in batches]

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a model of another package may raise anything
            first = (str(error).strip() or "no message").splitlines()[0]
            raise UserError(f"{self.name} failed while scoring ({type(error).__name__}: {first})") from error


def load(name: str, device: str | None = None) -> Any:
    """Load a cross-encoder by its full name, or out of a folder.

    Raises:
        UserError: If mteb cannot load it, or it is no cross-encoder.
    """
    if Path(name).is_dir():
        from obliq_models.rerankers import conditional

        return conditional.load(Path(name), device)
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


def _loader(columns: Mapping[str, Sequence[str]], batches: Sequence[Sequence[int]]) -> Any:
    import datasets
    from torch.utils.data import DataLoader

    def together(rows: list[dict[str, str]]) -> dict[str, list[str]]:
        return {key: [row[key] for row in rows] for key in columns}

    table: Any = datasets.Dataset.from_dict({key: list(values) for key, values in columns.items()})
    return DataLoader(table, batch_sampler=batches, collate_fn=together)  # type: ignore[arg-type]
