"""One shard of vectors on disk: written whole or not at all, read as a memory map, its damage noticed."""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from obliq_eval.errors import UserError
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

Storage = Literal["float32", "float16", "bfloat16"]
KEPT_AS: dict[Storage, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
"""What numpy sees: it has no bfloat16, so its bits are kept."""

LARGEST_HALF = 65_504
"""Largest finite float16."""


@dataclass(frozen=True)
class Cost:
    """What one shard has cost, kept beside it.

    Args:
        texts: Texts in it.
        tokens: Tokens that the model has read.
        cut: Texts that were longer than the model reads.
        lost: Tokens of those that it has not read.
        seconds: Wall-clock time since the shard before it.
    """

    texts: int
    tokens: int
    cut: int
    lost: int
    seconds: float


@dataclass(frozen=True)
class Shard:
    """Where one shard lies, and what it must look like.

    Args:
        folder: The store.
        number: Which of its shards, from 0.
        texts: Rows.
        dims: Columns.
        storage: Type of a value.
    """

    folder: Path
    number: int
    texts: int
    dims: int
    storage: Storage

    @property
    def vectors(self) -> Path:
        """Return the file of the vectors, in numpy's own format."""
        return self.folder / f"shard-{self.number:05}.npy"

    @property
    def facts(self) -> Path:
        """Return the file that says what they cost; it is written last."""
        return self.folder / f"shard-{self.number:05}.json"

    def write(self, vectors: NDArray[np.float32], cost: Cost) -> None:
        """Write both files, each whole or not at all.

        Raises:
            UserError: If a value is beyond what the storage holds, the disk is full or the folder is read-only.
        """
        content = pack(vectors, self.storage)
        self.facts.unlink(missing_ok=True)
        with whole_file(self.vectors) as part, part.open("wb") as file:
            file.write(self._header())
            file.write(content.data.cast("B"))  # not `tofile`, which does not say that the disk is full
            file.flush()
            os.fsync(file.fileno())
        with whole_file(self.facts) as part:
            part.write_text(json.dumps(asdict(cost)), "utf-8")

    def cost(self) -> Cost | None:
        """Return what the shard has cost, or None if it is not there or not whole."""
        try:
            told = Cost(**json.loads(self.facts.read_text("utf-8")))
            with self.vectors.open("rb") as file:
                header = file.read(len(self._header()))
                size = os.fstat(file.fileno()).st_size
        except (OSError, ValueError, TypeError):
            return None
        counts = (told.texts, told.tokens, told.cut, told.lost)
        whole = header == self._header() and size == len(header) + self.size
        return told if whole and told.texts == self.texts and all(type(count) is int for count in counts) else None

    @property
    def size(self) -> int:
        """Return the bytes of the vectors alone."""
        return self.texts * self.dims * int(np.dtype(KEPT_AS[self.storage]).itemsize)

    def is_begun(self) -> bool:
        """Tell whether there is any file of this shard."""
        return self.vectors.exists() or self.facts.exists()

    def open(self) -> torch.Tensor:
        """Return the vectors as a memory map in the type in which they are kept, shape (texts, dims)."""
        import torch

        try:
            # Copy on write: torch warns of memory that it may not write to. Nothing is copied as nobody writes.
            kept = np.memmap(
                self.vectors, KEPT_AS[self.storage], "c", len(self._header()), shape=(self.texts, self.dims)
            )
        except (OSError, ValueError) as error:
            raise UserError(f"the vectors {self.vectors} are gone or damaged; encode them again ({error})") from error
        if self.storage == "bfloat16":
            return torch.from_numpy(kept.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(kept)

    def _header(self) -> bytes:
        buffer = io.BytesIO()
        kind = np.lib.format.dtype_to_descr(np.dtype(KEPT_AS[self.storage]))
        facts = {"descr": kind, "fortran_order": False, "shape": (self.texts, self.dims)}
        np.lib.format.write_array_header_1_0(buffer, facts)
        return buffer.getvalue()


def rounded(vectors: NDArray[np.float32], storage: Storage) -> torch.Tensor:
    """Return vectors as they would be read from a shard, float32.

    Raises:
        UserError: If a value is beyond what the storage holds.
    """
    import torch

    kept = torch.from_numpy(pack(vectors, storage).view(np.int16) if storage == "bfloat16" else pack(vectors, storage))
    return (kept.view(torch.bfloat16) if storage == "bfloat16" else kept).float()


def pack(vectors: NDArray[np.float32], storage: Storage) -> NDArray[Any]:
    """Return vectors as they are kept, rounded to the nearest, ties to even.

    Raises:
        UserError: If a value is beyond what the storage holds.
    """
    import torch

    vectors = np.ascontiguousarray(vectors, np.float32)
    if storage == "float32":
        return vectors
    largest = float(np.abs(vectors).max(initial=0))
    rounded = torch.from_numpy(vectors).to(getattr(torch, storage))
    if (storage == "float16" and largest > LARGEST_HALF) or not bool(rounded.isfinite().all()):
        raise UserError(f"a vector holds {largest:g}, which {storage} cannot hold; store these vectors as float32")
    return rounded.numpy() if storage == "float16" else rounded.view(torch.int16).numpy().view(np.uint16)
