"""How much of a query can be read off its source document: the measures of the paper's Appendix J, and more.

Content words and entities follow its definitions. Where it says nothing more, what is done here is said below: the
stopwords are scikit-learn's English ones; the first word of a sentence belongs to no capitalised span; an entity is
looked for in the query as whole words in the same capitals; a full stop after a title or an initial ends no sentence,
and a line's beginning begins one.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WORD = re.compile(r"[^\W\d_]+")
SHORTEST = 4  # "alphabetic tokens longer than three characters"
SPAN = 5
"""Words from which on a span that query and source share counts as copied."""

_TOKEN = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_YEAR = re.compile(r"(?<!\w)[12][0-9]{3}(?!\w)")
_ANY_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_JOINED = re.compile(r"[ \t]+")  # what may stand between two words of one span
_ENDS = re.compile(r"[.!?\u2026][\"'\u2019\u201d)\]]*\s+[\"'\u2018\u201c(\[]*$|\n\s*[\"'\u2018\u201c(\[]*$")
_CHARACTER = re.compile(r"\w")
_TITLES = frozenset({"mr", "mrs", "ms", "dr", "st", "gen", "sen", "rep", "gov", "prof", "hon", "lt", "col", "capt"})
_FIRST_PERSON = re.compile(r"I(?:['\u2019-].*)?")


@cache
def _stopwords() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


@dataclass(frozen=True)
class Measures:
    """One query against its source.

    Args:
        jaccard: Overlap of both texts' content words.
        coverage: Share of the query's content words that the source holds.
        leaked: The source's entities that the query holds.
        copied: Words of the longest span of the source that the query repeats, 0 below `SPAN`.
        spans: Spans of `SPAN` words or more that it repeats.
        words: Words of the query.
    """

    jaccard: float
    coverage: float
    leaked: tuple[str, ...]
    copied: int
    spans: int
    words: int


@dataclass(frozen=True)
class Quality:
    """Queries against their sources: means and shares over all pairs of the two.

    Args:
        queries: How many queries.
        pairs: How many pairs: a synthetic query has one source, an official one as many as it has gold documents.
        jaccard: Mean overlap.
        coverage: Mean coverage.
        leakage: Share that holds at least one of the source's entities.
        copied: Share that repeats a span of `SPAN` words or more.
        words: Mean length in words.
        duplicates: Share of the queries that repeat an earlier one, white space and case aside.
    """

    queries: int
    pairs: int
    jaccard: float
    coverage: float
    leakage: float
    copied: float
    words: float
    duplicates: float


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


def entities(text: str) -> tuple[str, ...]:
    """Return the capitalised spans that do not start a sentence, and the four-digit years, each once, in their order.

    A span is a longest run of capitalised words with nothing but blanks between. The first word of a sentence belongs
    to none, since its capital says nothing. A single letter and the first person (`I`, `I'm`) are no capitalised words.
    """
    found: list[tuple[int, str]] = [(match.start(), match[0]) for match in _YEAR.finditer(text)]
    span: list[re.Match[str]] = []

    def close() -> None:
        if span:
            found.append((span[0].start(), " ".join(word[0] for word in span)))
        span.clear()

    for token in _TOKEN.finditer(text):
        if span and not _JOINED.fullmatch(text, span[-1].end(), token.start()):
            close()
        if _capitalised(token[0]) and not _begins_sentence(text, token.start()):
            span.append(token)
        else:
            close()
    close()
    return tuple(dict.fromkeys(name for _, name in sorted(found)))


def leaked(query: str, source: str) -> tuple[str, ...]:
    """Return the source's entities that a query holds as whole words, in the same capitals."""
    plain = " ".join(query.split())
    return tuple(name for name in entities(source) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", plain))


def copied_spans(query: str, source: str, shortest: int = SPAN) -> tuple[str, ...]:
    """Return the longest spans of words that a query repeats from its source, case and punctuation aside.

    Args:
        query: The query.
        source: The document.
        shortest: Words of the shortest span that counts.
    """
    asked, held = _words(query), _words(source)
    known = {tuple(held[at : at + shortest]) for at in range(len(held) - shortest + 1)}
    found: list[str] = []
    start: int | None = None
    for at in range(len(asked) - shortest + 2):
        if at + shortest <= len(asked) and tuple(asked[at : at + shortest]) in known:
            start = at if start is None else start
        elif start is not None:
            found.append(" ".join(asked[start : at + shortest - 1]))
            start = None
    return tuple(found)


def measure(query: str, source: str) -> Measures:
    """Return all measures of one query against its source."""
    spans = copied_spans(query, source)
    return Measures(
        jaccard=jaccard(query, source),
        coverage=coverage(query, source),
        leaked=leaked(query, source),
        copied=max((len(span.split(" ")) for span in spans), default=0),
        spans=len(spans),
        words=len(_words(query)),
    )


def summarise(measured: Sequence[Measures], queries: Iterable[str]) -> Quality:
    """Return means and shares over pairs of query and source.

    Args:
        measured: One for each pair.
        queries: The text of each query, once for each query whatever the number of its pairs.

    Raises:
        ValueError: If there are none.
    """
    if not measured:
        raise ValueError("there is nothing to summarise")
    texts = Counter(map(plain, queries))
    total = sum(texts.values())
    return Quality(
        queries=total,
        pairs=len(measured),
        jaccard=statistics.fmean(one.jaccard for one in measured),
        coverage=statistics.fmean(one.coverage for one in measured),
        leakage=statistics.fmean(bool(one.leaked) for one in measured),
        copied=statistics.fmean(one.copied > 0 for one in measured),
        words=statistics.fmean(one.words for one in measured),
        duplicates=(total - len(texts)) / total if total else 0.0,
    )


def plain(text: str) -> str:
    """Return a text in lower case with single spaces: what counts as the same text."""
    return " ".join(text.lower().split())


def _capitalised(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and not _FIRST_PERSON.fullmatch(word)


def _begins_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - 40) : start]
    if not _CHARACTER.search(text, 0, start):  # nothing but quotes and white space comes before
        return True
    end = _ENDS.search(before)
    if end is None:
        return False
    last = _TOKEN.findall(before[: end.start()])
    stop = end[0].startswith(".") and last and before[: end.start()].endswith(last[-1])
    return not (stop and "\n" not in end[0] and (last[-1].lower() in _TITLES or len(last[-1]) == 1))


def _words(text: str) -> list[str]:
    return _ANY_WORD.findall(text.lower().replace("\u2019", "'"))
