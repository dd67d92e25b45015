"""A frozen authorship encoder: how often function words and character n-grams occur, compared by Cosine Delta.

J. Burrows, "Delta: a measure of stylistic difference and a guide to likely authorship", Literary and Linguistic
Computing 17(3), 2002, compares z-scores of the most frequent words. The cosine of the z-scores is the variant of
P. Smith and W. Aldridge, "Improving authorship attribution: optimizing Burrows' Delta method", Journal of
Quantitative Linguistics 18(1), 2011; S. Evert et al., "Understanding and explaining Delta measures for authorship
attribution", Digital Scholarship in the Humanities 32(suppl. 2), 2017, say why it works better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer

from obliq_models.retrievers.base import Retriever, Texts, batches
from obliq_models.retrievers.function_words import FUNCTION_WORDS
from obliq_models.search import products

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

_WORD = r"(?u)\b\w+(?:['\u2019]\w+)?\b"
NGRAMS = 2_000
SAMPLE = 4_000
CHUNK = 2_000


def load(_name: str, **_: object) -> StylometryRetriever:
    """Return an untouched retriever; there is nothing to load."""
    return StylometryRetriever()


class StylometryRetriever(Retriever):
    """Cosine Delta: relative frequencies, standardised over the corpus, compared by cosine.

    The features are the function words of `function_words` (lower case) and the most frequent character 3- and
    4-grams of the corpus (case and punctuation kept, runs of blanks as one), counted on at most 4,000 documents,
    evenly spaced. A feature that never varies counts nothing.

    Args:
        ngrams: How many character n-grams to use.
    """

    def __init__(self, ngrams: int = NGRAMS) -> None:
        super().__init__()
        self.ngrams = ngrams
        self._words = CountVectorizer(vocabulary=FUNCTION_WORDS, token_pattern=_WORD)
        self._grams: CountVectorizer | None = None
        self._mean = self._scale = np.zeros(0, np.float32)
        self._documents = torch.zeros(0, 0)

    def fit(self, texts: Texts) -> None:
        """Choose the n-grams, then measure and standardise every document."""
        self._grams = _frequent_ngrams(texts.sample(SAMPLE), self.ngrams)
        vectors = np.concatenate([self._frequencies(batch) for batch in batches(texts, CHUNK)])
        self._mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        spread = vectors.std(axis=0, dtype=np.float64).astype(np.float32)
        self._scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 1e-9)
        self._documents = self._standardised(vectors)

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """Yield cosines between standardised frequencies."""
        yield from products(self._standardised(self._frequencies(texts)), self._documents)

    def _frequencies(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return relative frequencies, float32, shape (texts, features): each part sums to at most 1."""
        parts = [_relative(self._words.transform(texts), [len(text.split()) for text in texts])]
        if self._grams is not None:
            parts.append(_relative(self._grams.transform(texts), [2 * len(text) for text in texts]))
        return np.concatenate(parts, axis=1)

    def _standardised(self, vectors: NDArray[np.float32]) -> torch.Tensor:
        """Return z-scores of unit length, changing `vectors`."""
        vectors -= self._mean
        vectors *= self._scale
        return torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1)


def _relative(counts: Any, totals: Iterable[int]) -> NDArray[np.float32]:
    dense: NDArray[np.float32] = counts.toarray().astype(np.float32)
    dense /= np.maximum(1, np.array(list(totals), np.float32))[:, None]
    return dense


def _frequent_ngrams(texts: Texts, most: int) -> CountVectorizer | None:
    """Return a counter of the most frequent character 3- and 4-grams, or None where there are none.

    Of equally frequent ones the first by their characters: scikit-learn's own `max_features` takes those that the
    processor's way of sorting puts first.
    """
    counter = CountVectorizer(analyzer="char", ngram_range=(3, 4), lowercase=False)
    try:
        counts = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel()
    except ValueError:  # texts shorter than three characters: an empty vocabulary
        return None
    grams = counter.get_feature_names_out()  # in the order of their characters
    chosen = np.sort(np.argsort(-counts, kind="stable")[:most])
    return CountVectorizer(analyzer="char", ngram_range=(3, 4), lowercase=False, vocabulary=grams[chosen].tolist())
