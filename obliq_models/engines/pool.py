"""Several processes of one machine, each with its own copy of the model.

sentence-transformers' own pool is made for its own models: it calls their `encode`, not that of an `Encoder`, so that
other models could not use it and its batches, and with them the last bits, would be others; and one dead process ends
it. `concurrent.futures` ends with one dead process as well, and leaves the others behind when it is killed itself.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import traceback
from collections import Counter
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from types import ModuleType
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.engines.base import ATTEMPTS, Replica, threads_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from obliq_eval.catalogue import Origin
    from obliq_models.encoders.base import Encoded
    from obliq_models.engines.base import Job, Made, Texts

logger = logging.getLogger(__name__)


class PoolEngine:
    """Encodes in several processes; a process that dies is replaced, and costs the shard that it was at.

    Args:
        origin: How the encoder's model was built.
        devices: Where each process runs; by default one on every GPU, or two on the CPU.
    """

    def __init__(self, origin: Origin, devices: Sequence[str] = ()) -> None:
        self.origin, self.devices = origin, list(devices) or _devices()

    def encode(self, shards: Iterator[Texts], job: Job) -> Iterator[Made]:
        """Yield shards as they are done.

        Raises:
            UserError: As `Job.encode` says, or if one shard has ended three processes.
        """
        again: list[Texts] = []
        lost: Counter[int] = Counter()
        free, idle = list(self.devices), list[_Worker]()
        busy: dict[Any, _Worker] = {}
        started: list[_Worker] = []
        try:
            while True:
                while idle or free:
                    task = again.pop() if again else next(shards, None)
                    if task is None:
                        break
                    if not idle:
                        started.append(_Worker(self.origin, free.pop(0)))
                        idle.append(started[-1])
                    worker = idle.pop()
                    worker.give(task, job)
                    busy[worker.connection] = worker
                if not busy:
                    return
                for ready in wait(list(busy)):
                    worker = busy.pop(ready)
                    made = worker.take()
                    if made is None:
                        _mourn(worker, lost)
                        free.append(worker.device)
                        again.append(worker.task)
                    else:
                        idle.append(worker)
                        yield worker.task[0], made
        finally:
            for worker in started:
                worker.end()


class _Worker:
    """A process, the pipe to it, and the shard that it is at."""

    task: Texts

    def __init__(self, origin: Origin, device: str) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit the locks of torch's threads
        self.device = device
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, Replica(origin, device, threads_here())), daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()  # from now on the pipe ends with the process

    def give(self, task: Texts, job: Job) -> None:
        """Send a shard."""
        self.task = task
        with suppress(OSError):  # it has died: `take` will find out
            self.connection.send((task[1], job))

    def take(self) -> Encoded | None:
        """Return what it has made, or None if it has died."""
        try:
            answer: Encoded | Exception = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """End the process, whatever it is at."""
        self.process.terminate()
        self.process.join()
        self.connection.close()


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a process that starts from running the script that started it once more.

    It would do so to find what the script defines, of which nothing is needed. A script that is not guarded by
    `if __name__ == "__main__"` would then encode in each process again, and wait for its own lock for ever.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(connection: Connection, replica: Replica) -> None:
    """Encode what comes until the pipe ends, which it does with the process at its other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the one that started this ends it
    answer: Encoded | Exception
    with suppress(EOFError, OSError):
        while True:
            texts, job = connection.recv()
            try:
                answer = replica.encode(texts, job)
            except UserError as error:
                answer = UserError(str(error))  # a subclass may need more than its message to be unpickled
            except Exception:  # whatever it is, the process that asked must hear of it
                answer = RuntimeError(f"in the process on {replica.device}:\n{traceback.format_exc()}")
            connection.send(answer)


def _mourn(worker: _Worker, lost: Counter[int]) -> None:
    """Say that a process has died, and give up when the same shard has ended several."""
    number, code = worker.task[0], worker.process.exitcode
    lost[number] += 1
    if lost[number] >= ATTEMPTS:
        raise UserError(
            f"shard {number} has ended {ATTEMPTS} processes on {worker.device} (exit status {code}): memory may be "
            "short, so try fewer processes; the shards that are done are kept"
        )
    logger.warning("a process on %s ended (exit status %s); shard %d is encoded again", worker.device, code, number)


def _devices() -> list[str]:
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu", "cpu"]
