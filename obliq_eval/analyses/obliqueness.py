"""How much of a query can be read off its source document (paper, Appendix J)."""

from __future__ import annotations

import re
from functools import cache

WORD = re.compile(r"[^\W\d_]+")
SHORTEST = 4  # "alphabetic tokens longer than three characters"


@cache
def _stopwords() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def content_words(text: str) -> frozenset[str]:
    """Return the lower-cased alphabetic tokens of four or more letters that are not stopwords (scikit-learn's list)."""
    return frozenset(word for word in WORD.findall(text.lower()) if len(word) >= SHORTEST) - _stopwords()


def coverage(query: str, source: str) -> float:
    """Return the share of a query's content words that its source holds; 0 for a query without content words."""
    words = content_words(query)
    return len(words & content_words(source)) / len(words) if words else 0.0


def jaccard(query: str, source: str) -> float:
    """Return the overlap of both texts' content words: intersection over union; 0 where both are empty."""
    first, second = content_words(query), content_words(source)
    return len(first & second) / len(first | second) if first | second else 0.0
