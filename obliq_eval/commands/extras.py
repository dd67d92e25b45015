"""What the optional dependencies of the installed package are, and which of them are missing."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, requires, version

PACKAGE = "obliq"


@cache
def extras() -> dict[str, tuple[str, ...]]:
    """Return the packages that each extra needs and this environment lacks, or has in an unsuitable version.

    Returns:
        `{extra: requirements that are not met}`; empty if obliq itself is not installed as a package.
    """
    try:
        names = metadata(PACKAGE).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return {}
    return {str(name): _unmet(str(name)) for name in names}


def requirements() -> tuple[tuple[str, str, str | None], ...]:
    """Return `(package, wanted versions, installed version)` for every requirement of the package without extras."""
    from packaging.requirements import Requirement

    try:
        parsed = [Requirement(line) for line in requires(PACKAGE) or ()]
    except PackageNotFoundError:
        return ()
    wanted = [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return tuple((r.name, str(r.specifier), installed(r.name)) for r in wanted)


def installed(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def fits(found: str | None, wanted: str) -> bool:
    """Tell whether a version is there and satisfies a specifier such as `>=5,<6`."""
    from packaging.specifiers import SpecifierSet

    return found is not None and SpecifierSet(wanted).contains(found, prereleases=True)


def _unmet(extra: str) -> tuple[str, ...]:
    from packaging.requirements import Requirement

    parsed = [Requirement(line) for line in requires(PACKAGE) or ()]
    marked = [(r, r.marker) for r in parsed if r.marker is not None]
    mine = [r for r, marker in marked if marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})]
    return tuple(r.name for r in mine if not fits(installed(r.name), str(r.specifier)))
