"""Character trigrams weighted by TF-IDF, compared by cosine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from obliq_models.retrievers.base import Retriever, Texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def load(_name: str, **_settings: object) -> TrigramRetriever:
    """Return the retriever; mteb calls this with the model's name, revision and settings."""
    return TrigramRetriever()


class TrigramRetriever(Retriever):
    """TF-IDF over character trigrams."""

    floor = 0.0  # a document that shares no trigram with the query is no answer

    def fit(self, texts: Texts) -> None:
        """Weigh the trigrams of every document."""
        self.vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), dtype=np.float32)
        self.documents = self.vectorizer.fit_transform(texts)

    def score(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield the cosines of 32 queries at a time with every document."""
        queries = self.vectorizer.transform(texts)
        for first in range(0, queries.shape[0], 32):
            yield (queries[first : first + 32] @ self.documents.T).toarray()
