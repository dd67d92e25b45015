"""Published dense models as the benchmark's authors ran them: another document length for some of the tasks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from obliq_models.retrievers import dense

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_models.encoders.sentence import SentenceEncoder
    from obliq_models.retrievers.base import Texts

logger = logging.getLogger(__name__)


def load(
    name: str, revision: str | None = None, *, document_lengths: Mapping[str, int] | None = None, **settings: Any
) -> PublishedRetriever:
    """Load a sentence-transformers model.

    Args:
        name: Full name of the model.
        revision: Its commit on the hub.
        document_lengths: `{task name: longest document in tokens}`, for tasks that have another one.
        **settings: See `dense.load`.

    Raises:
        UserError: As `dense.load` says; also if a length is more than the model has positions for.
    """
    found = dense.load(name, revision, **settings)
    return PublishedRetriever(
        found.encoder,
        document_lengths=document_lengths,
        task_prompt=found.task_prompt,
        instructions=found.instructions,
        storage=found.storage,
        sources=found.sources,
    )


class PublishedRetriever(dense.DenseRetriever):
    """A dense retriever that reads another number of a document's tokens in some tasks.

    The documents of such a task are encoded in this process whatever the engine, since another process builds the
    model from its settings, which do not name the task.

    Args:
        encoder: What turns texts into vectors.
        document_lengths: `{task name: longest document in tokens}`.
        **settings: See `DenseRetriever`.

    Raises:
        UserError: If a length is more than the model has positions for.
    """

    def __init__(self, encoder: Any, *, document_lengths: Mapping[str, int] | None = None, **settings: Any) -> None:
        super().__init__(encoder, **settings)
        self._by_task: dict[str, SentenceEncoder] = {
            task: encoder.with_length("document", length) for task, length in (document_lengths or {}).items()
        }

    def fit(self, texts: Texts) -> None:
        """Encode every document that is not in the store."""
        other = self._by_task.get(self.task.name) if self.task is not None else None
        if other is None:
            super().fit(texts)
            return
        own, engine = self.encoder, self.engine
        if engine is not None:
            logger.warning(
                "%s: documents of %s have a length of their own, so they are encoded in this process, without "
                "the others",
                self.name,
                self.task.name if self.task is not None else "this task",
            )
        self.encoder, self.engine = other, None
        try:
            super().fit(texts)
        finally:
            self.encoder, self.engine = own, engine
