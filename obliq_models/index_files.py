"""What lies in the folder of an index, and what its manifest says."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_eval.manifest import now, versions
from obliq_models import stores

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST, DOCUMENTS, VECTORS, GRAPH = "obliq-index.json", "documents.arrow", "vectors", "graph.faiss"
FORM = 1  # raise it when a folder of the earlier form can no longer be read


@dataclass(frozen=True)
class Recall:
    """What share of the exact nearest vectors an approximate index finds.

    Args:
        width: Candidates that a search keeps.
        at_10: Of the 10 nearest.
        at_100: Of the 100 nearest.
        sample: How many documents were searched for, the document itself left out.
    """

    width: int
    at_10: float
    at_100: float
    sample: int


@dataclass(frozen=True)
class Manifest:
    """What is in an index, and what made it.

    Args:
        model: Full name of the model.
        revision: Its revision.
        given: What stood after `-m`, paths absolute; empty if the model was an object.
        identity: Everything that can change its answers, see `loading.identity`.
        documents: How many there are.
        content: SHA-256 of their ids and texts.
        source: Where they come from, for people.
        counts: Whatever was read, cut or lost when they were encoded, by its name.
        vectors: Name of the store of their vectors, see `Stored.name`; None if there are none.
        recall: Of the approximate index, if there is one.
        created: ISO 8601 time.
        versions: Versions of the packages involved.
        form: Of the folder.
    """

    model: str
    revision: str | None
    given: str
    identity: Mapping[str, Mapping[str, Any]]
    documents: int
    content: str
    source: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    vectors: str | None = None
    recall: Recall | None = None
    created: str = field(default_factory=now)
    versions: Mapping[str, str] = field(default_factory=versions)
    form: int = FORM

    def check(self, path: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse another model than the one that indexed.

        Raises:
            UserError: That says what differs.
        """
        wanted, got = dict(_flat(self.identity)), dict(_flat(found))
        differs = [name for name in (*wanted, *(got.keys() - wanted.keys())) if wanted.get(name) != got.get(name)]
        if differs:
            told = [f"{name} was {wanted.get(name)!r} and is {got.get(name)!r}" for name in differs[:3]]
            more = f" and {len(differs) - 3} more" if len(differs) > 3 else ""
            raise self.other(path, ", ".join(told) + more)

    def other(self, path: Path, why: str) -> UserError:
        """Return what to say of a model that is not the one that indexed."""
        return UserError(
            f"{path} was indexed with {self.model}, which this is not ({why}): give the model of that time with -m, or "
            "index the documents again"
        )


@dataclass(frozen=True)
class Kept(stores.Stored):
    """A store of vectors that lies in an index.

    Args:
        place: Its folder.
    """

    place: Path = Path()

    @property
    def folder(self) -> Path:
        """Return where the vectors are."""
        return self.place

    @classmethod
    def read(cls, folder: Path) -> Kept:
        """Return the store in this folder.

        Raises:
            UserError: If there is none, or it is damaged.
        """
        found = stores.read_manifest(folder / stores.MANIFEST)
        if found is None:
            raise UserError(f"the vectors in {folder} are gone or damaged: index the documents again")
        return cls(**vars(found), place=folder)


def read_manifest(path: Path) -> Manifest:
    """Return what an index says of itself.

    Raises:
        UserError: If there is no index, or it is damaged or of another form.
    """
    file = path / MANIFEST
    if not file.is_file():
        what = "is no index" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: `obliq index` makes one")
    try:
        data = json.loads(file.read_text("utf-8"))
        if data.get("form") != FORM:
            raise UserError(f"{path} is an index of form {data.get('form')}, not {FORM}: index the documents again")
        recall = None if data["recall"] is None else Recall(**data["recall"])
        found = Manifest(**{**data, "recall": recall})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file} is damaged: index the documents again ({error})") from error
    if type(found.documents) is not int or not isinstance(found.identity, dict):
        raise UserError(f"{file} is damaged: index the documents again")
    return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder."""
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n", "utf-8")


def check_place(path: Path, *, force: bool) -> None:
    """Refuse a folder that holds anything, unless it is an index that may be replaced.

    Raises:
        UserError: If it does.
    """
    if not path.exists() and not path.is_symlink():
        return
    if (path / MANIFEST).is_file():
        if not force:
            raise UserError(f"{path} is an index already: --force replaces it, or choose another folder with -o")
    elif not path.is_dir() or any(path.iterdir()):
        raise UserError(f"{path} is there and no index: choose another folder with -o")


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return `(dotted name, value)` for everything inside."""
    found: list[tuple[str, Any]] = []
    for name, inner in value.items():
        found += _flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) and inner else [(prefix + name, inner)]
    return found
