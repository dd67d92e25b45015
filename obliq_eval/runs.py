"""The run store under `$OBLIQ_HOME/runs`: every run with a manifest of what made it; the comparison of two runs."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from filelock import FileLock

from obliq_eval.errors import UserError, near
from obliq_eval.home import home, whole_file, whole_folder
from obliq_eval.manifest import Data, Manifest, Model, fingerprint, hardware, versions
from obliq_eval.run_files import PARQUET, Form, read_run, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_eval.records import Ranking, Run

__all__ = [
    "Data", "Manifest", "Model", "RunDiff", "StoredRun",
    "content_hash", "diff", "fingerprint", "hardware", "load", "scan", "store", "versions",
]  # fmt: skip

RUN, MANIFEST = "run.parquet", "manifest.json"
LOG = logging.getLogger("obliq")


@dataclass(frozen=True)
class StoredRun:
    """A run on disk.

    Args:
        path: The folder in the store, or a run file from elsewhere.
        manifest: What made the run; None for a file from elsewhere.
        part: For a file of mteb with several parts, the one that is meant.
    """

    path: Path
    manifest: Manifest | None = None
    part: str | None = None

    @property
    def name(self) -> str:
        """The run id, or the path of a file from elsewhere."""
        return str(self.path) if self.manifest is None else self.manifest.run_id

    def read(self) -> Run:
        """Read the run, and check a stored one against its manifest.

        Raises:
            UserError: If the file is damaged.
        """
        if self.manifest is None:
            return read_run(self.path, part=self.part)
        run = read_run(self.path / RUN)
        if content_hash(run) != self.manifest.content:
            raise UserError(
                f"stored run {self.name} is damaged: {RUN} is not what {MANIFEST} describes; {_remove(self)}"
            )
        return run


@dataclass(frozen=True)
class RunDiff:
    """Where two runs agree, in the measures in which OBLIQ-IR's model card states reproducibility.

    A query without an answer counts as absent.

    Args:
        depth: How many documents of each answer are compared.
        common: Queries that both runs answer.
        only_a: Queries that only the first run answers.
        only_b: Queries that only the second run answers.
        same_order: Common queries with the same documents in the same order.
        same_scores: Common queries with the same documents and bit-identical scores.
        same_top1: Common queries with the same first document.
        max_difference: Largest absolute difference between two scores of one document; None if no document is shared.
    """

    depth: int
    common: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    same_order: int
    same_scores: int
    same_top1: int
    max_difference: float | None

    @property
    def same(self) -> bool:
        """Whether nothing differs to this depth."""
        return self.same_scores == self.common and not self.only_a and not self.only_b

    def __str__(self) -> str:
        apart = "" if self.max_difference is None else f" (largest difference {self.max_difference:.2e})"
        return (
            f"of {self.common} common queries {self.same_order} have the same top {self.depth}, "
            f"{self.same_scores} the same scores{apart}, {self.same_top1} the same first document; "
            f"{len(self.only_a)} and {len(self.only_b)} queries are in one run only"
        )


def diff(a: Run, b: Run, depth: int = 100) -> RunDiff:
    """Compare two runs query by query to `depth`."""
    left, right = ({q: r for q, r in run.rankings.items() if len(r)} for run in (a, b))
    common = [query for query in left if query in right]
    pairs = [(_top(left[query], depth), _top(right[query], depth)) for query in common]
    same = [list(x) == list(y) for x, y in pairs]
    gaps = [abs(x[document] - y[document]) for x, y in pairs for document in x.keys() & y.keys()]
    return RunDiff(
        depth=depth,
        common=len(common),
        only_a=tuple(query for query in left if query not in right),
        only_b=tuple(query for query in right if query not in left),
        same_order=sum(same),
        same_scores=sum(ordered and x == y for ordered, (x, y) in zip(same, pairs, strict=True)),
        same_top1=sum(next(iter(x)) == next(iter(y)) for x, y in pairs),
        max_difference=max(gaps, default=None),
    )


def content_hash(run: Run) -> str:
    """Return the SHA-256 of what a run says: depth, and for each answered query the ids and float32 scores in order."""
    digest = hashlib.sha256(json.dumps(run.depth).encode())
    for query in sorted(run.rankings):
        ranking = run.rankings[query]
        if len(ranking):
            digest.update(json.dumps([query, ranking.documents]).encode())
            digest.update(np.asarray(ranking.scores, dtype="<f4").tobytes())
    return digest.hexdigest()


def store(run: Run, manifest: Manifest) -> StoredRun:
    """Keep a run and its manifest as one folder, whole or not at all.

    The same fingerprint with the same content is not stored again (scores that the stored manifest lacks are added);
    with other content it takes the old one's place, and a warning of the logger `obliq` says how they differ.
    Processes may store at the same time.

    Args:
        run: The run.
        manifest: What made it; its run id and content hash are filled in here.

    Raises:
        UserError: If the store cannot be written.
    """
    made = replace(manifest, run_id=manifest.slug, content=content_hash(run))
    folder = _root() / made.run_id
    try:
        _root().mkdir(parents=True, exist_ok=True)
        with FileLock(_root() / ".lock"):
            _sweep()
            old = _present(folder, made, run)
            return _write(folder, made, run) if old is None else _add_scores(old, made)
    except OSError as error:
        raise UserError(f"cannot write {_root()}: {error.strerror or error}") from error


def scan() -> tuple[list[StoredRun], list[str]]:
    """Return the stored runs, newest first, and one sentence for each damaged entry."""
    entries, problems = [], []
    for folder in _folders():
        try:
            entries.append(_entry(folder))
        except UserError as error:
            problems.append(str(error))
    return sorted(entries, key=_age, reverse=True), problems


def load(ref: str, part: str | None = None) -> StoredRun:
    """Find a run.

    Args:
        ref: A run id, the path of a run file or of a stored run's folder, the start of a run id or of its fingerprint,
            or `MODEL:TASK` for the newest of these.
        part: For a file of mteb with several parts, the one that is meant.

    Raises:
        UserError: If nothing or more than one run is meant; near names are suggested.
    """
    if any(folder.name == ref for folder in _folders()):
        return _entry(_root() / ref)
    path = Path(ref)
    if _is_file(path):
        return StoredRun(path, part=part)
    if _is_file(path / MANIFEST):
        return _entry(path)
    entries, _ = scan()
    named = [entry for entry in entries if ref in _names(entry)]
    if named:
        return named[0]
    begun = [e for e in entries if ref and (e.name.startswith(ref) or e.name.rpartition("-")[2].startswith(ref))]
    if len(begun) == 1:
        return begun[0]
    if tasks := sorted({e.manifest.task for e in entries if e.manifest is not None and ref in _models(e.manifest)}):
        raise UserError(
            f'"{ref}" is a model, not a run: its stored runs are of {", ".join(tasks)}; give {ref}:{tasks[0]}, or run '
            "it on the task that is meant"
        )
    if begun:
        raise UserError(f'"{ref}" begins {len(begun)} run ids: {", ".join(e.name for e in begun)}; add characters')
    known = [name for entry in entries for name in (entry.name, *_names(entry))]
    raise UserError(f'no run "{ref}" in {_root()}, and no such file{near(ref, known)}')


def _root() -> Path:
    return home() / "runs"


def _folders() -> list[Path]:
    root = _root()
    found = root.iterdir() if root.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and not path.name.startswith("."))


def _names(entry: StoredRun) -> Sequence[str]:
    """Return the ways to write `MODEL:TASK`: full name, name without organisation, alias."""
    if entry.manifest is None:
        return ()
    return [f"{name}:{entry.manifest.task}" for name in _models(entry.manifest)]


def _models(manifest: Manifest) -> list[str]:
    model = manifest.model
    return [name for name in (model.name, model.name.rpartition("/")[2], model.alias) if name]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name too long for a file
        return False


def _age(entry: StoredRun) -> tuple[float, str]:
    created = "" if entry.manifest is None else entry.manifest.created
    return datetime.fromisoformat(created).timestamp() if created else 0.0, entry.name


def _entry(folder: Path) -> StoredRun:
    """Read a stored run's manifest, and look whether its run is whole.

    Raises:
        UserError: If the entry is damaged.
    """
    entry = StoredRun(folder)
    try:
        whole = _end(folder / RUN) == PARQUET
        manifest = Manifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{Path(error.filename or folder).name}: {error.strerror}"
    except ValueError as error:
        reason = f"{MANIFEST}: {error}"
    else:
        if whole:
            return replace(entry, manifest=manifest)
        reason = f"{RUN} is cut off"
    raise UserError(f"stored run {folder.name} is damaged ({reason}); {_remove(entry)}")


def _end(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(max(path.stat().st_size - len(PARQUET), 0))
        return stream.read()


def _remove(entry: StoredRun) -> str:
    return f"remove {entry.path} and run it again"


def _present(folder: Path, new: Manifest, run: Run) -> StoredRun | None:
    """Return the stored run if it has the new one's content; else warn of what will be replaced, and return None."""
    if not folder.exists():
        return None
    try:
        old = _entry(folder)
        before = old.read()
    except UserError as error:
        LOG.warning("%s: replaced", str(error).partition("; ")[0])
        return None
    if old.manifest is not None and old.manifest.content == new.content:
        return old
    change = diff(before, run, max(before.depth, run.depth))
    LOG.warning("run %s gave another result under the same settings and was replaced: %s", new.run_id, change)
    return None


def _write(folder: Path, manifest: Manifest, run: Run) -> StoredRun:
    with whole_folder(folder) as part:
        write_run(run, part / RUN, Form.PARQUET)
        (part / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return StoredRun(folder, manifest)


def _add_scores(old: StoredRun, new: Manifest) -> StoredRun:
    if old.manifest is None or old.manifest.scores or not new.scores:
        return old
    manifest = replace(old.manifest, scores=new.scores)
    with whole_file(old.path / MANIFEST) as part:
        part.write_text(manifest.to_json(), encoding="utf-8")
    return replace(old, manifest=manifest)


def _sweep() -> None:
    """Remove what killed processes left behind; whoever is writing now holds the lock."""
    for rest in (*_root().glob(".part-*"), *_root().glob(".old-*")):
        shutil.rmtree(rest, ignore_errors=True)


def _top(ranking: Ranking, depth: int) -> dict[str, float]:
    return dict(zip(ranking.documents[:depth], ranking.scores[:depth].tolist(), strict=True))
