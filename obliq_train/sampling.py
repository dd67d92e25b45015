"""Documents in an order that a seed decides, without empty ones and without near-duplicates of earlier ones.

Whether two texts are near-duplicates is told by their word 5-grams: a MinHash signature (Broder, 1997) estimates the
Jaccard similarity of the two sets, and bands of the signature find the candidates. Everything is deterministic. The
memory grows by about a kilobyte for each document that is taken, whatever the length of its text.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.analyses.obliqueness import plain
from obliq_models.documents import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    import datasets
    from numpy.typing import NDArray

GRAM = 5  # words
BANDS, ROWS = 8, 4
ALIKE = 0.7
"""Estimated Jaccard similarity from which on a document is a near-duplicate of an earlier one."""
READ = 256  # documents that are read at once

_WORD = re.compile(r"\w+")
_CHANCE = np.random.default_rng(20_260_930)
_FACTORS = _CHANCE.integers(1, 2**63, BANDS * ROWS, dtype=np.uint64) | np.uint64(1)
_OFFSETS = _CHANCE.integers(0, 2**63, BANDS * ROWS, dtype=np.uint64)


@dataclass(frozen=True)
class Sampled:
    """A document that was taken.

    Args:
        number: How many were taken before it.
        id: Its id.
        text: Its text.
    """

    number: int
    id: str
    text: str


def sample(
    documents: datasets.Dataset, seed: int, limit: int | None = None, counts: Counter[str] | None = None
) -> Iterator[Sampled]:
    """Yield documents in an order that the seed decides; the first n are the same whatever the limit.

    Args:
        documents: Table with the string columns `id` and `text`.
        seed: The seed.
        limit: How many at most; None for all.
        counts: What was left out is added here, by its reason.
    """
    order = np.random.default_rng(seed).permutation(len(documents))
    left = Counter[str]() if counts is None else counts
    known = Known()
    taken = 0
    for start in range(0, len(order), READ):
        if taken == limit:
            return
        batch = documents.select(order[start : start + READ])[:]
        for identifier, text in zip(batch["id"], batch["text"], strict=True):
            if taken == limit:
                return
            reason = "empty documents" if not text.strip() else known.seen(text)
            if reason:
                left[reason] += 1
                continue
            yield Sampled(taken, identifier, text)
            taken += 1


class Known:
    """Remembers texts by their signatures."""

    def __init__(self) -> None:
        self._exact: set[int] = set()
        self._bands: dict[int, int] = {}  # of the texts that share a band, the first: its near-duplicates are not kept
        self._signatures = np.empty((1_024, BANDS * ROWS), np.uint32)
        self._count = 0

    def seen(self, text: str) -> str:
        """Return as what a text is known, `duplicates` or `near-duplicates`; remember it if it is new (empty)."""
        normal = plain(text)
        digest = _hash(normal.encode("utf-8", "surrogatepass"))
        if digest in self._exact:
            return "duplicates"
        mark = signature(normal)
        if mark is None:  # fewer than five words: only the same text is its duplicate
            self._exact.add(digest)
            return ""
        keys = [_hash(bytes([band]) + mark[band * ROWS : (band + 1) * ROWS].tobytes()) for band in range(BANDS)]
        candidates = {self._bands[key] for key in keys if key in self._bands}
        if any(float(np.mean(self._signatures[at] == mark)) >= ALIKE for at in candidates):
            return "near-duplicates"
        if self._count == len(self._signatures):
            self._signatures = np.concatenate([self._signatures, np.empty_like(self._signatures)])
        self._signatures[self._count] = mark
        for key in keys:
            self._bands.setdefault(key, self._count)
        self._count += 1
        self._exact.add(digest)
        return ""


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def signature(text: str) -> NDArray[np.uint32] | None:
    """Return the MinHash signature of a text's word 5-grams, shape (32,), or None if it has fewer than five words."""
    words = np.array([zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in _WORD.findall(text)], np.uint64)
    if len(words) < GRAM:
        return None
    grams = np.zeros(len(words) - GRAM + 1, np.uint64)
    for at in range(GRAM):
        grams = grams * np.uint64(0x9E3779B97F4A7C15) + words[at : len(words) - GRAM + 1 + at]
    mixed = _FACTORS[:, None] * (grams ^ (grams >> np.uint64(29)))[None, :] + _OFFSETS[:, None]
    least: NDArray[np.uint32] = (mixed >> np.uint64(32)).min(axis=1).astype(np.uint32)
    return least


def content(documents: datasets.Dataset) -> str:
    """Return the SHA-256 over all ids and texts, in descending order of ids."""
    total = hashlib.sha256()
    for batch in canonical(documents).iter(batch_size=READ):
        for identifier, text in zip(batch["id"], batch["text"], strict=True):
            for part in (identifier, text):
                data = part.encode("utf-8", "surrogatepass")
                total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()
