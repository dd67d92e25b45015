"""Several machines, through Ray Data: each shard is one block, each worker one actor with its own copy of the model."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.encoders.base import Encoded
from obliq_models.engines.base import ATTEMPTS, Replica, threads_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from obliq_eval.catalogue import Origin
    from obliq_models.engines.base import Job, Made, Texts

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class RayEngine:
    """Encodes on a Ray cluster: the one at `RAY_ADDRESS`, or else one on this machine for as long as it takes.

    Ray starts a worker that dies again, and gives its shard to another. The texts lie in Ray's object store
    meanwhile, which spills to disk. The package and the model must be there on each machine; processors of another
    kind round otherwise.

    Args:
        origin: How the encoder's model was built.
        workers: How many actors there are; by default one for every GPU, or two without any.
    """

    def __init__(self, origin: Origin, workers: int = 0) -> None:
        self.origin, self.workers = origin, workers

    def encode(self, shards: Iterator[Texts], job: Job) -> Iterator[Made]:
        """Yield shards as they are done.

        Raises:
            UserError: As `Job.encode` says, or if the package ray is not installed.
        """
        with cluster("encoding on a Ray cluster") as ray:
            from ray import data

            context = data.DataContext.get_current()
            context.enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            gpus = int(ray.cluster_resources().get("GPU", 0))
            blocks = [ray.put(_block(number, texts)) for number, texts in shards]
            if not blocks:
                return
            made = data.from_arrow_refs(blocks).map_batches(
                _Actor,
                fn_constructor_args=(self.origin, threads_here(), job),
                batch_size=None,  # a block is a shard
                batch_format="pyarrow",
                compute=data.ActorPoolStrategy(size=min(self.workers or gpus or 2, len(blocks))),
                num_gpus=1 if gpus else 0,
                num_cpus=0.5,  # Ray's own tasks need a processor as well, and there may be two only
                max_task_retries=ATTEMPTS - 1,  # by itself Ray never gives up
            )
            table: Any
            try:
                for table in made.iter_batches(batch_size=None, batch_format="pyarrow"):
                    yield from map(_made, table.to_pylist())
            except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as error:
                told = str(error).strip().splitlines()[0]
                raise UserError(
                    f"a shard has ended {ATTEMPTS} workers of Ray ({told}): memory may be short, so try fewer workers; "
                    "the shards that are done are kept"
                ) from error


class _Actor:
    """Encodes one block after another."""

    def __init__(self, origin: Origin, threads: int, job: Job) -> None:
        import ray

        self.replica = Replica(origin, "cuda" if ray.get_gpu_ids() else "cpu", threads)
        self.job = job

    def __call__(self, block: pa.Table) -> pa.Table:
        import pyarrow as pa

        row: dict[str, Any] = {"shard": block["shard"][0].as_py(), "error": None, "vectors": None}
        row |= dict.fromkeys(("tokens", "cut", "lost"), 0)
        try:
            texts = [text.decode("utf-8", "surrogatepass") for text in block["text"].to_pylist()]
            made = self.replica.encode(texts, self.job)
        except UserError as error:  # Ray would wrap it into a traceback of its own, and try again
            row["error"] = str(error)
        else:
            row |= {"vectors": made.vectors.tobytes(), "dims": made.vectors.shape[1]}
            row |= {"tokens": made.tokens, "cut": made.cut, "lost": made.lost}
        return pa.Table.from_pylist([row], schema=_schema())


def _schema() -> pa.Schema:
    import pyarrow as pa

    numbers = [(name, pa.int64()) for name in ("shard", "dims", "tokens", "cut", "lost")]
    return pa.schema([*numbers, ("error", pa.string()), ("vectors", pa.large_binary())])


def _block(number: int, texts: list[str]) -> pa.Table:
    import pyarrow as pa

    written = [text.encode("utf-8", "surrogatepass") for text in texts]  # Arrow's own strings refuse half a pair
    return pa.table({"shard": [number] * len(texts), "text": pa.array(written, pa.large_binary())})


def _made(row: dict[str, Any]) -> Made:
    if row["error"] is not None:
        raise UserError(row["error"])
    vectors = np.frombuffer(row["vectors"], np.float32).reshape(-1, row["dims"])
    return row["shard"], Encoded(vectors, row["tokens"], row["cut"], row["lost"])


@contextmanager
def cluster(purpose: str) -> Iterator[Any]:
    """Yield the package ray, connected; what was started here ends here.

    Args:
        purpose: What it is for, as a message says it.

    Raises:
        UserError: If ray is not installed, or no cluster answers.
    """
    local = not os.environ.get("RAY_ADDRESS")
    for name, value in {**_QUIET, **({"RAY_AUTH_MODE": "disabled"} if local else {})}.items():
        os.environ.setdefault(name, value)  # read when ray is imported
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "ray", purpose) from None
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
    # Not in the folder of the run: a socket's path may have 107 bytes only.
    folder = Path(tempfile.mkdtemp(prefix="obliq-ray-")) if local else None
    here: dict[str, Any] = {
        "address": "local",
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": str(folder),
    }
    try:
        try:
            ray.init(**(here if local else {}), **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = "on this machine" if local else f"at RAY_ADDRESS {os.environ['RAY_ADDRESS']}"
            raise UserError(f"no Ray cluster {where}: {error}") from error
        yield ray
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
