"""Writing the pages of a leaderboard, and telling which of those on disk are out of date."""

from __future__ import annotations

import tempfile
from pathlib import Path

from obliq_eval.home import whole_file, whole_folder
from obliq_eval.leaderboard import site
from obliq_eval.leaderboard.boards import load_boards, load_tables
from obliq_eval.leaderboard.pages import MARK, pages

SITE = "site"


def build(root: Path) -> list[str]:
    """Write every page and the site, and remove pages that are made no more.

    Args:
        root: Folder of the leaderboards; it is made if it is not there.

    Returns:
        Paths below `root` of the files that were written.
    """
    boards = load_boards(root)
    made = pages(boards, load_tables())
    for name, content in made.items():
        with whole_file(root / name) as part:
            part.write_text(content, encoding="utf-8")
    for name in _generated(root) - made.keys():
        (root / name).unlink()
    with whole_folder(root / SITE) as part:
        site.write(boards, part)
    return [*made, *(f"{SITE}/{name}" for name in _files(root / SITE))]


def stale(root: Path) -> dict[str, str]:
    """Return the files that `build` would change, with what is wrong with each."""
    boards = load_boards(root)
    wanted = {name: content.encode() for name, content in pages(boards, load_tables()).items()}
    with tempfile.TemporaryDirectory() as folder:
        site.write(boards, Path(folder))
        wanted |= {f"{SITE}/{name}": content for name, content in _files(Path(folder)).items()}
    there = {f"{SITE}/{name}": content for name, content in _files(root / SITE).items()}
    there |= {path.name: path.read_bytes() for path in root.glob("*.md")}
    extra = {name for name in there if name not in wanted and (name.startswith(f"{SITE}/") or name in _generated(root))}
    return {
        **{name: "missing" for name in wanted if name not in there},
        **{name: "out of date" for name in wanted if name in there and there[name] != wanted[name]},
        **dict.fromkeys(sorted(extra), "made no more"),
    }


def _generated(root: Path) -> set[str]:
    """Return the names of the pages that an earlier `build` wrote."""
    return {path.name for path in root.glob("*.md") if path.read_text("utf-8", errors="replace").startswith(MARK)}


def _files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path with slashes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
