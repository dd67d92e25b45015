"""Rows of single documents (the inverse cloze task of Lee et al., 2019): a sentence, and what stands around it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from obliq_train.negatives import AT_ONCE
from obliq_train.pairs import SENTENCE, Pair
from obliq_train.rows import Passage, Row

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from obliq_train.distinct import Distinct

LEAST_SENTENCES, LEAST_WORDS = 3, 4
"""Sentences of a document, and words of the one that becomes a query."""
WITHOUT = "documents without a sentence to take out"


def cloze(documents: Distinct, source: str, seed: int, counts: Counter[str]) -> Iterator[Pair]:
    """Yield a pair for each distinct text: one of its sentences is answered by the rest of it.

    Args:
        documents: The corpus.
        source: Name of the part, written into every row.
        seed: Decides, with a document's id, which sentence it is.
        counts: Documents that are too short are counted here.
    """
    for start in range(0, len(documents.columns), AT_ONCE):
        columns = documents.columns[start : start + AT_ONCE]
        for column, text in zip(columns.tolist(), documents.read(columns), strict=True):
            identifier = documents.ids[column]
            cut = sentence_of(text, seed, identifier)
            if cut is None:
                counts[WITHOUT] += 1
                continue
            query, rest = (Passage("", part) for part in cut)
            yield Pair(Row(query, (rest,), (), source, identifier, (identifier,)), identifier, written=True)


def sentence_of(text: str, seed: int, identifier: str) -> tuple[str, str] | None:
    """Return one sentence of a text, which seed and id decide, and the text without it.

    Returns:
        None for a text of fewer than three sentences, or without one of four words or more.
    """
    text = text.strip()
    starts = [0, *(gap.end() for gap in SENTENCE.finditer(text))]
    spans = list(zip(starts, [*starts[1:], len(text)], strict=True))
    long = [(start, end) for start, end in spans if len(text[start:end].split()) >= LEAST_WORDS]
    if len(spans) < LEAST_SENTENCES or not long:
        return None
    mixed = int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=8).digest(), "little")
    start, end = long[int(np.random.default_rng([seed, mixed]).integers(len(long)))]
    return text[start:end].strip(), (text[:start] + text[end:]).strip()
