"""Writing the pages of a leaderboard, and telling which of those on disk are out of date."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.errors import raise_all
from obliq_eval.home import whole_file, whole_folder
from obliq_eval.leaderboard import site
from obliq_eval.leaderboard.boards import load_boards, load_tables
from obliq_eval.leaderboard.pages import MARK, pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SITE = "site"
SITE_MARK = "content=\"default-src 'none'; style-src &#39;sha256-"
"""Stands in the head of every page of a site: the start of its content security policy."""


def build(root: Path) -> list[str]:
    """Write every page and the site, and remove pages that are made no more.

    Args:
        root: Folder of the leaderboards; it is made if it is not there.

    Returns:
        Paths below `root` of the files that were written.

    Raises:
        UserError: If what no earlier build made stands where a page or the site belongs; nothing is written then.
    """
    boards, tables = load_boards(root), load_tables(root)
    made = pages(boards, tables)
    raise_all(list(_foreign(root, made)), f"cannot build in {root}")
    for name, content in made.items():
        with whole_file(root / name) as part:
            part.write_text(content, encoding="utf-8")
    for name in _generated(root) - made.keys():
        (root / name).unlink()
    with whole_folder(root / SITE) as part:
        site.write(boards, tables, part)
    return [*made, *(f"{SITE}/{name}" for name in _files(root / SITE))]


def stale(root: Path) -> dict[str, str]:
    """Return the files that `build` would change, with what is wrong with each."""
    boards, tables = load_boards(root), load_tables(root)
    wanted = {name: content.encode() for name, content in pages(boards, tables).items()}
    with tempfile.TemporaryDirectory() as folder:
        site.write(boards, tables, Path(folder))
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


def _foreign(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield what stands in a build's way and was not made by one, one sentence each."""
    ours = _generated(root)
    for name in names:
        if (root / name).exists() and name not in ours:
            yield f"{root / name} was not made by a build; move it, or choose another folder with --root"
    folder = root / SITE
    if folder.exists() and not _is_site(folder):
        yield f"{folder} holds no page of a build; move it, or choose another folder with --root"


def _is_site(folder: Path) -> bool:
    """Return whether a build may replace a folder: it is empty, or its start page is one of ours."""
    if not folder.is_dir():
        return False
    start = folder / "index.html"
    return next(folder.iterdir(), None) is None or (
        start.is_file() and SITE_MARK in start.read_text("utf-8", errors="replace")
    )


def _files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path with slashes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
