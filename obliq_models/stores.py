"""The folders in which vectors are kept: what is in each, why none fits, and how one is removed."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from obliq_eval.errors import UserError
from obliq_eval.home import home, whole_file
from obliq_eval.manifest import now, versions
from obliq_models.shards import Shard, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MANIFEST = "manifest.json"
_LACKING = "nothing"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """What one folder of vectors holds: its manifest.

    Args:
        key: Everything but the texts that can change a vector, see `Encoder.key`.
        content: Hash of the texts.
        dims: Length of one vector.
        storage: Type of a value.
        shard: Distinct texts in a shard.
        texts: How many texts there are.
        distinct: How many of them are different.
        counts: Whatever was read, cut or lost, by its name; None until every shard is there.
        created: ISO 8601 time.
        versions: Versions of the packages involved.
    """

    key: Mapping[str, Any]
    content: str
    dims: int
    storage: Storage
    shard: int
    texts: int
    distinct: int
    counts: Mapping[str, int] | None = None
    created: str = field(default_factory=now)
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def name(self) -> str:
        """Return the folder's name: the model, and a hash of all that makes these vectors these."""
        parts = [self.key, self.content, self.dims, self.storage, self.shard]
        found = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        model = re.sub(r"[^A-Za-z0-9.-]+", "-", str(self.key.get("model"))).strip("-.")[:60] or "model"
        return f"{model}-{found}"

    @property
    def folder(self) -> Path:
        """Return where they are kept."""
        return root() / self.name

    @property
    def bytes(self) -> int:
        """Return how much of the disk the folder takes now, in bytes."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def shards(self) -> list[Shard]:
        """Return every shard, whether it is there or not."""
        firsts = range(0, self.distinct, self.shard)
        return [
            Shard(self.folder, number, min(self.shard, self.distinct - first), self.dims, self.storage)
            for number, first in enumerate(firsts)
        ]

    def write(self) -> None:
        """Write the manifest.

        Raises:
            UserError: If it cannot be written.
        """
        with whole_file(self.folder / MANIFEST) as part:
            part.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=True) + "\n", "utf-8")

    def present(self) -> Stored | None:
        """Return the manifest that lies in this one's folder, or None if there is none of the same vectors."""
        found = read_manifest(self.folder / MANIFEST)
        return found if found is not None and found.name == self.name else None


def root() -> Path:
    """Return the folder of the stores."""
    return home() / "embeddings"


def stored() -> list[Stored]:
    """Return what is kept, complete or not, newest first; damaged manifests are named in a warning."""
    found = []
    for path in sorted(root().glob(f"*/{MANIFEST}")) if root().is_dir() else ():
        manifest = read_manifest(path)
        if manifest is None or manifest.folder != path.parent:
            logger.warning("%s is damaged; remove the folder, or encode again what was in it", path)
        else:
            found.append(manifest)
    return sorted(found, key=lambda one: one.created, reverse=True)


def remove(store: Stored) -> int:
    """Remove a store, and return how many bytes that has freed; one that is being written is waited for.

    Raises:
        UserError: If it cannot be removed.
    """
    with alone(store.folder):
        freed = store.bytes
        try:
            shutil.rmtree(store.folder)
        except OSError as error:
            raise UserError(f"cannot remove {store.folder}: {error.strerror or error}") from error
    return freed


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a store's lock, which ends with the process that holds it, however that ends.

    The lock lies beside the folder, so that the folder can be removed under it.

    Raises:
        UserError: If it cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("another process writes %s; waiting for it", folder)
            lock.acquire()
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; set OBLIQ_HOME to a folder that can be written"
        ) from error
    try:
        yield
    finally:
        lock.release()


def why_missed(wanted: Stored) -> str:
    """Return why there are no vectors for this yet: what differs in the nearest of those that are kept."""
    here = wanted.present()
    if here is not None:
        whole = sum(shard.cost() is not None for shard in wanted.shards())
        return f"{whole} of {len(wanted.shards())} shards of these vectors are there, the others are encoded now"
    kept = stored()
    if not kept:
        return "no vectors for this yet: none are kept at all"
    mine = _fields(wanted)
    gaps = [{name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)} for theirs in map(_fields, kept)]
    # Newest first: `min` keeps that order among those that differ in as many fields.
    nearest, gap = min(zip(kept, gaps, strict=True), key=lambda pair: len(pair[1]))
    theirs = _fields(nearest)
    told = [
        f"{name} ({theirs.get(name, _LACKING)}, not {mine.get(name, _LACKING)})"
        for name in (*mine, *(theirs.keys() - mine.keys()))
        if name in gap
    ]
    return f"no vectors for this yet: the nearest differ in {', '.join(told)}"


def _fields(store: Stored) -> dict[str, str]:
    """Return what makes a store's vectors these, one readable value a field, whatever the nesting of the key."""
    texts = f"{store.texts:,} of hash {store.content[:8]}"
    rest = {"storage": store.storage, "dims": str(store.dims), "shard": str(store.shard), "texts": texts}
    return {**dict(_flat(store.key)), **rest}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, json.dumps(inner, ensure_ascii=False)


def read_manifest(path: Path) -> Stored | None:
    """Return what a manifest says, or None if there is none or it is damaged."""
    try:
        found = Stored(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    numbers = (found.dims, found.shard, found.texts, found.distinct)
    sound = all(type(number) is int and number >= 0 for number in numbers) and found.storage in get_args(Storage)
    return found if sound and found.shard and isinstance(found.key, dict) else None
