"""The embedding store: each distinct text is encoded once, and what has been encoded is never encoded again."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from obliq_eval.errors import UserError
from obliq_eval.home import whole_file
from obliq_models.encoders.base import ROLES
from obliq_models.engines import Job, Local
from obliq_models.shards import Cost, Storage
from obliq_models.stores import Stored, alone, why_missed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from obliq_models.encoders.base import Encoded, Encoder, Role
    from obliq_models.engines import Engine
    from obliq_models.retrievers.base import Texts
    from obliq_models.shards import Shard

SHARD = 8_192
"""Distinct texts in a shard: what a kill costs at most, and what is sorted by length together."""

ROWS = "rows.npy"
_DIGEST = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors of texts in a store on disk; they are read when they are asked for.

    Args:
        store: What is kept where, and how it was made.
        rows: For each text the row of its vector among the distinct texts, int32, shape (texts,). These are in the
            order in which they stand first: where no text repeats, rows count up.
        counts: Whatever was read, cut or lost, by its name; the same whether it was encoded now or before.
        encoded: Distinct texts that were encoded now, not before.
    """

    store: Stored
    rows: NDArray[np.int32] = field(repr=False)
    counts: Mapping[str, int]
    encoded: int = 0

    @staticmethod
    def read(store: Stored) -> Embeddings:
        """Return what an earlier `embed` has kept; `stored()` lists it.

        Raises:
            UserError: If it is not whole.
        """
        costs = [shard.cost() for shard in store.shards()]
        rows = np.arange(store.texts, dtype=np.int32)
        try:
            if store.distinct < store.texts:
                rows = np.load(store.folder / ROWS)
        except (OSError, ValueError, EOFError):
            costs = [None]
        fits = rows.shape == (store.texts,) and rows.dtype == np.int32
        if not fits or rows.min(initial=0) < 0 or rows.max(initial=-1) >= store.distinct or None in costs:
            raise UserError(f"{store.folder} is not whole; encode again what was in it")
        return Embeddings(store, rows, _counts(store, [cost for cost in costs if cost is not None]))

    def __len__(self) -> int:
        return self.store.texts

    @property
    def dims(self) -> int:
        """Return the length of one vector."""
        return self.store.dims

    @property
    def distinct(self) -> int:
        """Return how many of the texts are different."""
        return self.store.distinct

    def kept(self) -> Iterator[torch.Tensor]:
        """Yield the distinct texts' vectors as memory maps in the type in which they are kept, shard by shard.

        Raises:
            UserError: If they have gone.
        """
        for shard in self.store.shards():
            yield shard.open()

    def shards(self) -> Iterator[torch.Tensor]:
        """Yield the distinct texts' vectors, float32, shape (texts of the shard, dims).

        Raises:
            UserError: If they have gone.
        """
        for shard in self.kept():
            yield shard.float()

    def matrix(self) -> torch.Tensor:
        """Return the vectors of all texts in their order, float32, shape (texts, dims)."""
        import torch

        whole = torch.empty(self.distinct, self.dims)
        first = 0
        for shard in self.kept():
            whole[first : first + len(shard)] = shard
            first += len(shard)
        return whole if self.distinct == len(self) else whole[torch.from_numpy(self.rows).long()]


def embed(
    encoder: Encoder,
    texts: Texts | Sequence[str],
    role: Role,
    *,
    instruction: str = "",
    storage: Storage = "float32",
    engine: Engine | None = None,
    progress: bool = True,
    shard: int = SHARD,
) -> Embeddings:
    """Return the texts' vectors; only those that are not kept yet are encoded.

    They are kept under `$OBLIQ_HOME/embeddings`, in shards that are each written whole: a run that was killed goes on
    where it was. Two processes that ask for the same do the work once. Why something was not there already is logged
    at INFO.

    Args:
        encoder: What encodes, and what names everything that can change a vector.
        texts: Texts, passed over twice, and never all in memory.
        role: Whether they are queries or documents.
        instruction: See `Encoder.encode`.
        storage: Type in which a value is kept; float16 and bfloat16 round to the nearest.
        engine: Where to encode; by default here. It must hold the same encoder, which is looked at.
        progress: Show a bar on standard error where that is a terminal.
        shard: Distinct texts in a shard.

    Raises:
        UserError: If a vector does not fit the storage, the disk is full or cannot be written, the texts change while
            they are read, or as `Encoder.encode` and the engine say.
    """
    if storage not in get_args(Storage) or role not in ROLES or shard < 1:
        raise UserError(f"storage is one of {', '.join(get_args(Storage))}, role one of {', '.join(ROLES)}, shard > 0")
    survey = _Survey.of(texts)
    store = Stored(encoder.key(role, instruction), survey.content, encoder.dims, storage, shard, *survey.size)
    encoded = 0
    if not _complete(store):
        with alone(store.folder):
            if not _complete(store):  # another process may have done it meanwhile
                logger.info("%s: %s", encoder.name, why_missed(store))
                job = Job(store.key, getattr(encoder, "batch_size", None))
                encoded = _fill(store, texts, survey, engine or Local(encoder), job, progress=progress)
    return replace(Embeddings.read(store), rows=survey.rows, encoded=encoded)


