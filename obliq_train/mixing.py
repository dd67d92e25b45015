"""What a mixture is made of: its parts with doses or weights, from a TOML file or from files alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obliq_eval.errors import near, raise_all
from obliq_eval.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).parent / "mixtures"
UNPUBLISHED = "not published"
Conflicts = Literal["refuse", "repair"]
_RECIPE: dict[str, type] = {"purpose": str, "total": int, "seed": int, "conflicts": str, "part": list}
_PART: dict[str, type] = {
    "name": str, "file": str, "task": str, "dose": int, "weight": float, "share": str, "per_document": int,
    "replaces": list, "documents": str,
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Rows of one kind.

    Args:
        name: Its name, written into each row as `source`.
        file: The rows.
        task: The task that its rows say they belong to, unless they say so themselves.
        dose: How many rows are drawn; None for all, or for what `weight` says.
        weight: Its share of the rows that no dose takes, in proportion to other weights.
        published: Whether the share is known; a part whose share is not gives all of its rows.
        per_document: The most rows with one first positive.
        replaces: Parts that are left out because this one stands for them ("replace"); none for "blend".
        documents: Where the documents are that rows name by their ids: a task, folder or file.
    """

    name: str
    file: Path | None = None
    task: str = ""
    dose: int | None = None
    weight: float | None = None
    published: bool = True
    per_document: int | None = None
    replaces: tuple[str, ...] = ()
    documents: str = ""


@dataclass(frozen=True)
class Mix:
    """A mixture before it is made.

    Args:
        parts: In the order in which rows win over their duplicates.
        total: How many rows there are meant to be; None if nothing says.
        seed: Of what is drawn, and of the order.
        conflicts: What happens to rows whose positive is among their negatives.
        purpose: One line for people.
    """

    parts: tuple[Part, ...]
    total: int | None = None
    seed: int = 0
    conflicts: Conflicts = "refuse"
    purpose: str = ""

    def settings(self) -> dict[str, Any]:
        """Return, as JSON values, everything that can change the rows, but for the files' content."""
        parts = [
            {
                "name": part.name,
                "file": part.file and part.file.name,
                "task": part.task,
                "share": self._share(part),
                "per_document": part.per_document,
                "replaces": list(part.replaces),
                "documents": part.documents,
            }
            for part in self.parts
        ]
        return {"parts": parts, "total": self.total, "conflicts": self.conflicts, "purpose": self.purpose}

    def _share(self, part: Part) -> str:
        if not part.published:
            return UNPUBLISHED
        if part.dose is not None:
            return f"{part.dose} rows"
        return "all rows" if part.weight is None else f"weight {part.weight:g}"

    @property
    def replaced(self) -> frozenset[str]:
        """Names of the parts that others stand for."""
        return frozenset(name for part in self.parts for name in part.replaces)

    def with_files(self, files: Mapping[str, Path]) -> Mix:
        """Return the mixture with some of the parts' files set.

        Raises:
            UserError: If a name is no part's, or a part that is used has no file; all at once.
        """
        names = [part.name for part in self.parts]
        problems = [f"no part is called {name!r}{near(name, names)}" for name in files if name not in names]
        made = replace(self, parts=tuple(replace(part, file=files.get(part.name, part.file)) for part in self.parts))
        problems += [
            f"part {part.name!r} has no file: --file {part.name}=FILE"
            for part in made.parts
            if part.file is None and part.name not in made.replaced
        ]
        raise_all(problems, "the mixture")
        return made


def names() -> tuple[str, ...]:
    """Return the names of the bundled mixtures."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def of_files(files: Sequence[Path], **settings: Any) -> Mix:
    """Return the mixture of all rows of files; each is a part with the file's name."""
    stems = [path.stem for path in files]
    parts = [
        Part(stem if stems.count(stem) == 1 else f"{stem}-{number}", path)
        for number, (stem, path) in enumerate(zip(stems, files, strict=True), 1)
    ]
    return Mix(tuple(parts), **settings)


def read(reference: str) -> Mix:
    """Read a mixture: a bundled one by its name, or a TOML file.

    Paths of rows are taken from the folder of the file.

    Raises:
        UserError: If it cannot be read, or a key is missing, unknown or of the wrong form; all at once.
    """
    path = FOLDER / f"{reference}.toml" if reference in names() else Path(reference)
    data = read_toml(path)
    raise_all(_problems(data), str(path))
    parts = [_part(part, path.parent) for part in data["part"]]
    return Mix(
        tuple(parts), data.get("total"), data.get("seed", 0), data.get("conflicts", "refuse"), data.get("purpose", "")
    )


def _part(data: Mapping[str, Any], folder: Path) -> Part:
    known = {key: value for key, value in data.items() if key not in {"file", "share", "replaces"}}
    return Part(
        file=folder / data["file"] if "file" in data else None,
        published="share" not in data,
        replaces=tuple(data.get("replaces", ())),
        **known,
    )


def _problems(data: Mapping[str, Any]) -> list[str]:
    found = _faults(data, _RECIPE, "")
    found += [
        f"{key} is {data[key]}, and must be {least} or more"
        for key, least in (("seed", 0), ("total", 1))
        if isinstance(data.get(key), int) and data[key] < least
    ]
    if data.get("conflicts", "refuse") not in ("refuse", "repair"):
        found.append(f"conflicts is {data['conflicts']!r}, neither refuse nor repair")
    parts = data.get("part")
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        return [*found, "there is no [[part]]"]
    parts_names = [part.get("name") for part in parts]
    for number, part in enumerate(parts, 1):
        name = part.get("name")
        place = f"part {name!r}: " if isinstance(name, str) else f"part {number}: "
        found += _faults(part, _PART, place)
        found += _part_problems(part, place, parts_names)
    weighted = [part for part in parts if "weight" in part]
    if weighted and any({"dose", "weight"}.isdisjoint(part) for part in parts):
        found.append("some parts have a weight and others neither weight nor dose: give each one of the two")
    return found


def _part_problems(part: Mapping[str, Any], place: str, known: Sequence[Any]) -> list[str]:
    named = isinstance(part.get("name"), str) and part["name"].strip()
    found = [] if named else [f"{place}name is missing"]
    if known.count(part.get("name")) > 1:
        found.append(f"{place}another part has the same name")
    if sum(key in part for key in ("dose", "weight", "share")) > 1:
        found.append(f"{place}give one of dose, weight and share")
    if part.get("share", UNPUBLISHED) != UNPUBLISHED:
        found.append(f'{place}share can only be "{UNPUBLISHED}"; say a number as dose or weight')
    found += [
        f"{place}{key} is {part[key]}, and must be more than 0 and finite"
        for key in ("dose", "weight", "per_document")
        if isinstance(part.get(key), int | float) and not 0 < part[key] < float("inf")
    ]
    replaced = part.get("replaces", [])
    if isinstance(replaced, list):
        found += [
            f"{place}replaces {name!r}, which is no other part"
            for name in replaced
            if name not in known or name == part.get("name")
        ]
    return found


def _faults(data: Mapping[str, Any], known: Mapping[str, type], place: str) -> list[str]:
    found = [f"{place}{key} is no key here{near(key, known)}" for key in sorted(data.keys() - known.keys())]
    for key, kind in known.items():
        value = data.get(key)
        right = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if value is not None and (not right or isinstance(value, bool)):
            found.append(f"{place}{key} is {type(value).__name__}, not {kind.__name__}")
    return found
