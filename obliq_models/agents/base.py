"""What every agent owes its users: exclusions kept to, failures counted, its language model and prompts told."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from obliq_eval.analyses.cost import Stage, stage_counts
from obliq_eval.errors import UserError
from obliq_eval.exclusions import EXCLUDED_COLUMN
from obliq_models import prompts
from obliq_models.agents.questions import Questions
from obliq_models.agents.retrieval import Retrieval, open_all
from obliq_models.llm.ledger import Ledger
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.base import Query
from obliq_models.rerankers.cutting import Cut
from obliq_models.rerankers.stage import THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import datasets

    from obliq_eval.catalogue import Origin
    from obliq_models.llm.client import Client


@dataclass(frozen=True)
class Given:
    """What a search asks for.

    Args:
        queries: The queries.
        excluded: Documents that may not be returned, by query.
        allowed: The only documents that may be returned, by query; None for all.
        top_k: How many documents to return.
    """

    queries: tuple[Query, ...]
    excluded: Mapping[str, frozenset[str]]
    allowed: Mapping[str, frozenset[str]] | None
    top_k: int

    def permits(self, query: str, document: str) -> bool:
        """Return whether a document may be an answer to a query."""
        if document in self.excluded.get(query, ()):
            return False
        return self.allowed is None or document in self.allowed.get(query, ())


class Agent(ABC):
    """A language model that works with retrievers (mteb's `SearchProtocol`); a subclass writes `answer`.

    Args:
        retrievers: What it searches with.
        asking: The language model; without a client, one is opened when it is first needed.
        failures: Share of failed questions above which a search is refused.
    """

    name: ClassVar[str]
    accepts_exclusions: ClassVar[bool] = True
    is_oracle: ClassVar[bool] = False
    """Whether judgments are to be shown to it (`obliq_eval.oracles`)."""

    origin: Origin | None = None

    def __init__(self, retrievers: Sequence[Retrieval], asking: Asking, *, failures: float = THRESHOLD) -> None:
        if not retrievers:
            raise UserError(f"{self.name} needs a retriever: name one")
        if not 0 <= failures <= 1:
            raise UserError(f"failures is {failures}, and must be a share from 0 to 1")
        self.retrievers, self.asking, self.failures = tuple(retrievers), asking, failures
        self.counts: dict[str, int] = {}
        self.questions: Questions
        self._meta: Any = None
        self._corpus: datasets.Dataset | None = None
        self._rows: dict[str, int] = {}

    @abstractmethod
    def answer(self, given: Given) -> dict[str, dict[str, float]]:
        """Return `{query id: {document id: score}}`; a query without an entry got no answer."""

    @abstractmethod
    def calls(self, pool: int) -> int:
        """Return how many calls one query costs at most; `pool` is the size of its pool, where it has one."""

    @property
    @abstractmethod
    def prompt_names(self) -> tuple[str, ...]:
        """Names of the prompts that it uses."""

    def own_settings(self) -> dict[str, Any]:
        """Return, as JSON values, what else can change answers."""
        return {}

    @property
    def retriever(self) -> Retrieval:
        """The retriever, of several the first."""
        return self.retrievers[0]

    @property
    def client(self) -> Client:
        """Whom it asks, opened if need be.

        Raises:
            UserError: If no language model is named, or its server is not.
        """
        if self.asking.client is None:
            self.asking = replace(self.asking, client=self.asking.llm.open())
        assert self.asking.client is not None  # noqa: S101 -- for mypy
        return self.asking.client

    @property
    def mteb_model_meta(self) -> Any:
        """The model's `mteb.ModelMeta`; its revision covers retrievers, prompts and the language model."""
        return self._meta

    @mteb_model_meta.setter
    def mteb_model_meta(self, meta: Any) -> None:
        # The environment names the language model, which the table of models cannot know; runs must differ by it.
        if meta is not None:
            settings = self.settings()
            told = json.dumps([meta.revision, settings], sort_keys=True)
            revision = hashlib.sha256(told.encode()).hexdigest()
            resolved = {**(meta.loader_kwargs or {}), "resolved": settings}
            meta = meta.model_copy(update={"revision": revision, "loader_kwargs": resolved})
        self._meta = meta

    def settings(self) -> dict[str, Any]:
        """Return, as JSON values, whatever can change its answers."""
        return {
            "agent": self.name,
            "retrievers": [list(one.identity) for one in self.retrievers],
            "prompts": [f"{name}@{prompts.load(name).revision}" for name in self.prompt_names],
            **self.asking.cut.settings(),
            "failures": self.failures,
            **self.own_settings(),
            "llm": self.asking.llm.answering(),
        }

    def index(self, corpus: datasets.Dataset, **kwargs: Any) -> None:
        """Index the corpus with the retrievers, after the language model is known to be there.

        Raises:
            UserError: If it is not, or a retriever cannot index the corpus.
        """
        from obliq_eval.data.corpus import ids_of

        _ = self.client
        for retriever in self.retrievers:
            retriever.index(corpus, **kwargs)
        self._corpus, self._rows = corpus, {document: row for row, document in enumerate(ids_of(corpus))}

    def search(
        self,
        queries: datasets.Dataset,
        *,
        top_k: int,
        task_metadata: Any = None,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Return each query's documents; a query whose questions all failed gets an empty answer.

        Raises:
            UserError: If a retriever fails, the language model cannot be reached, or too many questions fail.
        """
        if self._corpus is None:
            raise UserError(f"{self.name} has to index a corpus before it searches")
        given = _given(queries, top_k, "" if task_metadata is None else str(task_metadata.name), top_ranked)
        client = self.client
        client.ledger = Ledger()  # of this search alone
        self.questions = Questions(client, self.asking.llm.attempts)
        for retriever in self.retrievers:
            retriever.begin(task_metadata=task_metadata, **kwargs)
        found = self.answer(given)
        self.counts = self._counted(len(given.queries))
        self.questions.check(self.name, self.failures)
        return {query.id: found.get(query.id, {}) for query in given.queries}

    def known(self, documents: Iterable[str]) -> set[str]:
        """Return those of some documents that are in the corpus."""
        return {document for document in documents if document in self._rows}

    def texts(self, documents: Collection[str]) -> dict[str, str]:
        """Return the texts of some documents of the corpus, titles before them as mteb puts them."""
        from obliq_models.retrievers.base import Texts

        assert self._corpus is not None  # noqa: S101 -- `search` makes sure
        wanted = sorted(set(documents))
        return dict(zip(wanted, Texts(self._corpus).select([self._rows[one] for one in wanted]), strict=True))

    def _counted(self, queries: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.retrievers:
            prefix = "" if len(self.retrievers) == 1 else f"{one.alias}: "
            found |= {f"{prefix}{what}": number for what, number in one.counts.items()}
            found |= stage_counts(Stage(one.alias, queries, one.seconds, calls=0))
        return found | self.client.counts | self.questions.counts(self.name)


def prepared(
    name: str,
    *,
    retriever: str | Sequence[str],
    llm: str | None = None,
    device: str | None = None,
    document_tokens: int = 1024,
    tokenizer: str = "",
    several: bool = False,
    resolved: object = None,  # noqa: ARG001 -- what an earlier load found is found anew
) -> tuple[tuple[Retrieval, ...], Asking]:
    """Return the retrievers and the language model that a loader's settings name.

    Args:
        name: Full name of the agent.
        retriever: What may stand after `-m`, or several such texts.
        llm: The language model; by default `$OBLIQ_LLM`, whose other settings hold in any case.
        device: Where retrievers run.
        document_tokens: Where documents are cut that the language model reads.
        tokenizer: What counts tokens; empty for four characters to a token.
        several: Whether it takes more than one retriever.
        resolved: Ignored.

    Raises:
        UserError: If a retriever cannot be loaded, or the language model or its server is not named.
    """
    named = [retriever] if isinstance(retriever, str) else list(retriever)
    if len(named) != 1 and not several:
        raise UserError(f"{name} searches with one retriever: give one name, or a fusion, as in fuse:bm25,minilm")
    if document_tokens < 1:
        raise UserError(f"document_tokens is {document_tokens}, and must be at least 1")
    settings = LLMSettings.read(model=llm)
    settings.check()
    return open_all(named, device), Asking(settings, cut=Cut(document_tokens, tokenizer))


def ranked(documents: Sequence[str]) -> dict[str, float]:
    """Return documents, the best first, with scores that keep their order: the distance from the end."""
    return {document: float(len(documents) - place) for place, document in enumerate(documents)}


def _given(queries: datasets.Dataset, top_k: int, task: str, top_ranked: Mapping[str, Sequence[str]] | None) -> Given:
    from obliq_models.retrievers.base import query_texts

    ids = [str(query) for query in queries["id"]]
    listed = queries[EXCLUDED_COLUMN] if EXCLUDED_COLUMN in queries.column_names else [()] * len(ids)
    excluded = {query: frozenset(documents or ()) for query, documents in zip(ids, listed, strict=True)}
    allowed = None if top_ranked is None else {query: frozenset(top_ranked.get(query) or ()) for query in ids}
    found = (Query(query, text, task) for query, text in zip(ids, query_texts(queries), strict=True))
    return Given(tuple(found), excluded, allowed, top_k)