@dataclass(frozen=True)
class _Survey:
    """What one pass over the texts finds, without keeping them.

    Args:
        rows: For each text its row among the distinct ones, int32.
        firsts: For each distinct text where it stands first, int64, ascending.
        digests: For each distinct text its hash, two uint64.
        content: Hash of all of them in their order.
    """

    rows: NDArray[np.int32]
    firsts: NDArray[np.int64]
    digests: NDArray[np.uint64]
    content: str

    @classmethod
    def of(cls, texts: Texts | Sequence[str]) -> _Survey:
        """Pass over the texts."""
        digests = _digests(texts)
        _, first, inverse = np.unique(digests, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)  # in the order in which they stand first, not in that of their hashes
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        firsts = first[order]
        return cls(place[inverse.reshape(-1)], firsts, digests[firsts], hashlib.sha256(digests.tobytes()).hexdigest())

    @property
    def size(self) -> tuple[int, int]:
        """Return how many texts there are, and how many distinct ones."""
        return len(self.rows), len(self.firsts)

    def texts(self, texts: Texts | Sequence[str], numbers: Sequence[int], size: int) -> Iterator[tuple[int, list[str]]]:
        """Pass over the texts again, and yield those of some shards, ascending.

        Raises:
            UserError: If they are not the same as in the first pass.
        """
        wanted = np.zeros(len(self.rows), bool)
        for number in numbers:
            wanted[self.firsts[number * size : (number + 1) * size]] = True
        picked = compress(texts, wanted.tolist())
        for number in numbers:
            digests = self.digests[number * size : (number + 1) * size]
            shard = list(islice(picked, len(digests)))
            if not np.array_equal(_digests(shard), digests):
                raise UserError("the texts have changed while they were encoded; start again")
            yield number, shard


def _digests(texts: Texts | Sequence[str]) -> NDArray[np.uint64]:
    """Return a hash of each text, shape (texts, 2); lone halves of surrogate pairs have theirs as well."""
    found = bytearray()
    for text in texts:
        found += hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
    return np.frombuffer(bytes(found), "<u8").reshape(-1, 2)


def _complete(store: Stored) -> bool:
    """Tell whether everything is there, down to the counts that stand last in the manifest."""
    there = store.present()
    rows = store.distinct == store.texts or (store.folder / ROWS).exists()
    return there is not None and there.counts is not None and rows and all(s.cost() for s in store.shards())


def _fill(
    store: Stored, texts: Texts | Sequence[str], survey: _Survey, engine: Engine, job: Job, *, progress: bool
) -> int:
    """Encode and keep what is not there, and return how many texts these were."""
    for part in store.folder.glob(".part-*"):  # left by a process that was killed; nobody else is at work here
        part.unlink()
    shards = store.shards()
    missing = {shard.number: shard for shard in shards if shard.cost() is None}
    for one in missing.values():
        if one.is_begun():
            logger.warning("%s is not whole and is encoded again", one.vectors)
    store.write()
    if store.distinct < store.texts:
        with whole_file(store.folder / ROWS) as part, part.open("wb") as file:
            np.save(file, survey.rows)
            os.fsync(file.fileno())
    source = survey.texts(texts, list(missing), store.shard)
    made = engine.encode(source, job) if missing else iter(())
    try:
        _keep(missing, made, store, engine, progress=progress)
    finally:
        if isinstance(made, Generator):
            made.close()  # ends processes, however this one ends
    replace(store, counts=_counts(store, [cost for shard in shards if (cost := shard.cost())])).write()
    return sum(shard.texts for shard in missing.values())


def _keep(
    missing: Mapping[int, Shard], made: Iterator[tuple[int, Encoded]], store: Stored, engine: Engine, *, progress: bool
) -> None:
    """Write shards as they come."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    left, tokens = set(missing), 0
    start = last = time.perf_counter()
    quiet = None if progress else True  # None: quiet when piped
    done = store.distinct - sum(shard.texts for shard in missing.values())
    title = f"Encoding {store.key['role']} texts"
    with (
        tqdm(total=store.distinct, initial=done, desc=title, unit=" texts", disable=quiet) as bar,
        _watched(engine, bar),
    ):
        for number, encoded in made:
            if number not in left or encoded.vectors.shape != (missing[number].texts, store.dims):
                raise UserError(f"the engine returned vectors of shape {encoded.vectors.shape} as shard {number}")
            now = time.perf_counter()
            missing[number].write(
                encoded.vectors, Cost(len(encoded.vectors), encoded.tokens, encoded.cut, encoded.lost, now - last)
            )
            left.remove(number)
            last, tokens = now, tokens + encoded.tokens
            bar.set_postfix_str(f"{tokens / (now - start):,.0f} tokens/s", refresh=False)
            done += len(encoded.vectors)
            bar.update(done - bar.n)
    if left:
        raise UserError(f"the engine did not return {len(left)} of {len(missing)} shards; run again to encode them")


@contextmanager
def _watched(engine: Engine, bar: Any) -> Iterator[None]:
    """Let an encoder of this process move the bar within a shard, which may take hours."""
    if not isinstance(engine, Local) or bar.disable:  # a bar that is off counts nothing
        yield
        return
    engine.encoder.watch = bar.update
    try:
        yield
    finally:
        engine.encoder.watch = None


def _counts(store: Stored, costs: Sequence[Cost]) -> dict[str, int]:
    role = store.key["role"]
    return {
        f"{role} texts": store.texts,
        f"{role} texts encoded": store.distinct,
        f"{role} tokens": sum(cost.tokens for cost in costs),
        f"truncated {role} texts": sum(cost.cut for cost in costs),
        f"lost {role} tokens": sum(cost.lost for cost in costs),
    }
