"""BM25 over a sparse matrix of term weights, built chunk by chunk so that a large corpus never sits in memory.

A weight is what bm25s would store for the same tokens; bm25s itself holds every token of the corpus as Python lists
while it indexes. Only documents that share a word with the query are answers.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from scipy import sparse

from obliq_eval.errors import MissingExtraError, UserError, near
from obliq_models.retrievers.base import Retriever, Texts, batches
from obliq_models.search import BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

CHUNK = 2_000
"""Documents that are tokenised at a time."""


@dataclass(frozen=True)
class Variant:
    """One tokenizer with one formula; a model name never means two of them.

    Args:
        pattern: A token, in lower-case text.
        stopwords: Tokens that are left out.
        stem: Whether tokens are reduced by the English Snowball stemmer.
        okapi: Use the idf of rank_bm25's `BM25Okapi` instead of Lucene's.
    """

    pattern: str = r"(?u)\b\w\w+\b"
    stopwords: tuple[str, ...] = STOPWORDS_EN
    stem: bool = False
    okapi: bool = False


VARIANTS = {
    "default": Variant(),
    "okapi": Variant(pattern=r"[^\W_]{2,}", stopwords=(), okapi=True),
    "stem": Variant(stem=True),
}


def load(name: str, *, variant: str = "default", **_: object) -> BM25Retriever:
    """Return an empty BM25 index, as mteb calls for it.

    Raises:
        UserError: If there is no such variant, or the stemmer's package is missing.
    """
    if variant not in VARIANTS:
        raise UserError(f"{name}: BM25 has no variant {variant!r}{near(variant, VARIANTS)}")
    return BM25Retriever(VARIANTS[variant])


class Vocabulary(dict[str, int]):
    """Numbers of tokens, given out as they are met: 0 for what is not indexed, stems from 1 on.

    Args:
        variant: Says what a token is.
    """

    def __init__(self, variant: Variant) -> None:
        super().__init__((word, 0) for word in variant.stopwords)
        self._find = re.compile(variant.pattern).findall
        self._stem = _stemmer() if variant.stem else None
        self.stems: dict[str, int] = {}
        self.growing = True

    def __missing__(self, token: str) -> int:
        stem = token if self._stem is None else self._stem(token)
        if not self.growing:
            return self.stems.get(stem, 0)
        number = self[token] = self.stems.setdefault(stem, len(self.stems) + 1)
        return number

    def frequencies(self, texts: Iterable[str]) -> sparse.csr_array:
        """Return how often each term occurs: float32, shape (texts, highest number + 1), column 0 empty."""
        flat, ends = array("i"), [0]
        for text in texts:
            flat.extend(map(self.__getitem__, self._find(text.lower())))
            ends.append(len(flat))
        numbers = np.frombuffer(flat, dtype=np.int32) if flat else np.zeros(0, np.int32)
        rows = np.repeat(np.arange(len(ends) - 1, dtype=np.int32), np.diff(ends))
        kept = numbers > 0
        shape = (len(ends) - 1, len(self.stems) + 1)
        counts = sparse.coo_array((np.ones(kept.sum(), np.float32), (rows[kept], numbers[kept])), shape=shape)
        return counts.tocsr()


def _stemmer() -> Callable[[str], str]:
    try:
        import Stemmer
    except ImportError as error:
        raise MissingExtraError("PyStemmer", "stem", "BM25 with stemming") from error
    stem: Callable[[str], str] = Stemmer.Stemmer("english").stemWord
    return stem


def _by_term(chunks: list[sparse.csr_array], found: NDArray[np.int64]) -> sparse.csr_array:
    """Join and transpose the chunks, which are let go one by one, so that the whole is never there twice.

    Args:
        chunks: float32, shape (documents of the chunk, terms) each; the list is empty afterwards.
        found: In how many documents each term occurs.

    Returns:
        float32, shape (terms, documents).
    """
    ends = np.concatenate([[0], np.cumsum(found)])
    data, columns = np.empty(ends[-1], np.float32), np.empty(ends[-1], np.int32)
    free, first = ends[:-1].copy(), 0
    chunks.reverse()
    while chunks:
        part = chunks.pop().tocsc()
        counts = np.diff(part.indptr)
        places = np.arange(part.nnz) + np.repeat(free - part.indptr[:-1], counts)
        data[places], columns[places] = part.data, part.indices + first
        free += counts
        first += part.shape[0]
    # 32-bit places where they do: half the memory to pass over, and no conversion of the columns
    bounds = ends.astype(np.int32) if ends[-1] < 2**31 else ends
    return sparse.csr_array((data, columns, bounds), shape=(len(found), first))


class BM25Retriever(Retriever):
    """BM25; documents without a positive score, such as those that share no word with the query, are no answers.

    The weight of term t in document d is idf(t) · tf / (tf + k1 · (1 - b + b · |d| / mean length)), with
    idf = ln(1 + (N - df + .5) / (df + .5)) (Lucene, Kamphuis et al. 2020). The Okapi variant is rank_bm25's: the
    weight times (k1 + 1), idf = ln((N - df + .5) / (df + .5)), and a negative idf becomes .25 times the mean idf.
    A word that a query repeats counts as often.

    Args:
        variant: Tokenizer and formula.
        k1: How soon a repeated word stops counting.
        b: How much longer documents are discounted.
    """

    floor: ClassVar[float] = 0.0

    def __init__(self, variant: Variant = VARIANTS["default"], k1: float = 1.5, b: float = 0.75) -> None:
        super().__init__()
        self.variant, self.k1, self.b = variant, k1, b
        self._vocabulary = Vocabulary(variant)
        self._weights = sparse.csr_array((0, 0), dtype=np.float32)

    def fit(self, texts: Texts) -> None:
        """Build the matrix of weights, shape (terms, documents)."""
        self._vocabulary = Vocabulary(self.variant)
        chunks = [self._vocabulary.frequencies(batch) for batch in batches(texts, CHUNK)]
        self._vocabulary.growing = False
        terms = len(self._vocabulary.stems) + 1
        found = sum(np.bincount(chunk.indices, minlength=terms) for chunk in chunks)
        idf = self._idf(np.asarray(found, np.float64), len(texts))
        lengths = [chunk.sum(axis=1) for chunk in chunks]
        mean = float(np.concatenate(lengths).mean(dtype=np.float64)) or 1.0
        for chunk, length in zip(chunks, lengths, strict=True):
            norm = np.repeat(self.k1 * (1 - self.b + self.b * length / mean), np.diff(chunk.indptr))
            chunk.data = (idf[chunk.indices] * (chunk.data / (chunk.data + norm))).astype(np.float32)
            chunk.resize(chunk.shape[0], terms)
        self._weights = _by_term(chunks, np.asarray(found, np.int64))

    def _idf(self, found: NDArray[np.float64], documents: int) -> NDArray[np.float64]:
        """Return each term's idf from the number of documents that hold it; column 0 stands for no term."""
        odds = (documents - found + 0.5) / (found + 0.5)
        if not self.variant.okapi:
            return np.log1p(odds)
        idf = np.log(odds)
        mean = idf[1:].mean() if len(idf) > 1 else 0.0
        return (self.k1 + 1) * np.where(idf < 0, 0.25 * mean, idf)

    def score(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield the sums of the weights of each query's words."""
        for batch in batches(texts, max(1, BLOCK // 4 // self._weights.shape[1])):
            counts = self._vocabulary.frequencies(batch)
            block = np.empty((len(batch), self._weights.shape[1]), np.float32)
            for row, (first, end) in enumerate(pairwise(counts.indptr.tolist())):  # only the query's own terms
                block[row] = self._weights[counts.indices[first:end]].T @ counts.data[first:end]
            yield block
