"""What an engine does, the one that is no more than a loop, and what the others share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obliq_eval.catalogue import Origin
    from obliq_models.encoders.base import Encoded, Encoder

    Texts = tuple[int, list[str]]
    Made = tuple[int, Encoded]

ATTEMPTS = 3
"""How many processes one shard may take with it."""


@dataclass(frozen=True)
class Job:
    """What is asked of whoever encodes.

    Args:
        key: The key of the encoder whose vectors these are to be, see `Encoder.key`; role and instruction are in it.
        batch_size: Texts in a batch at most, where the encoder has such a setting and it is set.
    """

    key: Mapping[str, Any]
    batch_size: int | None = None

    def encode(self, encoder: Encoder, texts: list[str]) -> Encoded:
        """Return one vector per text; see `Encoder.encode`.

        Raises:
            UserError: If this is another encoder than the one that is asked.
        """
        role, instruction = self.key["role"], self.key["instruction"]
        found = encoder.key(role, instruction)
        differs = [name for name in {**self.key, **found} if self.key.get(name) != found.get(name)]
        if differs:
            told = ", ".join(f"{name} is {found.get(name)!r}, not {self.key.get(name)!r}" for name in differs)
            raise UserError(f"the engine holds another encoder than the one whose vectors are asked for: {told}")
        if self.batch_size is not None and hasattr(encoder, "batch_size"):
            encoder.batch_size = self.batch_size
        return encoder.encode(texts, role, instruction)


class Engine(Protocol):
    """Encodes shards, wherever that happens.

    Whatever the engine, a shard is one call of `Encoder.encode`, so that its vectors are the same to the last bit.
    """

    def encode(self, shards: Iterator[Texts], job: Job) -> Iterator[Made]:
        """Yield each shard's number with its vectors, in any order.

        Args:
            shards: Numbers with texts; taken when there is somebody to encode them, for all of them may not fit into
                memory.
            job: What is asked.

        Raises:
            UserError: As `Job.encode` says, or if those who were to encode have gone.
        """


class Local:
    """Encodes here, one shard after another.

    Args:
        encoder: What encodes.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def encode(self, shards: Iterator[Texts], job: Job) -> Iterator[Made]:
        """Yield shards in their order."""
        for number, texts in shards:
            yield number, job.encode(self.encoder, texts)


class Replica:
    """The encoder once more, in another process; it is built when the first shard comes.

    Args:
        origin: How it was built.
        device: Where it runs.
        threads: Processor threads of one operation. A matrix product may be summed in another order with another
            number, so it has to be that of the process whose vectors these are to equal.
    """

    def __init__(self, origin: Origin, device: str, threads: int) -> None:
        self.origin, self.device, self.threads = origin, device, threads
        self._encoder: Encoder | None = None

    def encode(self, texts: list[str], job: Job) -> Encoded:
        """Return one vector per text; see `Job.encode`."""
        if self._encoder is None:
            import torch

            torch.set_num_threads(self.threads)
            self._encoder = self.origin.build(device=self.device).encoder
        return job.encode(self._encoder, texts)


def origin_of(model: Any) -> Origin:
    """Return how a model was built.

    Raises:
        UserError: If it was not built from the table of models, so that no other process can build it.
    """
    origin: Origin | None = getattr(model, "origin", None)
    if origin is None:
        raise UserError(
            f"{getattr(model, 'name', type(model).__name__)} was built by hand, so that no other process can build "
            "the same; name it in a TOML file or register it, or encode in this process"
        )
    return origin


def threads_here() -> int:
    """Return how many processor threads an operation has in this process."""
    import torch

    return torch.get_num_threads()
