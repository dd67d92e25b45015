"""What encoding will cost, before it is done: a sample spread over the lengths is encoded, and nothing is kept."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from obliq_models.retrievers.base import Texts
from obliq_models.shards import KEPT_AS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_models.encoders.base import Encoder, Role
    from obliq_models.shards import Storage

WARM_UP = 16
"""Texts that are encoded first: their time is not counted, but says how many more can be encoded."""

MOST = 512
"""Largest sample."""

SECONDS = 10.0
"""How long the calibration may take, about."""


@dataclass(frozen=True)
class Estimate:
    """What encoding texts will cost.

    The longest text is encoded in any case, and counted once: where a text is truncated, at least one is told. For all
    others tokens, truncated texts and seconds are those of the sample times as many texts as there are for each of it.

    Args:
        role: Queries or documents.
        texts: How many there are.
        distinct: How many of them are different; each is encoded once.
        sample: How many of those the estimate is from: the longest, and others evenly spaced in the order of length.
        tokens: Tokens that the model will read.
        truncated: Texts that are longer than it reads.
        lost: Tokens of those that it will not read.
        seconds: Time in this process on this machine.
        bytes: Of the vectors on disk.
    """

    role: Role
    texts: int
    distinct: int
    sample: int
    tokens: int
    truncated: int
    lost: int
    seconds: float
    bytes: int


def estimate(
    encoder: Encoder,
    texts: Texts | Sequence[str],
    role: Role,
    *,
    instruction: str = "",
    storage: Storage = "float32",
    seconds: float = SECONDS,
) -> Estimate:
    """Encode a small sample, and return what all of it will cost.

    Raises:
        UserError: As `Encoder.encode` says.
    """
    rows, lengths = _distinct(texts)
    order = rows[np.argsort(lengths, kind="stable")]
    start = time.perf_counter()
    encoder.encode(_picked(texts, _spread(order, WARM_UP)), role, instruction)
    rate = min(WARM_UP, max(1, len(order))) / (time.perf_counter() - start)
    start = time.perf_counter()
    longest = encoder.encode(_picked(texts, order[-1:]), role, instruction)
    alone = time.perf_counter() - start
    chosen = _spread(order[:-1], min(MOST, max(WARM_UP, int(rate * seconds))))
    start = time.perf_counter()
    found = encoder.encode(_picked(texts, chosen), role, instruction)
    taken = time.perf_counter() - start
    times = (len(order) - 1) / max(1, len(chosen))
    return Estimate(
        role=role,
        texts=len(texts),
        distinct=len(order),
        sample=len(chosen) + (len(order) > 0),
        tokens=longest.tokens + round(found.tokens * times),
        truncated=longest.cut + round(found.cut * times),
        lost=longest.lost + round(found.lost * times),
        seconds=alone + taken * times,
        bytes=len(order) * encoder.dims * np.dtype(KEPT_AS[storage]).itemsize
        + (4 * len(texts) if len(order) < len(texts) else 0),
    )


def _distinct(texts: Texts | Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return where each distinct text stands first, and how many characters it has."""
    seen: set[bytes] = set()
    rows: list[int] = []
    lengths: list[int] = []
    for row, text in enumerate(texts):
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            rows.append(row)
            lengths.append(len(text))
    return np.array(rows, np.int64), np.array(lengths, np.int64)


def _spread(order: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many of these, from the middles of as many parts of equal size."""
    count = min(most, len(order))
    return order[((np.arange(count) + 0.5) * len(order) / max(1, count)).astype(np.int64)]


def _picked(texts: Texts | Sequence[str], rows: np.ndarray) -> list[str]:
    chosen = sorted(rows.tolist())
    return list(texts.select(chosen)) if isinstance(texts, Texts) else [texts[row] for row in chosen]
